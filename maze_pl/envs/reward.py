"""Rewards computed from events, apart from the simulation, so that they can be exchanged without touching it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from maze_pl.events.pubsub import Subscriber


class RewardAggregatorInterface(Subscriber):
    """Turns the events of an environment step, and the state after it, into its reward.

    The simulation registers it with its pubsub and asks for the reward once at the end of a step.
    """

    @abstractmethod
    def summarize_reward(self, maze_state: Any = None) -> float:
        """The reward of the current environment step.

        Args:
            maze_state: State after the step, for rewards that depend on it.
        """
