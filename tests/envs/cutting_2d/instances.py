"""The instances that the environment is measured on, and policies that play them without networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from maze_pl.core.policy import Policy, PolicyBatch
from maze_pl.envs import StructuredEnv
from maze_pl.envs.cutting_2d import (
    Cutting2DMazeAction,
    Cutting2DMazeState,
    UniformDemand,
    masked_struct_env_factory,
    maze_env_factory,
    struct_env_factory,
)

CYCLE = [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)]
DOCUMENTED: dict[str, Any] = {"max_pieces_in_inventory": 50, "raw_piece_size": (4, 3), "static_demand": CYCLE}
CONSTANT: dict[str, Any] = {**DOCUMENTED, "static_demand": (1, 2)}
MIXED: dict[str, Any] = {
    "max_pieces_in_inventory": 100,
    "raw_piece_size": (10, 8),
    "static_demand": UniformDemand(max_size=(6, 5)),
}
FACTORIES: dict[str, Callable[..., Any]] = {
    "flat": maze_env_factory,
    "struct": struct_env_factory,
    "masked": masked_struct_env_factory,
}


def valid_cuts(state: Cutting2DMazeState) -> list[Cutting2DMazeAction]:
    """Return all valid cuts of a state."""
    upright = state.current_demand
    return [
        Cutting2DMazeAction(index, rotate, reverse)
        for rotate, order in ((False, upright), (True, upright[::-1]))
        for index, piece in enumerate(state.inventory)
        if order[0] <= piece[0] and order[1] <= piece[1]
        for reverse in (False, True)
    ]


def choose(
    env: StructuredEnv, policy: Policy, observation: dict[str, Any], generator: torch.Generator | None = None
) -> dict[str, int]:
    """The action that a policy chooses for the actor that acts next."""
    batch = {name: array[np.newaxis] for name, array in observation.items()}
    states = [env.get_simulation_state()]
    step = policy.act(
        PolicyBatch(env.actor_id().step_key, batch, np.zeros(1, np.int64), maze_state=states), generator=generator
    )
    return {head: int(value[0]) for head, value in step.action.items()}


def acts(env: StructuredEnv, policy: Policy, n_steps: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Plays an episode, which ends by itself or after a number of environment steps.

    Yields:
        Step key, observation, action, and what `step` returned.
    """
    observation, _ = env.reset(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    terminated = False
    while env.get_env_time() < n_steps and not terminated:
        key, action = env.actor_id().step_key, choose(env, policy, observation, generator)
        result = env.step(action)
        yield key, observation, action, *result
        observation, _, terminated, _, _ = result


def episode_return(env: StructuredEnv, policy: Policy, n_steps: int, seed: int) -> float:
    """Sum of the rewards of an episode."""
    return sum(reward for _, _, _, _, reward, *_ in acts(env, policy, n_steps, seed))
