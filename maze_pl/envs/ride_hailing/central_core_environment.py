"""The simulation with a central dispatcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.ride_hailing.core_environment import RideHailingCoreEnvironment
from maze_pl.envs.ride_hailing.objects import Array


class CentralDispatchCoreEnvironment(RideHailingCoreEnvironment):
    """Ride hailing with a single actor that chooses a vehicle and what it does.

    Each decision is an environment step, but time passes only when every free vehicle has been
    given something to do; see `RideHailingCoreEnvironment`.

    Args:
        simulation: The simulation; `RideHailingSimulation(City())` if None.
        reward_aggregator: Computes rewards; `IncomeRewardAggregator()` if None.
    """

    def _ends_env_step(self) -> bool:
        """Return True: each decision is an environment step."""
        return True

    def actor_id(self) -> ActorID:
        """Return the only actor."""
        return ActorID(0, 0)

    def is_actor_done(self) -> bool:
        """Return False: the dispatcher stays."""
        return False

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """One agent."""
        return {0: 1}

    def get_actor_rewards(self) -> Array | None:
        """Return None: all rewards belong to the dispatcher."""
        return None
