"""Solves tabular simulations exactly, for the right objective of a learner and for wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.structured.tabular import TabularCoreEnv

Credit = Callable[[tuple[float, ...]], tuple[float, ...]]
"""Rewards of an environment step -> the reward that each agent is credited with."""

TOLERANCE = 1e-9


def to_team(rewards: tuple[float, ...]) -> tuple[float, ...]:
    """Credit each agent with the sum of all rewards."""
    return (sum(rewards),) * len(rewards)


def to_own(rewards: tuple[float, ...]) -> tuple[float, ...]:
    """Credit each agent with its own reward."""
    return rewards


def to_next(rewards: tuple[float, ...]) -> tuple[float, ...]:
    """Credit each agent with the reward of its predecessor."""
    return (rewards[-1], *rewards[:-1])


@dataclass
class Plan:
    """Backward induction over the acts of an episode, in which each agent maximises what it is credited with.

    Where an agent is indifferent, the environment's own reward decides: for the better of it or, as a pessimist, for
    the worse. Nothing follows the last environment step.

    Args:
        env: The simulation.
        n_steps: Environment steps of an episode.
        gamma: Discount.
        credit: What agents get of the rewards.
        discount: What gamma counts: environment steps, or acts.
        pessimist: How ties are broken.

    Attributes:
        choices: Environment step and state -> the optimal actions.
    """

    env: type[TabularCoreEnv]
    n_steps: int
    gamma: float = 1.0
    credit: Credit = to_team
    discount: Literal["env_steps", "acts"] = "env_steps"
    pessimist: bool = False
    choices: dict[tuple[int, Any], list[int]] = field(default_factory=dict)
    _values: dict[tuple[int, Any], tuple[float, ...]] = field(default_factory=dict)

    def episode_return(self) -> float:
        """Expected sum of the environment's own rewards over an episode."""
        return sum(first.probability * self._value(0, first.state)[-1] for first in self.env.first_states())

    def _value(self, time: int, state: Any) -> tuple[float, ...]:
        """Discounted credit of each agent to come, and then the environment's own reward to come."""
        if time == self.n_steps:
            return ()
        known = self._values.get((time, state))
        if known is not None:
            return known
        agent = self.env.actor(state).agent_id
        values = [self._action_value(time, state, action) for action in range(self.env.n_actions)]
        best = max(value[agent] for value in values)
        choices = [action for action, value in enumerate(values) if value[agent] > best - TOLERANCE]
        chosen = (min if self.pessimist else max)((values[action] for action in choices), key=lambda value: value[-1])
        self.choices[time, state], self._values[time, state] = choices, chosen
        return chosen

    def _action_value(self, time: int, state: Any, action: int) -> tuple[float, ...]:
        total: list[float] = []
        for probability, following, rewards, _ in self.env.outcomes(state, action):
            later = self._value(time + bool(rewards), following)
            gained = (*self.credit(rewards), sum(rewards)) if rewards else (0.0,) * len(later)
            factor = self.gamma if rewards or self.discount == "acts" else 1.0
            factors = (*[factor] * (len(gained) - 1), 1.0)
            later = later or (0.0,) * len(gained)
            total = total or [0.0] * len(gained)
            for index in range(len(gained)):
                total[index] += probability * (gained[index] + factors[index] * later[index])
        return tuple(total)
