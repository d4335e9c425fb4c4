"""Observations of the structured form, from those of the flat one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.vehicle_routing.instance import Array

_DISTANCE = 0
"""Feature of an option by which the nearest customer of a vehicle is found."""


def sub_step_spaces(
    flat: spaces.Dict, n_vehicles: int
) -> tuple[dict[StepKey, spaces.Dict], dict[StepKey, spaces.Dict]]:
    """Return the observation and the action space of each sub-step.

    Args:
        flat: Observation space of the flat form.
        n_vehicles: Number of vehicles, V.
    """
    options: spaces.Box = flat["options"]  # type: ignore[assignment]
    n_nodes = options.shape[0] // n_vehicles
    low, high = options.low[:1], options.high[:1]
    observations: dict[StepKey, spaces.Dict] = {
        0: spaces.Dict(
            vehicles=spaces.Box(low.repeat(n_vehicles, axis=0), high.repeat(n_vehicles, axis=0)),
            vehicle_mask=spaces.Box(0, 1, (n_vehicles,)),
            summary=flat["summary"],
        ),
        1: spaces.Dict(
            nodes=spaces.Box(low.repeat(n_nodes, axis=0), high.repeat(n_nodes, axis=0)),
            node_mask=spaces.Box(0, 1, (n_nodes,)),
            exists=spaces.Box(0, 1, (n_nodes,)),
            summary=flat["summary"],
        ),
    }
    actions: dict[StepKey, spaces.Dict] = {
        0: spaces.Dict(vehicle=spaces.Discrete(n_vehicles)),
        1: spaces.Dict(node=spaces.Discrete(n_nodes)),
    }
    return observations, actions


def vehicles_observation(flat: Mapping[str, Array], n_vehicles: int) -> dict[str, Array]:
    """Observations of sub-step 0: each vehicle with the option of its nearest customer.

    Args:
        flat: Name -> [n, ...] observations of the flat form.
        n_vehicles: Number of vehicles, V.

    Returns:
        `vehicles` [n, V, 18], zeros without choices, `vehicle_mask` [n, V] and `summary` [n, 8].
    """
    n = len(flat["summary"])
    options = flat["options"].reshape(n, n_vehicles, -1, flat["options"].shape[-1])
    allowed = flat["option_mask"].reshape(n, n_vehicles, -1) > 0
    is_customer = allowed & (np.arange(allowed.shape[2]) > 0)
    nearest = np.where(is_customer, options[..., _DISTANCE], np.inf).argmin(axis=2)
    rows = np.arange(n)[:, np.newaxis]
    has_choice: Array = np.asarray(allowed.any(axis=2))
    vehicles = options[rows, np.arange(n_vehicles), nearest] * has_choice[..., np.newaxis]
    return {
        "vehicles": vehicles,
        "vehicle_mask": has_choice.astype(np.float32),
        "summary": flat["summary"].copy(),
    }


def nodes_observation(flat: Mapping[str, Array], n_vehicles: int, vehicle: Array) -> dict[str, Array]:
    """Observations of sub-step 1: the options of the chosen vehicles.

    Args:
        flat: Name -> [n, ...] observations of the flat form.
        n_vehicles: Number of vehicles, V.
        vehicle: [n] the chosen vehicles; one that does not exist has no options.

    Returns:
        `nodes` [n, C + 1, 18], `node_mask` [n, C + 1], `exists` [n, C + 1] and `summary` [n, 8].
    """
    n = len(flat["summary"])
    is_vehicle = (vehicle >= 0) & (vehicle < n_vehicles)
    rows = np.arange(n)
    index = np.where(is_vehicle, vehicle, 0)
    observation: dict[str, Array] = {}
    for name, flat_name in {"nodes": "options", "node_mask": "option_mask", "exists": "exists"}.items():
        array = flat[flat_name]
        by_vehicle = array.reshape(n, n_vehicles, -1, *array.shape[2:])[rows, index]
        observation[name] = by_vehicle * is_vehicle.reshape(n, *[1] * (by_vehicle.ndim - 1)).astype(np.float32)
    observation["summary"] = flat["summary"].copy()
    return observation
