"""Rules for dispatching as policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.rule_heads import RuleHeads
from maze_pl.envs.ride_hailing.objects import APPEARED, DISTANCE, N_MOVES, Array, RideHailingMazeState
from maze_pl.envs.ride_hailing.observation_conversion import Overview

if TYPE_CHECKING:
    import torch

Rule = Literal["nearest", "longest_waiting", "batch"]


class DispatchingRulePolicy(MazeStatePolicy):
    """Dispatches by a rule, and drives vehicles without passengers to where demand is expected.

        nearest:         the request whose origin is nearest to the vehicle
        longest_waiting: the request that has waited longest
        batch:           the assignment of requests to all vehicles that have to decide with the largest sum of
                         value (Hungarian method)

        value = fare - cost of driving - cost of overtime - value_of_time * minutes

    All rules leave requests with a value below 0 to others; minutes are those until the end of the
    trip. With `reposition`, a vehicle without a request looks for the zone z with the largest

        forecast(z) / (1 + vehicles(z)) - distance_weight * km to z

    where vehicles are the others that are free there within the time of the forecast, and drives
    towards it. `batch` is the bipartite matching of Alonso-Mora et al. 2017 (PNAS 114(3), pp.
    462-467) for one passenger at a time; repositioning differs from theirs.

    Args:
        action_spaces_dict: Action space of each sub-step.
        rule: Name of the rule.
        value_of_time: Value of a minute of a vehicle.
        reposition: Whether vehicles without a request drive to other zones.
        distance_weight: Expected requests per vehicle that a drive of 1 km must gain.
        overtime_cost: Cost of a minute of overtime in the value; 0 earns more in the default city.

    Raises:
        ValueError: There is no such rule.
    """

    def __init__(
        self,
        action_spaces_dict: Mapping[StepKey, spaces.Dict],
        rule: Rule = "batch",
        value_of_time: float = 0.0,
        reposition: bool = False,
        distance_weight: float = 0.15,
        overtime_cost: float = 0.0,
    ) -> None:
        if rule not in get_args(Rule):
            raise ValueError(f"{rule=} is unknown; known rules are {', '.join(get_args(Rule))}")
        self._heads = RuleHeads(action_spaces_dict)
        self.rule = rule
        self.value_of_time = value_of_time
        self.reposition = reposition
        self.distance_weight = distance_weight
        self.overtime_cost = overtime_cost

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Choose for the vehicle that decides next.

        Raises:
            ValueError: The batch has no states of the simulation, or the heads are not those of an option.
        """
        states = self.states_of(batch)
        heads = self._heads.of(self, batch.step_key, lambda given: _known_heads(states[0], given))
        choices = np.array([self.choose(state) for state in states])
        return PolicyStep({head: choices for head in heads.spaces})  # pairs of the first vehicle, too

    def choose(self, state: RideHailingMazeState) -> int:
        """Return the option of the vehicle that decides next.

        Args:
            state: A state in which a vehicle has to decide.
        """
        vehicle = state.undecided[0]
        requests = state.nearest(vehicle)
        values = self._values(state, vehicle)[requests]
        if self.rule == "batch" and (values >= 0).any():
            chosen = self._assigned(state)
            places = np.flatnonzero(requests == chosen)
            if len(places):
                return int(places[0])
        elif self.rule != "batch":
            good = np.flatnonzero(values >= 0)
            if len(good):
                oldest = state.waiting[requests[good], APPEARED].argmin()
                return int(good[oldest if self.rule == "longest_waiting" else 0])
        return self._without_request(state, vehicle)

    def _values(self, state: RideHailingMazeState, vehicle: int) -> Array:
        """Return the value of each waiting request [W] for a vehicle."""
        city = state.city
        trips = state.waiting[:, DISTANCE]
        km = state.pickup_distances(vehicle) + trips
        minutes = km / city.speed
        overtime = np.maximum(state.now + minutes - state.shift_end[vehicle], 0)
        costs = city.cost_per_km * km + self.value_of_time * minutes + self.overtime_cost * overtime
        return np.asarray(city.fares(trips) - costs)

    def _assigned(self, state: RideHailingMazeState) -> int:
        """Return the request that the best assignment gives to the next vehicle, -1 for none."""
        try:
            from scipy.optimize import linear_sum_assignment
        except ImportError as error:
            raise ImportError("the rule 'batch' needs SciPy: pip install 'maze-pl[problems]'") from error
        gains = np.zeros((len(state.undecided), len(state.waiting)))
        for row, vehicle in enumerate(state.undecided):
            requests = state.nearest(vehicle)
            gains[row, requests] = np.maximum(self._values(state, vehicle)[requests], 0)
        rows, columns = linear_sum_assignment(gains, maximize=True)
        for row, column in zip(rows, columns, strict=True):
            if row == 0 and gains[row, column] > 0:
                return int(column)
        return -1

    def _without_request(self, state: RideHailingMazeState, vehicle: int) -> int:
        """Return the option that stays, or that drives towards the best zone."""
        if not self.reposition:
            return state.n_nearest
        city = state.city
        position = state.positions[vehicle]
        overview = Overview.of(state)
        vehicles = overview.vehicles.copy()
        own = city.zone_of(position)
        distances = np.abs(city.centres - position).sum(axis=1)
        distances[own] = 0
        vehicles[own] -= int(overview.is_counted[vehicle])
        best = int((overview.forecast / (1 + vehicles) - self.distance_weight * distances).argmax())
        if best == own:
            return state.n_nearest
        gaps = city.centres[best] - city.centres[own]
        axis = int(np.abs(gaps).argmax())
        side = 2 * axis + int(gaps[axis] > 0)
        return state.n_nearest + 1 + side


def _known_heads(state: RideHailingMazeState, heads: spaces.Dict) -> dict[str, spaces.Space[Any]]:
    """Return the heads of both forms; a pair may be one of any number of vehicles."""
    n_options = state.n_nearest + N_MOVES
    pair = heads.spaces.get("pair")
    n_vehicles = int(pair.n) // n_options if isinstance(pair, spaces.Discrete) else 0
    return {"option": spaces.Discrete(n_options), "pair": spaces.Discrete(max(n_vehicles, 1) * n_options)}
