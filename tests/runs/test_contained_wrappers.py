"""Environments without the wrappers that a bundle contains: how they are built, and which are refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped, wrapper_stack
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers import (
    EventLogsWrapper,
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    RandomResetWrapper,
    SpacesRecordingWrapper,
    TimeLimitWrapper,
)
from maze_pl.runs.contained_wrappers import MakeWithout
from maze_pl.runs.rollout import rollout
from tests.bundle.written_policies import DISCRETE, NORMALIZED, PENDULUM, STACKED, Written

CONTAINED = [DISCRETE, NORMALIZED, STACKED]


def stacked(env: Any) -> Any:
    """A function, which does not tell what it makes."""
    return SpacesRecordingWrapper(STACKED(env))


class Custom(Wrapper):
    """A wrapper that no bundle contains, with everything inside of it."""


def kinds_of(env: Any) -> list[str]:
    return [type(wrapper).__name__ for wrapper in wrappers_of(env)]


def names_of(*wrappers: Any) -> list[str]:
    """Names of all wrappers of a list, as a bundle names those that it contains."""
    return [name for name in wrapper_stack(make_wrapped(PENDULUM, wrappers)) if not name.endswith("LogStatsWrapper")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("bundles") / "agent.bundle", PENDULUM, CONTAINED)


@pytest.mark.parametrize("around", ["list", "environment", "statistics"])
def test_wrappers_around_read_the_spaces_of_the_environment(written: Written, around: str) -> None:
    outer = [SpacesRecordingWrapper, partial(RandomResetWrapper, min_skip_steps=2, max_skip_steps=2)]
    wrappers: list[Any] = [*CONTAINED, *outer]

    def whole() -> Any:
        env = make_wrapped(PENDULUM, wrappers)
        return env if around == "statistics" else env.detach()

    make = (PENDULUM, wrappers) if around == "list" else (whole, [])
    env: Any = MakeWithout(*make, removed=names_of(*CONTAINED))()
    plain: Any = make_wrapped(PENDULUM, outer)
    assert kinds_of(env) == ["LogStatsWrapper", "RandomResetWrapper", "SpacesRecordingWrapper"]
    assert len(env.pubsub.readers) == 1
    for one in (env, plain):
        one.reset(seed=1)
        one.step({"action": np.array([0.5], np.float32)})
        one.close()
    (record,), (expected,) = env.trajectories, plain.trajectories
    assert record.action[0]["action"].dtype == np.float32
    np.testing.assert_equal(record.action, expected.action)
    np.testing.assert_equal(record.observation, expected.observation)


def test_a_rollout_with_a_recorder_around_a_bundle_is_that_of_its_policy(written: Written) -> None:
    recorders: list[Any] = []

    def recorded(env: Any) -> Any:
        recorders.append(SpacesRecordingWrapper(env, n_episodes=3))
        return recorders[-1]

    options: Any = {"deterministic": True, "max_steps": 20, "n_envs": 1}
    trained = rollout(PENDULUM, written.policy, 2, wrappers=CONTAINED, wrapper_statistics=written.statistics, **options)
    played = rollout(PENDULUM, written.path, 2, wrappers=[*CONTAINED, recorded], **options)
    np.testing.assert_allclose(
        [one.summary.reward for one in played], [one.summary.reward for one in trained], rtol=1e-4
    )
    records = [record for recorder in recorders for record in recorder.trajectories]
    assert len(records) == 2
    for record, trajectory in zip(records, played, strict=True):
        assert trajectory.spaces is not None
        np.testing.assert_equal(record.action, trajectory.spaces.action)
        np.testing.assert_equal(record.observation, trajectory.spaces.observation)


def test_a_function_may_make_a_contained_wrapper_and_one_around_it() -> None:
    env: Any = MakeWithout(
        PENDULUM, [stacked, partial(TimeLimitWrapper, max_episode_steps=3)], removed=names_of(STACKED)
    )()
    assert kinds_of(env) == ["LogStatsWrapper", "TimeLimitWrapper", "SpacesRecordingWrapper"]
    env.reset(seed=0)
    env.step({"action": np.array([0.5], np.float32)})
    env.close()
    assert env.trajectories[0].observation[0]["observation"].shape == (1, 3)


def around_a_contained_one(env: Any) -> Any:
    """A function that makes two wrappers of a class, of which a bundle contains the outer one only."""
    return NORMALIZED(Custom(NORMALIZED(env)))


def test_a_function_may_make_two_wrappers_of_a_contained_class() -> None:
    inner, outer = sorted(name for name in names_of(around_a_contained_one) if "Normalization" in name)
    built = MakeWithout(PENDULUM, [around_a_contained_one], removed=[outer]).build()
    assert kinds_of(built.env) == ["LogStatsWrapper", "Custom", "ObservationNormalizationWrapper"]
    assert list(built.statistics_of({inner: {}, outer: {}})) == [inner.partition(" (")[0]]


def test_a_function_that_makes_other_wrappers_without_the_contained_ones_is_refused() -> None:
    def conditional(env: Any) -> Any:
        env = NORMALIZED(env)
        return Custom(env) if any(type(layer) is DISCRETE.func for layer in wrappers_of(env)) else env

    make = MakeWithout(
        PENDULUM, [DISCRETE, SpacesRecordingWrapper, conditional], removed=names_of(DISCRETE, NORMALIZED)
    )
    message = r"made \[.*\.Custom', '.*Normal.*'\], and \['.*Normal.*'\] without those that the bundle"
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (Custom, None),
        (None, Custom),
        (Custom, type("Custom", (Wrapper,), {"__module__": "elsewhere"})),
    ],
)
def test_a_function_that_makes_other_wrappers_than_around_contained_ones_is_refused(kind: Any, other: Any) -> None:
    def conditional(env: Any) -> Any:
        is_normalized = any(type(layer) is ObservationNormalizationWrapper for layer in wrappers_of(env))
        made = kind if is_normalized else other
        return env if made is None else made(env)

    make = MakeWithout(PENDULUM, [NORMALIZED, conditional], removed=names_of(NORMALIZED))
    with pytest.raises(ConfigurationError, match=r"make each wrapper by a separate function, whatever is inside of it"):
        make()


class Reading(Wrapper):
    """Keeps the shape of the observation around which it was made."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.shape = env.observation_space["observation"].shape


