"""Observations and actions as numbers that networks learn from, whatever their spaces and units."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.spec import StepSpec
from maze_pl.estimation.recorded_acts import Situations
from maze_pl.estimation.recorded_units import Units
from maze_pl.estimation.weighted_episodes import Array

_SHARE_OF_DISTANCE = 0.1
"""Least unit of continuous actions, as a share of the distance between the policy's and the recorded ones."""


def observation_features(step: StepSpec, situations: Situations) -> Tensor:
    """[n, F] observations as numbers: discrete ones as one-hot vectors, others standardised, and agents."""
    parts = []
    for name, space in step.observation_space.spaces.items():
        values = _features(space, situations.observation[name], f"observation {name!r}")
        parts.append(Units.of(values).standardised(values))
    if step.n_agents > 1:
        agents = np.eye(step.n_agents, dtype=np.float32)[situations.agent_id]
        parts.append(Units.of(agents).standardised(agents))
    return torch.from_numpy(np.concatenate(parts, -1))


def action_features(step: StepSpec, action: Mapping[str, Any]) -> Array:
    """[n, A] actions as numbers: discrete ones as one-hot vectors."""
    parts = []
    for head, space in step.action_space.spaces.items():
        parts.append(_features(space, np.asarray(action[head]), f"action {head!r}"))
    joined: Array = np.concatenate(parts, -1)
    return joined


def standardised_boxes(step: StepSpec, taken: Array, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Continuous components of recorded acts [n_acts, A] and of the policy's [n, K, A] in a common unit.

    It is the spread of the recorded ones, or a tenth of the distance of the policy's from their mean
    where that is larger, as it is where all recorded ones are equal.
    """
    parts = [np.full(spaces.flatdim(space), isinstance(space, spaces.Box)) for space in step.action_space.values()]
    is_box = np.concatenate(parts)
    if not (is_box.any() and len(taken)):
        return torch.from_numpy(taken).float(), candidates.float()
    of_policy = candidates.numpy()
    units = Units.of(taken)
    distance = np.sqrt(np.mean((of_policy - units.centre) ** 2, axis=(0, 1)))
    spread = np.maximum(units.spread, _SHARE_OF_DISTANCE * distance)
    units = Units(np.where(is_box, units.centre, 0.0), np.where(is_box, spread, 1.0))
    return torch.from_numpy(units.standardised(taken)), torch.from_numpy(units.standardised(of_policy))


def _features(space: spaces.Space[Any], values: Array, name: str) -> Array:
    """[n, F] values of a space: float32, or float64 where float32 would round them."""
    n = len(values)
    if isinstance(space, spaces.Discrete):
        one_hot: Array = np.eye(int(space.n), dtype=np.float32)[values.astype(np.int64).reshape(n) - int(space.start)]
        return one_hot
    if isinstance(space, spaces.MultiDiscrete):
        choices = (values - space.start).reshape(n, -1).astype(np.int64)
        sizes = space.nvec.ravel()
        parts = [np.eye(int(size), dtype=np.float32)[choices[:, i]] for i, size in enumerate(sizes)]
        return np.concatenate(parts, -1)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return values.reshape(n, -1).astype(np.result_type(values, np.float32))
    raise ValueError(f"{name} is {space}, which has no form as numbers")
