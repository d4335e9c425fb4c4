"""Arrays that steps make in other objects: warned of in checkpoints, refused in copies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs import ArrayStep, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.contract import EnvContractError
from tests.envs.arrays.adding import rewards_of, vector_of


class Scratch(CartPoleArrayEnv):
    """Each step lets a helper compute something.

    Args:
        compute: Computes it from the positions.
    """

    def __init__(self, compute: Any) -> None:
        super().__init__()
        self.helper = SimpleNamespace(compute=compute)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.helper.scratch = self.helper.compute(self.position)
        return super().step(actions, which)


def _in_array(position: np.ndarray) -> Any:
    return position * 2


def _in_tensor(position: np.ndarray) -> Any:
    return torch.as_tensor(position) * 2


def _in_generator(position: np.ndarray) -> Any:
    return np.random.default_rng(int(abs(position[0]) * 1e6))


@pytest.mark.parametrize("compute", [_in_array, _in_tensor])
def test_arrays_that_steps_make_in_objects_are_warned_of_once(compute: Any, caplog: pytest.LogCaptureFixture) -> None:
    vector = vector_of(Scratch(compute), 3)
    for _ in range(2):
        vector.state_dict()
        vector.step()
    (record,) = caplog.records
    came = "Scratch changes 'helper.scratch', which checkpoints and copies do not hold: if later steps read it, make it"
    assert record.getMessage().startswith(came)
    env, target = ArrayMazeEnv(Scratch(compute)), ArrayMazeEnv(Scratch(compute))
    for one in (env, target):
        one.reset(seed=1)
    rewards_of(env, 1)
    target.clone_from(env)  # which sees the array for the first time
    rewards_of(env, 3)
    with pytest.raises(EnvContractError, match=r"Scratch changes 'helper\.scratch', which checkpoints and copies do n"):
        target.clone_from(env)


def test_generators_that_steps_make_in_objects_are_refused() -> None:
    with pytest.raises(EnvContractError, match=r"'helper\.scratch'.*: use RandomStreams as an attribute"):
        vector_of(Scratch(_in_generator), 3).state_dict()
