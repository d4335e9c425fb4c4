"""Vector environments that take one seed are told apart from those that take a list of seeds."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from maze_pl.envs import ArrayVectorEnv, GymVectorArrayEnv
from maze_pl.envs.arrays.gym_vector_seeds import reset_with
from maze_pl.envs.contract import EnvContractError


class OneSeed(VectorEnv[Any, Any, Any]):
    """Environments whose generator is that of gymnasium."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    single_observation_space = spaces.Box(-1.0, 1.0, (1,))
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, fault: str = "") -> None:
        self.num_envs = num_envs
        self.fault = fault

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if self.fault:
            raise RuntimeError(self.fault)
        return self.np_random.uniform(size=(self.num_envs, 1)).astype(np.float32), {}


class NoSeed(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise TypeError("no seeds")


def test_the_option_that_asks_for_a_list_is_named() -> None:
    vector = ArrayVectorEnv(partial(GymVectorArrayEnv, OneSeed, seed_each=True), 2)
    message = r"^reset of OneSeed takes one seed, but no list of seeds \(.*\): leave seed_each=True out$"
    with pytest.raises(EnvContractError, match=message):
        vector.reset()
    ArrayVectorEnv(partial(GymVectorArrayEnv, OneSeed), 2).reset()


class WholeSeeds(OneSeed):
    """Takes a list of whole numbers as well."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        numbers = [int(one) for one in seed] if isinstance(seed, list) else [seed]
        return super().reset(seed=numbers[0], options=options)


def test_a_list_with_seeds_of_some_environments_is_not_a_list_of_seeds() -> None:
    mask = np.array([False, True])
    with pytest.raises(TypeError, match="NoneType"):
        reset_with(WholeSeeds(2), [None, 3], options={"reset_mask": mask})
    with pytest.raises(EnvContractError, match="reset of OneSeed takes one seed, but no list of seeds"):
        reset_with(OneSeed(2), [None, 3], options={"reset_mask": mask})


def test_other_faults_of_a_reset_keep_their_message() -> None:
    with pytest.raises(RuntimeError, match="no power"):
        ArrayVectorEnv(lambda: GymVectorArrayEnv(partial(OneSeed, fault="no power")), 2).reset()
    with pytest.raises(TypeError, match="no seeds"):
        ArrayVectorEnv(lambda: GymVectorArrayEnv(lambda n: SyncVectorEnv([NoSeed] * n)), 2).reset()
