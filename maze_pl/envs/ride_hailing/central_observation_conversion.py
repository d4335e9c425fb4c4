"""Observations of a central dispatcher."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.ride_hailing.objects import N_MOVES, RideHailingMazeState
from maze_pl.envs.ride_hailing.observation_conversion import (
    N_FEATURES,
    ObservationConversion,
    Overview,
    option_features,
)
from maze_pl.envs.structured_env import Observation

_N_EXTRA = 3
_N_OF_CITY = 4


class CentralObservationConversion(ObservationConversionInterface):
    """Observations of all vehicles that have to decide.

    The numbers of an option are those of `ObservationConversion`, and three of its vehicle: both
    coordinates, -1 to 1, and the remaining hours of the shift / 4. The summary has the numbers of
    `ObservationConversion` that do not depend on the vehicle: time of day, vehicles that have to
    decide, waiting requests, forecast of the city.

    Args:
        max_vehicles: Maximum number of vehicles that decide at a time, M; later ones wait.
        n_nearest: Number of requests that a vehicle may choose from, K.
        n_zones: Number of zones in the city, Z.
    """

    def __init__(self, max_vehicles: int, n_nearest: int, n_zones: int) -> None:
        self.max_vehicles = max_vehicles
        self.n_options = n_nearest + N_MOVES
        self._of_vehicle = ObservationConversion(n_nearest, n_zones)

    def space(self) -> spaces.Dict:
        """Return the space of all observations, float32.

        `options` [M (K + 5), 21], `option_mask` [M (K + 5)], 1 for options that exist, `summary`
        [4], and `zones` [3 Z] as in `ObservationConversion`.
        """
        n = self.max_vehicles * self.n_options
        of_vehicle = self._of_vehicle.space()
        low, high = of_vehicle["options"].low.min(), of_vehicle["options"].high.max()  # type: ignore[attr-defined]
        return spaces.Dict(
            options=spaces.Box(low, high, (n, N_FEATURES + _N_EXTRA)),
            option_mask=spaces.Box(0, 1, (n,)),
            summary=spaces.Box(low, high, (_N_OF_CITY,)),
            zones=of_vehicle["zones"],
        )

    def maze_to_space(self, maze_state: RideHailingMazeState) -> Observation:
        """Observation of a state; no options at the end of the day, when no vehicle decides."""
        city = maze_state.city
        options = np.zeros((self.max_vehicles, self.n_options, N_FEATURES + _N_EXTRA), np.float32)
        masks = np.zeros((self.max_vehicles, self.n_options), np.float32)
        overview = Overview.of(maze_state)
        for place, vehicle in enumerate(maze_state.undecided[: self.max_vehicles]):
            numbers, mask = option_features(maze_state, place, overview)
            options[place, :, :N_FEATURES] = numbers
            options[place, :, N_FEATURES : N_FEATURES + 2] = maze_state.positions[vehicle] * (2 / city.size) - 1
            options[place, :, N_FEATURES + 2] = (maze_state.shift_end[vehicle] - maze_state.now) / 240
            options[place] *= mask[:, np.newaxis]
            masks[place] = mask
        forecast = city.total_forecast[city.period_of(maze_state.now)]
        n_undecided = len(maze_state.undecided)
        summary = [maze_state.now / city.minutes, n_undecided / 5, len(maze_state.waiting) / 10, forecast / 20]
        return {
            "options": options.reshape(-1, N_FEATURES + _N_EXTRA),
            "option_mask": masks.ravel(),
            "summary": np.array(summary, np.float32),
            "zones": overview.zones(),
        }