class Holder(Wrapper):
    """A class whose instances have a contained wrapper inside."""

    def __init__(self, env: Any) -> None:
        super().__init__(STACKED(env))

    @classmethod
    def around(cls, env: Any) -> Any:
        """Return an environment that is not an instance of this class."""
        return STACKED(env)


@pytest.mark.parametrize("stacking", [STACKED, stacked, Holder, Holder.wrap, Holder.around])
def test_wrappers_are_made_again_around_whatever_makes_a_contained_one(stacking: Any) -> None:
    (name,) = names_of(STACKED)
    limit = partial(TimeLimitWrapper, max_episode_steps=3)
    env: Any = MakeWithout(PENDULUM, [limit, stacking, Reading], removed=[name])()
    assert type(env.env) is Reading
    assert env.shape == (3,)
    assert name not in wrapper_stack(env)


def test_wrappers_inside_of_all_contained_ones_are_made_once() -> None:
    made: list[str] = []

    class Opening(Wrapper):
        """Holds something that exists once, such as a port."""

        def __init__(self, env: Any, name: str) -> None:
            super().__init__(env)
            made.append(name)

    def opening(env: Any) -> Any:
        return Opening(env, name="inside")

    around = partial(Opening, name="around")
    wrappers = [opening, EventLogsWrapper, *CONTAINED, around, EventLogsWrapper]
    env: Any = MakeWithout(PENDULUM, wrappers, removed=names_of(*CONTAINED))()
    assert made == ["inside", "around", "around"]
    assert len(env.pubsub.readers) == 1
    assert len(env.pubsub.subscribers) == 2, "that of each log"
    made.clear()
    env = MakeWithout(PENDULUM, [partial(Opening, name="alone")], removed=names_of(*CONTAINED))()
    assert made == ["alone"] and kinds_of(env) == ["LogStatsWrapper", "Opening"]


def test_the_stack_of_a_caller_is_not_changed(written: Written) -> None:
    mine: Any = make_wrapped(PENDULUM, [*CONTAINED, SpacesRecordingWrapper]).env
    before = list(wrappers_of(mine))
    played = rollout(mine, written.path, 2, deterministic=True, max_steps=20)
    alone = rollout(PENDULUM(), written.path, 2, deterministic=True, max_steps=20)
    assert [one.summary.reward for one in played] == [one.summary.reward for one in alone]
    assert all(one is other for one, other in zip(wrappers_of(mine), before, strict=True))
    (record,) = mine.trajectories
    assert played[1].spaces is not None
    np.testing.assert_equal(record.action, played[1].spaces.action)


@pytest.mark.parametrize(
    ("contained", "wrappers"),
    [
        ([NORMALIZED], [NORMALIZED, NORMALIZED]),
        ([NORMALIZED, NORMALIZED], [NORMALIZED]),
    ],
)
def test_another_number_of_the_same_wrappers_is_refused(contained: list[Any], wrappers: list[Any]) -> None:
    make = MakeWithout(PENDULUM, wrappers, removed=names_of(*contained))
    with pytest.raises(
        ConfigurationError, match=r"the bundle contains .* but the environment has .* of the same class"
    ):
        make()


