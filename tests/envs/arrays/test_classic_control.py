"""CartPole and Pendulum in arrays equal gymnasium's, number for number."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayEnv, CartPoleArrayEnv, GymMazeEnv, PendulumArrayEnv
from tests.envs.arrays.pairs_of_forms import PairOfForms


def _actions(name: str, generator: np.random.Generator, n: int) -> np.ndarray:
    if name == "CartPole-v1":
        return generator.integers(2, size=n)
    return generator.uniform(-3, 3, size=(n, 1)).astype(np.float32)


every_form = pytest.mark.parametrize(
    ("name", "kind"), [("CartPole-v1", CartPoleArrayEnv), ("Pendulum-v1", PendulumArrayEnv)]
)


@every_form
def test_equals_gymnasium_for_the_same_seeds_and_actions(name: str, kind: type[ArrayEnv]) -> None:
    n_envs = 4
    singles = [gymnasium.make(name) for _ in range(n_envs)]
    array_env = kind()
    array_env.allocate(n_envs)
    seeds = np.array([3, 2**31 - 1, 0, 77])
    expected = [env.reset(seed=int(seed))[0] for env, seed in zip(singles, seeds, strict=True)]
    result = array_env.reset(np.arange(n_envs), seeds)
    np.testing.assert_array_equal(result.observation[0]["observation"], expected)
    generator = np.random.default_rng(1)
    n_ends = 0
    for number in range(450):
        actions = _actions(name, generator, n_envs)
        chosen = np.arange(n_envs) if number % 3 else np.flatnonzero(generator.random(n_envs) < 0.7)
        which = slice(None) if len(chosen) == n_envs and number % 2 else chosen
        result = array_env.step({0: {"action": actions}}, which)
        for n in chosen.tolist():
            observation, reward, terminated, truncated, _ = singles[n].step(actions[n])
            np.testing.assert_array_equal(result.observation[0]["observation"][n], observation)
            assert result.reward[n] == reward
            assert (result.terminated is not None and bool(result.terminated[n])) == terminated
            assert bool(result.truncated[n]) == truncated
            if terminated or truncated:
                n_ends += 1
                seed = int(generator.integers(2**31))
                first, _ = singles[n].reset(seed=seed)
                after = array_env.reset(np.array([n]), np.array([seed]))
                np.testing.assert_array_equal(after.observation[0]["observation"][n], first)
    assert n_ends >= 4


CASES = {"n_envs": st.integers(1, 6), "seed": st.integers(0, 2**32), "cut_short": st.sampled_from([0.0, 0.02, 0.3])}


def check_generated(name: str, kind: type[ArrayEnv], case: dict[str, Any], n_steps: int) -> None:
    PairOfForms(kind(), partial(GymMazeEnv, name), **case).play(n_steps)


@every_form
@settings(max_examples=8, deadline=None)
@given(case=st.fixed_dictionaries(CASES), n_steps=st.integers(1, 60))
def test_generated_cases_equal_gymnasium(name: str, kind: type[ArrayEnv], case: dict[str, Any], n_steps: int) -> None:
    check_generated(name, kind, case, n_steps)


@pytest.mark.slow
@pytest.mark.long
@every_form
@settings(max_examples=500, deadline=None)
@given(case=st.fixed_dictionaries(CASES), n_steps=st.integers(1, 60))
def test_500_generated_cases_equal_gymnasium(
    name: str, kind: type[ArrayEnv], case: dict[str, Any], n_steps: int
) -> None:
    check_generated(name, kind, case, n_steps)


@every_form
def test_declares_the_spaces_of_gymnasium(name: str, kind: type[ArrayEnv]) -> None:
    assert Spec.of(kind()).to_dict() == Spec.of(GymMazeEnv(name)).to_dict()


def test_a_cartpole_episode_is_truncated_at_its_last_step() -> None:
    env = CartPoleArrayEnv(max_episode_steps=2)
    env.allocate(1)
    env.reset(np.array([0]), np.array([1]))
    ends = [env.step({0: {"action": np.array([n])}}, slice(None)).truncated.tolist() for n in range(2)]
    assert ends == [[False], [True]]


def test_numpy_computes_the_same_sines_of_arrays_and_of_single_numbers() -> None:
    angles = np.random.default_rng(0).uniform(-4, 4, 1003)
    assert np.sin(angles).tolist() == [float(np.sin(angle)) for angle in angles]
    assert np.cos(angles).tolist() == [float(np.cos(angle)) for angle in angles]


@pytest.mark.parametrize("kind", [CartPoleArrayEnv, PendulumArrayEnv])
def test_refuses_a_limit_below_one_step(kind: type[CartPoleArrayEnv]) -> None:
    with pytest.raises(ValueError, match="max_episode_steps=0 must be at least 1"):
        kind(max_episode_steps=0)
