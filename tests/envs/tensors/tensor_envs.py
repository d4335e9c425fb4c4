"""Environments in tensors that several tests use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.tensors import CartPoleTensorEnv, TensorEnv

DEMAND = [(1, 2), (2, 2), (1, 1)]
ENVS: dict[str, Callable[[], TensorEnv]] = {
    "flat": partial(CartPoleTensorEnv, 30),
    "structured": partial(StructuredCutting2DTensorEnvironment, 8, (4, 3), DEMAND, max_episode_steps=12),
}
