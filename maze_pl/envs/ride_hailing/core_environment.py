"""The simulation as an environment: each vehicle that is free decides in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.core_env import CoreEnv, RewardAggregatorInterface, take_over
from maze_pl.envs.ride_hailing.city import City
from maze_pl.envs.ride_hailing.events import RideEvents
from maze_pl.envs.ride_hailing.income_reward_aggregator import IncomeRewardAggregator
from maze_pl.envs.ride_hailing.kpi_calculator import RideHailingKpiCalculator
from maze_pl.envs.ride_hailing.objects import Array, RideHailingMazeAction, RideHailingMazeState
from maze_pl.envs.ride_hailing.renderer import RideHailingRenderer
from maze_pl.envs.ride_hailing.simulation import Drive, RideHailingSimulation
from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator


class RideHailingCoreEnvironment(CoreEnv):
    """Ride hailing with one agent for each shift, which comes when the shift begins and goes when it ends.

    In an environment step, all vehicles that are free decide, one after the other; then time passes
    until a vehicle is free again. The id of an agent is the index of its shift. An agent is done
    after the act from which it will not return within its shift. The episode ends with the day; its
    reward comes in the last act of each environment step, and `get_actor_rewards` divides it if the
    aggregator is a `VehicleRewardAggregator`. An option that does not exist makes the vehicle stay
    (`invalid_choice`).

    Args:
        simulation: The simulation; `RideHailingSimulation(City())` if None.
        reward_aggregator: Computes rewards; `IncomeRewardAggregator()` if None.
    """

    def __init__(
        self,
        simulation: RideHailingSimulation | None = None,
        reward_aggregator: RewardAggregatorInterface | None = None,
    ) -> None:
        super().__init__()
        self.simulation = simulation or RideHailingSimulation(City())
        self.reward_aggregator = reward_aggregator or IncomeRewardAggregator()
        if isinstance(self.reward_aggregator, VehicleRewardAggregator):
            self.reward_aggregator.use_city(self.simulation.city)
        self.pubsub.register_subscriber(self.reward_aggregator)
        self._events = self.pubsub.create_event_topic(RideEvents)
        self._generator = np.random.default_rng()
        self._acted: list[int] = []  # vehicles of this environment step
        self._actor_rewards: Array | None = None
        self._is_actor_done = False
        self._actor = 0

    def seed(self, seed: int) -> None:
        """Seed the generator of shifts and requests."""
        self._generator = np.random.default_rng(seed)

    def reset(self) -> RideHailingMazeState:
        """Start a day."""
        n_lost = self.simulation.reset(self._generator)
        if n_lost:
            self._events.requests_lost(count=n_lost)
        self._acted = []
        self._is_actor_done = False
        self._find_actor()
        return self.get_maze_state()

    def step(
        self, maze_action: RideHailingMazeAction
    ) -> tuple[RideHailingMazeState, float, bool, bool, dict[str, Any]]:
        """Let a vehicle decide; the last one of an environment step lets time pass.

        Returns:
            State, reward, terminated (the day is over), truncated (always False), and info, which
            names an option that does not exist.

        Raises:
            ValueError: The day is over; start another episode.
        """
        simulation = self.simulation
        if not simulation.undecided:
            raise ValueError("the day is over; call reset first")
        drive, is_valid = self._perform(maze_action)
        if not is_valid:
            self._events.invalid_choice(vehicle=drive.vehicle, option=maze_action.option)
        self._report(drive)
        self._acted.append(drive.vehicle)
        self._is_actor_done = simulation.is_done(drive.vehicle)
        reward = 0.0
        if self._ends_env_step():
            reward = self._end_env_step()
        self._find_actor()
        info = {} if is_valid else {"error": "no_such_option"}
        return self.get_maze_state(), reward, simulation.is_over, False, info

    def _perform(self, action: RideHailingMazeAction) -> tuple[Drive, bool]:
        """Perform an action; also return whether it was possible."""
        simulation = self.simulation
        n_nearest = simulation.n_nearest
        is_place = 0 <= action.place < len(simulation.undecided)
        place = action.place if is_place else 0
        if is_place and 0 <= action.option < n_nearest:
            requests = self.get_maze_state().nearest(simulation.undecided[place])
            if action.option < len(requests):
                return simulation.accept(place, int(requests[action.option])), True
        if is_place and n_nearest < action.option <= n_nearest + 4:
            side = action.option - n_nearest - 1
            zone = simulation.city.zone_of(simulation.positions[simulation.undecided[place]])
            return simulation.move(place, side), bool(simulation.city.neighbours[zone, side] >= 0)
        return simulation.stay(place), is_place and action.option == n_nearest

    def _report(self, drive: Drive) -> None:
        """Fire the events of a decision."""
        events = self._events
        if drive.empty:
            events.driven_empty(vehicle=drive.vehicle, distance=drive.empty)
        if drive.accepts:
            events.request_accepted(
                vehicle=drive.vehicle, fare=drive.fare, distance=drive.trip, waiting_time=drive.waiting_time
            )
        if drive.overtime:
            events.overtime(vehicle=drive.vehicle, minutes=drive.overtime)

    def _ends_env_step(self) -> bool:
        """True if the act that was just performed completes the environment step."""
        return not self.simulation.undecided

    def _end_env_step(self) -> float:
        """Let time pass if all have decided; return the reward of the environment step."""
        n_lost = self.simulation.advance(self._generator)
        if n_lost:
            self._events.requests_lost(count=n_lost)
        reward = self.reward_aggregator.summarize_reward(self.get_maze_state())
        self._actor_rewards = None
        if isinstance(self.reward_aggregator, VehicleRewardAggregator):
            self._actor_rewards = self.reward_aggregator.rewards_of(self._acted)
        self._acted = []
        self.context.increment_env_step()
        return reward

    def _find_actor(self) -> None:
        """Find the vehicle that decides next; after the end of the day, it remains the last one."""
        if self.simulation.undecided:
            self._actor = self.simulation.undecided[0]

    def actor_id(self) -> ActorID:
        """Return the vehicle that decides next, as agent of the sub-step `vehicle`."""
        return ActorID("vehicle", self._actor)

    def is_actor_done(self) -> bool:
        """True if the shift of the vehicle that has just decided ends before it is free again."""
        return self._is_actor_done

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """The number of vehicles varies."""
        return {"vehicle": -1}

    def get_actor_rewards(self) -> Array | None:
        """Rewards of the vehicles that have decided in the finished environment step, in order."""
        return self._actor_rewards

    def get_maze_state(self) -> RideHailingMazeState:
        """Return a copy of the state."""
        return self.simulation.state()

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def clone_from(self, env: Any) -> None:
        """Take over the state of another simulation; see `CoreEnv.clone_from`."""
        take_over(self, env)

    def get_renderer(self) -> RideHailingRenderer:
        """Return the renderer of the map."""
        return RideHailingRenderer()

    def get_kpi_calculator(self) -> RideHailingKpiCalculator:
        """Return the calculator of passengers, waiting and income."""
        return RideHailingKpiCalculator()
