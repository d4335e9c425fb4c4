from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.wrappers import ObservationStackWrapper
from maze_pl.envs.wrappers.observation_stack_wrapper import StackConfig
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env


def scripted(*entries: dict[str, Any]) -> Any:
    """An environment that shows (t, 10 t), with stacks of it."""
    config = [{"observation": "observation", **entry} for entry in entries]
    return ObservationStackWrapper.wrap(GymMazeEnv(Scripted([1.0] * 9)), stack_config=config)


def test_the_newest_observation_is_last_and_the_first_one_fills_the_stack() -> None:
    env = scripted({"stack_steps": 3})
    for _ in range(2):  # the second episode starts anew
        shown = [env.reset(seed=0)[0]] + [env.step(NOTHING)[0] for _ in range(4)]
        assert [list(observation) for observation in shown] == [["observation"]] * 5
        times = [observation["observation"][:, 0].tolist() for observation in shown]
        assert times == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_what_was_shown_does_not_change_later() -> None:
    env = scripted({"stack_steps": 2})
    first = env.reset(seed=0)[0]["observation"]
    env.step(NOTHING)
    np.testing.assert_array_equal(first, np.zeros((2, 2)))


def test_tags_and_originals() -> None:
    env = scripted({"stack_steps": 2, "tag": "two", "keep_original": True}, {"stack_steps": 4, "tag": "four"})
    shapes = {name: space.shape for name, space in env.observation_space.items()}
    assert shapes == {"observation-two": (2, 2), "observation-four": (4, 2)}
    env = scripted({"stack_steps": 2, "tag": "two", "keep_original": True})
    observation, _ = env.reset(seed=0)
    assert {name: value.shape for name, value in observation.items()} == {
        "observation": (2,),
        "observation-two": (2, 2),
    }


def test_deltas_are_how_far_the_newest_is_from_earlier_ones() -> None:
    env = scripted({"stack_steps": 3, "delta": True})
    assert not env.reset(seed=0)[0]["observation"].any()
    shown = [env.step(NOTHING)[0]["observation"] for _ in range(3)]
    np.testing.assert_array_equal(shown[-1], [[2, 20], [1, 10], [3, 30]])


def test_deltas_of_unsigned_numbers_do_not_wrap_around() -> None:
    class Falling(Scripted):
        def __init__(self) -> None:
            super().__init__([1.0] * 5)
            self.observation_space = spaces.Box(0, 255, (1,), np.uint8)

        def _observe(self) -> Any:
            return np.array([200 - 100 * self.time], np.uint8)

    config = [{"observation": "observation", "stack_steps": 2, "delta": True}]
    env = ObservationStackWrapper.wrap(GymMazeEnv(Falling()), stack_config=config)
    env.reset(seed=0)
    observation = env.step(NOTHING)[0]
    np.testing.assert_array_equal(observation["observation"], [[-100], [100]])
    assert env.observation_space.contains(observation)
    space: Any = env.observation_space["observation"]
    assert (space.low.ravel().tolist(), space.high.ravel().tolist()) == ([-255, 0], [255, 255])


def test_deltas_of_unbounded_numbers_are_unbounded() -> None:
    for bound in (np.finfo(np.float32).max, np.inf):
        stack = StackConfig("observation", stack_steps=2, delta=True).space(spaces.Box(-bound, bound, (1,)))
        assert (stack.low.ravel().tolist(), stack.high.ravel().tolist()) == ([-np.inf, -bound], [np.inf, bound])


def test_each_actor_has_a_stack_of_its_own() -> None:
    env = ObservationStackWrapper.wrap(
        make_heap_env(),
        stack_config=[{"observation": "heap", "stack_steps": 2, "tag": "before", "keep_original": True}],
    )
    start = env.reset(seed=0)[0]["heap"][0]
    seen: dict[Any, list[float]] = {}
    for _ in range(3):
        for amount in (0, 1, 1, 1)[: 4 if env.get_env_time() < 2 else 3]:
            observation = env.step({"amount": amount})[0]
            now, actor = observation["heap"][0] - start, env.actor_id()
            earlier, newest = (observation["heap-before"][:, 0] - start).tolist()
            assert newest == now
            assert earlier == seen.get(actor, now if actor != ("plan", 0) else 0)
            seen[actor] = now
    assert len(seen) == 4


def test_only_sub_steps_that_have_an_observation_get_its_stack() -> None:
    config = [{"observation": "amount_mask", "stack_steps": 2, "tag": "old", "keep_original": True}]
    env = ObservationStackWrapper.wrap(make_heap_env(), stack_config=config)
    assert [sorted(space) for space in env.observation_spaces_dict.values()] == [
        ["heap"],
        ["amount_mask", "amount_mask-old", "heap", "target"],
    ]


def test_conversions_have_stacks_apart_from_those_of_the_running_episode() -> None:
    env = scripted({"stack_steps": 2})
    env.reset(seed=0)
    env.step(NOTHING)
    converted = [
        env.get_observation_and_action_dicts(np.array([time, 0.0]), None, time == 7)[0][0]["observation"][:, 0].tolist()
        for time in (7, 8, 7)
    ]
    assert converted == [[7, 7], [7, 8], [7, 7]]
    assert env.step(NOTHING)[0]["observation"][:, 0].tolist() == [1, 2]


@pytest.mark.parametrize("tag", ["old", None])
def test_a_mask_is_not_replaced(tag: str | None) -> None:
    config = [{"observation": "amount_mask", "stack_steps": 2, "tag": tag}]
    with pytest.raises(ValueError, match=r"stack_config replaces \['amount_mask'\], which serve as action masks; set"):
        ObservationStackWrapper.wrap(make_heap_env(), stack_config=config)


def test_a_mask_stays_beside_its_stack() -> None:
    config = [{"observation": "amount_mask", "stack_steps": 2, "tag": "old", "keep_original": True}]
    spec = Spec.of(ObservationStackWrapper.wrap(make_heap_env(), stack_config=config))
    assert spec.steps["work"].masks == {"amount": "amount_mask"}


@pytest.mark.parametrize(
    ("entries", "error", "message"),
    [
        ([{"observation": "speed", "stack_steps": 2}], ValueError, r"\['speed'\].*not among .*'amount_mask'"),
        ([{"observation": "heap", "stack_steps": 0}], ValueError, "'heap'.*0 times"),
        ([{"observation": "target", "stack_steps": 2}], ValueError, r"'target', Discrete\(4\).*a Box"),
        ([{"observation": "heap"}], TypeError, "StackConfig.*'stack_steps'"),
        ([{"observation": "heap", "stack_step": 2}], TypeError, "StackConfig.*'stack_step'"),
        ([{"observation": "heap", "stack_steps": 2, "keep_original": True}], ValueError, "two observations 'heap'"),
        ([{"observation": "heap", "stack_steps": 2, "tag": "x"}] * 2, ValueError, "two observations 'heap-x'"),
    ],
)
def test_invalid_entries_are_refused(entries: Any, error: type[Exception], message: str) -> None:
    env: MazeEnv = make_heap_env()
    with pytest.raises(error, match=message):
        ObservationStackWrapper.wrap(env, stack_config=entries)
