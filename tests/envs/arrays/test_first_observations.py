"""The first observations of array environments are checked in full, as those of single episodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.envs import ArrayStep, ArrayVectorEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import RewardScalingWrapper
from tests.envs.arrays.yard import YardArrayEnv

N = 3


class Late(YardArrayEnv):
    """Changes the observations of a sub-step from one of its results on.

    Args:
        key: The sub-step.
        first: Number of its earlier results that are sound.
        observation: Name -> value, of all environments.
    """

    def __init__(self, key: str, first: int, **observation: float) -> None:
        super().__init__()
        self.key, self.first, self.changes = key, first, observation

    def _result(self) -> ArrayStep:
        result = super()._result()
        if self.turn[0] == 0 if self.key == "plan" else self.turn[0] > 0:
            self.first -= 1
            if self.first < 0:
                for name, value in self.changes.items():
                    shape = (self.n_envs, 2) if name == "load" else (self.n_envs,)
                    result.observation[self.key][name] = np.full(shape, value, np.float32)  # type: ignore[index]
        return result


def _play(check: Any, wrappers: Any, **options: Any) -> None:
    make = partial(make_wrapped_arrays, partial(Late, **options), wrappers)
    vector = ArrayVectorEnv(make, N, check=check, first_env_index=4)
    vector.reset()
    for _ in range(12):
        for action in vector.staging.action["work"].values():
            action[:] = 0
        vector.step()


OUTSIDE = "observation 'load' of sub-step '{}' of environment 4 of Late is .2000.0, 2000.0., which is not in Box"
MORE = "observations of sub-step '{}' of Late are .*'speed'.*; expected only "
SCALE = partial(RewardScalingWrapper, scale=0.5)


@pytest.mark.parametrize("wrappers", [[], [SCALE], [SCALE, SCALE]])
@pytest.mark.parametrize("key", ["plan", "work"])
@pytest.mark.parametrize(("observation", "message"), [({"load": 2000.0}, OUTSIDE), ({"speed": 1.0}, MORE)])
def test_the_first_two_observations_of_a_sub_step_are_checked(
    key: str, observation: dict[str, float], message: str, wrappers: Any
) -> None:
    for first in (0, 1):
        with pytest.raises(EnvContractError, match=message.format(key)):
            _play("fast", wrappers, key=key, first=first, **observation)
    _play("fast", wrappers, key=key, first=2, **observation)


def test_every_observation_is_checked_in_full() -> None:
    for observation, message in (({"load": 2000.0}, OUTSIDE), ({"speed": 1.0}, MORE)):
        with pytest.raises(EnvContractError, match=message.format("plan")):
            _play("full", [], key="plan", first=3, **observation)


def test_nan_is_left_to_whoever_uses_the_numbers() -> None:
    _play("fast", [], key="plan", first=0, load=np.nan)
