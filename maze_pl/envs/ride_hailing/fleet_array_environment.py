"""Base of both forms of ride hailing in arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from maze_pl.envs.arrays.array_form_env import ArrayFormEnv
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.ride_hailing.array_simulation import ArrayRideHailingSimulation, Drives
from maze_pl.envs.ride_hailing.core_environment import RideHailingCoreEnvironment
from maze_pl.envs.ride_hailing.events import RideEvents
from maze_pl.envs.ride_hailing.income_reward_aggregator import IncomeRewardAggregator
from maze_pl.envs.ride_hailing.kpi_calculator import KPI_NAMES, TOTALS, fleet_kpis, minutes_on_duty
from maze_pl.envs.ride_hailing.objects import Array, RideHailingMazeState
from maze_pl.envs.ride_hailing.renderer import RideHailingRenderer
from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator

_COLUMNS: Final = {name: column for column, name in enumerate(TOTALS)}


class FleetArrayEnvironment(ArrayFormEnv):
    """Days of fleets over arrays, which step together whoever decides.

    Args:
        single: The environment of single episodes, which declares spaces and options.
        reward_aggregator: Computes rewards; `IncomeRewardAggregator()` if None.

    Raises:
        TypeError: The aggregator has no array form.
    """

    def __init__(self, single: MazeEnv, reward_aggregator: VehicleRewardAggregator | None) -> None:
        super().__init__(single)
        core_env: RideHailingCoreEnvironment = single.core_env  # type: ignore[assignment]
        self._day = core_env.simulation
        self.reward_aggregator = with_array_form(reward_aggregator or IncomeRewardAggregator())
        self.reward_aggregator.use_city(self._day.city)
        self._topic: Any = self.create_event_topic(RideEvents)

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs."""
        return KPI_NAMES

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.simulation = ArrayRideHailingSimulation(self._day, n_envs)
        self._streams = self.simulation.streams
        self._totals = np.zeros((n_envs, len(TOTALS)))
        self._observation: dict[str, Array] = {}
        (space,) = self.observation_spaces_dict.values()
        for name, part in space.items():
            self._observation[name] = np.zeros((n_envs, *(part.shape or ())), np.float32)

    def _start(self, which: Array, seeds: Array) -> None:
        """Start days, and observe them."""
        self._totals[which] = 0
        self._lose(which, self.simulation.reset(which, seeds))
        self._observe(which)

    def _pass_time(self, which: Array) -> None:
        """Let time pass where no vehicle has to decide."""
        self._lose(which, self.simulation.advance(which))

    def _lose(self, which: Array, n_lost: Array) -> None:
        """Report passengers who have left."""
        self._totals[which, _COLUMNS["lost"]] += n_lost
        loses = n_lost > 0
        self._topic.requests_lost(which[loses], count=n_lost[loses])

    def _decide(self, which: Array, place: Array, option: Array) -> tuple[Drives, list[Array]]:
        """Let a vehicle of each environment decide, and fire its events.

        Args:
            which: [n] numbers of the environments.
            place: [n] place of each vehicle among those that have to decide.
            option: [n] its option.

        Returns:
            The results, and the rewards [n] of the events in the order in which they were fired, 0
            of those that were not.
        """
        drives = self.simulation.decide(which, place, option)
        aggregator = self.reward_aggregator
        pays = drives.accepts
        events: list[tuple[Any, Any, Array, dict[str, Array]]] = [
            (self._topic.invalid_choice, aggregator.invalid_reward, ~drives.is_valid, {"option": option}),
            (self._topic.driven_empty, aggregator.empty_reward, drives.empty != 0, {"distance": drives.empty}),
            (
                self._topic.request_accepted,
                aggregator.request_reward,
                pays,
                {"fare": drives.fare, "distance": drives.trip, "waiting_time": drives.waiting_time},
            ),
            (self._topic.overtime, aggregator.overtime_reward, drives.overtime != 0, {"minutes": drives.overtime}),
        ]
        rewards = []
        for fire, reward_of, happens, values in events:
            chosen = np.flatnonzero(happens)
            rewards.append(np.zeros(len(which)))
            if len(chosen):
                attributes = {name: value[chosen] for name, value in values.items()}
                fire(which[chosen], vehicle=drives.vehicle[chosen], **attributes)
                rewards[-1][chosen] = reward_of(**attributes)
        totals = np.zeros((len(which), len(TOTALS)))
        totals[:, _COLUMNS["accepted"]] = pays
        totals[:, _COLUMNS["waiting_time"]] = np.where(pays, drives.waiting_time, 0.0)
        totals[:, _COLUMNS["fares"]] = drives.fare
        totals[:, _COLUMNS["trip_km"]] = drives.trip
        totals[:, _COLUMNS["empty_km"]] = drives.empty
        totals[:, _COLUMNS["overtime"]] = drives.overtime
        self._totals[which] += totals
        return drives, rewards

    def _observe(self, which: Array) -> None:
        """Compute the observations of some environments."""
        if len(which) == 0:
            return
        computed = self._observations(which)
        if len(which) == self.n_envs:
            self._observation = computed
            return
        for name, array in computed.items():
            self._observation[name][which] = array

    @abstractmethod
    def _observations(self, which: Array) -> dict[str, Array]:
        """Compute observations [n, ...]."""

    def kpis(self, which: Array) -> Mapping[str, Array]:
        """Return the KPIs of days; see `RideHailingKpiCalculator`."""
        simulation = self.simulation
        now = simulation.now(which)[:, np.newaxis]
        on_duty = minutes_on_duty(simulation.shift_start[which], simulation.shift_end[which], now)
        totals = dict(zip(TOTALS, self._totals[which].T, strict=True))
        return fleet_kpis(totals, on_duty, simulation.city.cost_per_km)

    def get_renderer(self) -> RideHailingRenderer:
        """Return the renderer of the map."""
        return RideHailingRenderer()

    def maze_state(self, env: int) -> RideHailingMazeState:
        """Return the state of one environment."""
        return self.simulation.state(env)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`; the tables of requests grow during a run."""
        saved = state.get("waiting")
        if isinstance(saved, np.ndarray) and saved.ndim == 3:
            self.simulation.reserve(saved.shape[1])
        super().load_state_dict(state)

    def _arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays of the state, by name."""
        yield from super()._arrays()
        yield from self.simulation.arrays()
        for name, array in self._observation.items():
            yield f"observation_{name}", array


def with_array_form(aggregator: VehicleRewardAggregator) -> VehicleRewardAggregator:
    """Return an aggregator whose rewards can be computed in arrays.

    Raises:
        TypeError: It is not a `VehicleRewardAggregator`, or replaces the sums over events.
    """
    kind = type(aggregator)
    remedy = "use the environment of single episodes"
    if not isinstance(aggregator, VehicleRewardAggregator):
        raise TypeError(f"{kind.__name__} has no array form; derive it from VehicleRewardAggregator, or {remedy}")
    redefine = "implement the rewards of events, request_reward and so on"
    for method in ("reward_of", "rewards_of", "summarize_reward"):
        if getattr(kind, method) is not getattr(VehicleRewardAggregator, method):
            raise TypeError(f"{kind.__name__} replaces {method}, so it has no array form; {redefine}, or {remedy}")
    return aggregator
