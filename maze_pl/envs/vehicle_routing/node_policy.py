"""Base of policies that choose a vehicle and a node from the state of the simulation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.rule_heads import RuleHeads
from maze_pl.envs.vehicle_routing.objects import RoutingMazeState

if TYPE_CHECKING:
    import torch


class NodePolicy(MazeStatePolicy):
    """Chooses a vehicle and where it goes, in the flat and in the structured form.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict]) -> None:
        self._heads = RuleHeads(action_spaces_dict)

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Choose the heads that the sub-step asks for.

        Raises:
            ValueError: The batch has no states of the simulation, or the heads are not those of a move.
        """
        states = self.states_of(batch)
        heads = self._heads.of(self, batch.step_key, lambda _: _known_heads(states[0]))
        choices = np.array([self.choose(state) for state in states])
        n_nodes = len(states[0].unserved)
        chosen = {
            "option": choices[:, 0] * n_nodes + choices[:, 1],
            "vehicle": choices[:, 0],
            "node": choices[:, 1],
        }
        return PolicyStep({head: chosen[head] for head in heads.spaces})

    @abstractmethod
    def choose(self, state: RoutingMazeState) -> tuple[int, int]:
        """Return a vehicle and the node where it goes.

        Args:
            state: A state in which something may be chosen.
        """


def _known_heads(state: RoutingMazeState) -> dict[str, spaces.Space[Any]]:
    """Return the heads of both forms."""
    n_vehicles, n_nodes = state.allowed.shape
    return {
        "option": spaces.Discrete(n_vehicles * n_nodes),
        "vehicle": spaces.Discrete(n_vehicles),
        "node": spaces.Discrete(n_nodes),
    }


def nearest_move(state: RoutingMazeState) -> tuple[int, int]:
    """Return the allowed move of a vehicle to the nearest customer.

    Vehicles under way come first, if any of them may move; ties go to the lowest number of the
    vehicle, then of the customer.

    Args:
        state: A state in which something may be chosen.
    """
    distances = state.arrays.distances[0, state.position]
    allowed = state.allowed.copy()
    allowed[:, 0] = False
    is_away = (state.position > 0) & allowed.any(axis=1)
    if is_away.any():
        allowed[~is_away] = False
    vehicle, node = divmod(int(np.where(allowed, distances, np.inf).argmin()), allowed.shape[1])
    return vehicle, node
