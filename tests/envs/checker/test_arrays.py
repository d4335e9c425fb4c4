"""Array environments whose environments affect each other are found."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.__main__ import main
from maze_pl.envs import ArrayVectorEnv, CartPoleArrayEnv, SequentialVectorEnv
from maze_pl.envs.arrays import ArrayMazeEnv, GymVectorArrayEnv
from maze_pl.envs.checker import check_env, compare_envs
from maze_pl.envs.checker.arrays import make_comparable
from maze_pl.envs.checker.examination import ArrayForm, make_and_keep, plays_in_arrays
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, TimeLimitWrapper
from tests.envs.arrays.guessing import InArray, InObject
from tests.envs.arrays.yard import YardArrayEnv, make_yard

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing


class StepsAll(YardArrayEnv):
    """Changes all environments, whichever act."""

    def numbers_of(self, which: Any) -> Any:
        return np.arange(self.n_envs)


class RewardOfFirst(YardArrayEnv):
    """Gives all environments the reward of environment 0."""

    def step(self, actions: Any, which: Any) -> Any:
        result = super().step(actions, which)
        result.reward = np.full(self.n_envs, result.reward[0])
        return result


class Random(CartPoleArrayEnv):
    """Differs from episode to episode, whatever the seed."""

    def step(self, actions: Any, which: Any) -> Any:
        result = super().step(actions, which)
        result.reward = np.random.default_rng().random(self.n_envs)
        return result


class Unknown(Wrapper):
    """Has no array form."""


def test_an_environment_that_steps_others_along_is_found() -> None:
    singles = partial(SequentialVectorEnv, [make_yard] * 6)
    assert compare_envs(partial(ArrayVectorEnv, YardArrayEnv, 6), singles, n_steps=600).difference is None
    found = compare_envs(partial(ArrayVectorEnv, StepsAll, 6), singles, n_steps=600).difference
    assert found is not None
    assert found.env_index is not None


def test_two_forms_are_compared_in_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    forms = [
        "--env",
        "tests.envs.arrays.yard.YardArrayEnv",
        "--same-as",
        f"{__name__}.RewardOfFirst",
    ]
    assert main(["check", *forms, "--n_steps", "100"]) == 1
    assert "different: environment 1, episode 0, after act 2: reward is " in capsys.readouterr().out
    forms[-1] = "tests.envs.arrays.yard.make_yard"
    assert main(["check", *forms, "--n_steps", "100"]) == 0
    assert capsys.readouterr().out.startswith("equal: 10")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["StepsAll", "RewardOfFirst"])
def test_an_environment_in_arrays_is_compared_with_single_ones(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--env", f"{__name__}.{name}", "--n_steps", "200"]) == 1
    output = " ".join(capsys.readouterr().out.split()).replace(" | | ", " ")
    assert "| error | 4 environments in arrays and 4 single ones of the same seeds differ: environment " in output
    assert "change only those of `which`" in output


def line_of(env: Any, *wrappers: Any) -> tuple[str, str]:
    """Verdict and explanation of the check `arrays`."""
    report = check_env(env, n_steps=100, array_form=ArrayForm(env, list(wrappers)))
    ((_, verdict, explanation),) = [line for line in report.lines if line.name == "arrays"]
    return verdict, explanation


def test_a_sound_environment_is_told_so() -> None:
    wrappers = [ObservationNormalizationWrapper, partial(TimeLimitWrapper, max_episode_steps=7)]
    verdict, explanation = line_of(CartPoleArrayEnv, *wrappers)
    assert (verdict, explanation) == ("ok", "several environments in arrays equal single ones of the same seeds")


def test_what_cannot_be_compared_is_named() -> None:
    assert line_of(Random) == ("skipped", "the environment is not deterministic")
    verdict, explanation = line_of(CartPoleArrayEnv, Unknown)
    assert verdict == "warning"
    assert "it cannot be played in arrays: " in explanation
    assert "Unknown" in explanation


def test_arrays_are_not_recommended_for_subprocesses() -> None:
    (line,) = [line for line in check_env(CartPoleArrayEnv, n_steps=20).lines if line.name == "vectorization"]
    assert line[1:] == ("skipped", "an array environment steps all its environments together")


def test_other_environments_are_not_asked() -> None:
    assert not [line for line in check_env(make_yard, n_steps=20).lines if line.name == "arrays"]
    assert plays_in_arrays(ArrayMazeEnv(CartPoleArrayEnv()))
    assert not plays_in_arrays(make_yard())
    assert not plays_in_arrays(ArrayMazeEnv(GymVectorArrayEnv("CartPole-v1")))


def make_episode() -> ArrayMazeEnv:
    """Make one episode of an array environment."""
    return ArrayMazeEnv(CartPoleArrayEnv())


def test_a_function_that_makes_one_episode_makes_no_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    for make, kind in ((CartPoleArrayEnv, CartPoleArrayEnv), (make_episode, ArrayMazeEnv)):
        wrapped, made = make_and_keep(make, [ObservationNormalizationWrapper], None)
        assert type(made) is kind and plays_in_arrays(wrapped)
    assert isinstance(make_comparable(make_episode, [], None, 2, 5), SequentialVectorEnv)
    comparison = compare_envs(
        partial(make_comparable, make_episode, [], None, 2, 5),
        partial(make_comparable, CartPoleArrayEnv, [], None, 2, 5),
        n_steps=50,
    )
    assert comparison.difference is None
    assert main(["check", "--env", f"{__name__}.make_episode", "--n_steps", "50"]) == 0
    assert re.search(r"arrays +\| skipped \| it needs a function that makes the array", capsys.readouterr().out)


def test_an_environment_is_made_once_to_see_its_form() -> None:
    made = []

    def make() -> ArrayMazeEnv:
        made.append(make_episode())
        return made[-1]

    make_comparable(make, [], None, 2, 5)
    assert len(made) == 4  # to see it, for the statistics of wrappers, and for two episodes


def test_statistics_of_wrappers_are_the_same_in_both_forms() -> None:
    arguments = (CartPoleArrayEnv, [ObservationNormalizationWrapper], None, 3, 5)
    arrays, singles = make_comparable(*arguments), make_comparable(*arguments, as_singles=True)
    assert isinstance(arrays, ArrayVectorEnv)
    assert isinstance(singles, SequentialVectorEnv)
    arrays.reset()
    singles.reset()
    for name, values in arrays.staging.observation[0].items():
        np.testing.assert_array_equal(values, singles.staging.observation[0][name])


def test_a_vector_environment_whose_state_cannot_be_saved_is_not_said_to_be_copied() -> None:
    report = check_env(lambda: GymVectorArrayEnv("CartPole-v1", vectorization_mode="sync"), n_steps=50)
    (line,) = [line for line in report.lines if line.name == "saving"]
    assert (line.verdict, line.explanation) == (
        "skipped",
        "its state cannot be saved: a resumed run starts new episodes",
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (InArray, "a copy made within an episode continues like the original"),
        (InObject, "a copy would lack a part of the state: InObject changes 'simulation.held', which checkpoints and"),
    ],
)
def test_state_that_copies_lack_is_named(kind: Any, expected: str) -> None:
    (line,) = [one for one in check_env(kind, n_steps=40).lines if one.name == "saving"]
    assert re.match(expected, line.explanation)