def test_some_of_the_wrappers_are_refused_and_none_of_them_are_not() -> None:
    removed = names_of(DISCRETE, NORMALIZED)
    with pytest.raises(ConfigurationError, match=r"of which the environment lacks \['maze_pl.*Discretize.*: add them"):
        MakeWithout(PENDULUM, [NORMALIZED], removed=removed)()
    env = MakeWithout(PENDULUM, [partial(TimeLimitWrapper, max_episode_steps=3)], removed=removed)()
    assert kinds_of(env) == ["LogStatsWrapper", "TimeLimitWrapper"]


def test_statistics_keep_their_wrappers_although_names_change() -> None:
    wrappers = [NORMALIZED, NORMALIZED]
    inner, outer = sorted(names_of(*wrappers))
    made = MakeWithout(PENDULUM, wrappers, removed=[outer]).build()
    (name,) = [name for name in wrapper_stack(made.env) if "Normalization" in name]
    assert name != inner
    assert made.statistics_of({inner: {"a": 1}, outer: {"a": 2}, "unknown": {}}) == {name: {"a": 1}, "unknown": {}}


def test_no_reader_and_no_subscriber_is_left_of_the_complete_stack(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    wrappers = [*CONTAINED, EventLogsWrapper, LogStatsWrapper]
    env: Any = MakeWithout(PENDULUM, wrappers, removed=names_of(*CONTAINED))()
    assert len(env.pubsub.readers) == len(env.pubsub.subscribers) == 1
    assert Spec.of(env).steps[0].observation_space == Spec.of(PENDULUM()).steps[0].observation_space


def test_an_environment_is_closed_if_it_is_refused_unless_the_caller_gave_it(written: Written) -> None:
    closed: list[bool] = []

    class Holding(GymMazeEnv):
        """Holds something that exists once, such as a port."""

        def close(self) -> None:
            closed.append(True)
            super().close()

    def refuse(env: Any) -> Any:
        raise RuntimeError("the wrapper cannot be made")

    make = partial(Holding, "Pendulum-v1")
    for n, policy in enumerate((written.path, "random"), 1):
        with pytest.raises(RuntimeError, match=r"the wrapper cannot be made"):
            rollout(make, policy, wrappers=[refuse])
        assert len(closed) == n
    with pytest.raises(ConfigurationError, match=r"of which the environment lacks"):
        rollout(make, written.path, wrappers=[NORMALIZED])
    assert len(closed) == 3
    given = make()
    with pytest.raises(ConfigurationError, match=r"of which the environment lacks"):
        rollout(given, written.path, wrappers=[NORMALIZED])
    assert len(closed) == 3
    rollout(given, written.path, wrappers=CONTAINED, max_steps=3)
    assert len(closed) == 4


def test_an_environment_that_cannot_be_adapted_is_closed_unless_it_is_none() -> None:
    closed: list[bool] = []

    class Hidden(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Hides what is inside of it."""

        def close(self) -> None:
            closed.append(True)
            super().close()

    with pytest.raises(TypeError, match=r"hides its sub-steps, masks and events"):
        MakeWithout(lambda: Hidden(PENDULUM()))()
    assert closed == [True]
    with pytest.raises(TypeError, match=r"which is not a gymnasium environment") as found:
        MakeWithout(lambda: 3)()
    assert not hasattr(found.value, "__notes__")


def test_rollouts_keep_no_events_for_statistics_that_are_replaced() -> None:
    stacks: list[Any] = []

    def kept(env: Any) -> Any:
        stacks.append(env)
        return env

    logged = LogStatsWrapper(PENDULUM())
    for env in (PENDULUM, PENDULUM(), logged):
        stacks.clear()
        rollout(env, "random", max_steps=5, wrappers=[kept], n_envs=1)
        assert len(stacks[-1].pubsub.readers) == 1


def test_a_rollout_passes_on_what_the_bundle_clips(tmp_path: Path) -> None:
    clipped = partial(ObservationNormalizationWrapper, default_strategy_config={"clip_range": [-2.0, 2.0], "axis": 0})
    clips = Written(tmp_path / "agent.bundle", PENDULUM, [clipped])

    class Infinite(GymMazeEnv):
        """Shows an infinite velocity, or one that is not a number."""

        shown = np.inf

        def step(self, action: Any) -> Any:
            observation, *rest = super().step(action)
            changed = observation["observation"].copy()
            changed[2] = self.shown
            return {"observation": changed}, *rest

    class Undefined(Infinite):
        shown = np.nan

    options: Any = {"deterministic": True, "max_steps": 5, "n_envs": 1}
    (trained,) = rollout(
        partial(Infinite, "Pendulum-v1"),
        clips.policy,
        wrappers=[clipped],
        wrapper_statistics=clips.statistics,
        **options,
    )
    (played,) = rollout(partial(Infinite, "Pendulum-v1"), clips.path, **options)
    assert played.summary.reward == pytest.approx(trained.summary.reward, rel=1e-4)
    with pytest.raises(EnvContractError, match=r"observation 'observation' of environment 0 is not a number"):
        rollout(partial(Undefined, "Pendulum-v1"), clips.path, **options)
