"""Checks of observations whose type is not that of their space."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.arrays.array_checks import ArrayChecks
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import RewardScalingWrapper

N = 4


class Levels(ArrayEnv):
    """Returns given numbers in its second step, and zeros in others.

    Args:
        space: Space of the numbers.
        levels: [N, ...] the numbers.
    """

    def __init__(self, space: spaces.Space[Any], levels: np.ndarray) -> None:
        super().__init__()
        self.space = space
        self.levels = levels
        self.n_acts = 0

    @property
    def observation_spaces_dict(self) -> dict[int, spaces.Dict]:
        return {0: spaces.Dict({"level": self.space})}

    @property
    def action_spaces_dict(self) -> dict[int, spaces.Dict]:
        return {0: spaces.Dict({"wait": spaces.Discrete(2)})}

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        return ArrayStep({0: {"level": np.zeros_like(self.levels[: self.n_envs])}})

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.n_acts += 1
        shown = self.levels if self.n_acts == 2 else np.zeros_like(self.levels)
        return ArrayStep({0: {"level": shown[: self.n_envs]}}, np.zeros(self.n_envs))


def _box(dtype: Any) -> spaces.Box:
    limits: Any = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.finfo(dtype)
    return spaces.Box(limits.min, limits.max, (2,), dtype)


def _numbers(dtype: Any, last: Any) -> np.ndarray:
    """Array [N, 2] with a number in its last place but two, which belongs to environment 2."""
    numbers = np.ones((N, 2), dtype)
    numbers[2, 1] = last
    return numbers


@pytest.mark.parametrize("wrappers", [[], [partial(RewardScalingWrapper, scale=0.5)]])
@pytest.mark.parametrize(
    ("space", "levels", "message"),
    [
        (_box(np.int8), _numbers(np.int64, 300), "has the value 300, which its type int8 cannot hold"),
        (_box(np.int8), _numbers(np.int64, -129), "has the value -129, which its type int8 cannot hold"),
        (_box(np.uint8), _numbers(np.uint16, 256), "has the value 256, which its type uint8 cannot hold"),
        (_box(np.int8), _numbers(np.uint8, 200), "has the value 200, which its type int8 .* space of type uint8"),
        (_box(np.int64), _numbers(np.uint64, 2**63 + 1), "has the value 9223372036854775809, which its type int64"),
        (spaces.MultiBinary(2), _numbers(np.int64, 256), "has the value 256, which its type int8"),
    ],
)
def test_integers_that_the_type_of_the_space_cannot_hold_are_refused(
    space: Any, levels: np.ndarray, message: str, wrappers: Any
) -> None:
    make_env: Callable[[], ArrayEnv] = partial(make_wrapped_arrays, partial(Levels, space, levels), wrappers)
    vector = ArrayVectorEnv(make_env, N, first_env_index=10)
    vector.reset()
    vector.step()
    with pytest.raises(EnvContractError, match=f"'level' of sub-step 0 of environment 12 of Levels {message}"):
        vector.step()


def test_integers_are_refused_in_single_episodes_too() -> None:
    env = ArrayMazeEnv(Levels(_box(np.uint8), np.full((1, 2), 256, np.uint32)))
    env.reset(seed=1)
    env.step({"wait": 0})
    with pytest.raises(EnvContractError, match="has the value 256, which its type uint8 cannot hold"):
        env.step({"wait": 0})


@pytest.mark.parametrize(
    ("space", "levels"),
    [
        (_box(np.int8), _numbers(np.int64, -128)),
        (_box(np.uint8), _numbers(np.uint64, 255)),
        (_box(np.int64), _numbers(np.int8, -128)),
        (_box(np.int64), _numbers(np.uint64, 2**63 - 1)),
        (_box(np.float32), _numbers(np.float64, 0.1)),
        (_box(np.float32), _numbers(np.int64, 2**24 + 1)),
    ],
)
def test_numbers_that_fit_are_converted(space: Any, levels: np.ndarray) -> None:
    vector = ArrayVectorEnv(partial(Levels, space, levels), N)
    vector.reset()
    vector.step()
    vector.step()
    assert np.array_equal(vector.staging.observation[0]["level"], levels.astype(space.dtype))


def test_only_observations_that_are_read_are_checked() -> None:
    vector = ArrayVectorEnv(partial(Levels, _box(np.int8), _numbers(np.int64, 300)), N)
    vector.reset()
    vector.step()
    vector.step([0, 1, 3])
    assert (vector.staging.observation[0]["level"] == [[1, 1], [1, 1], [0, 0], [1, 1]]).all()
    checks = ArrayChecks(vector.spec, N, 0, "Levels", False)
    result = ArrayStep({0: {"level": _numbers(np.int64, 300)}})
    checks.observation_of(result, 0, np.array([0, 3]))
    with pytest.raises(EnvContractError, match="environment 2 of Levels has the value 300"):
        checks.observation_of(result, 0, np.array([2, 3]))
