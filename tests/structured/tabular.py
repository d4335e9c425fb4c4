"""Simulations given by their transition probabilities, so that the same simulation is played and solved."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs import ActionConversionInterface, CoreEnv, ObservationConversionInterface


class Outcome(NamedTuple):
    """What an act may lead to.

    Attributes:
        probability: How likely it is.
        state: The state that follows; hashable.
        rewards: Of the finished environment step, empty unless the act completes it: one for each agent if the
            simulation attributes rewards, else the team's alone.
        actor_done: Whether the actor that just acted is done.
    """

    probability: float
    state: Any
    rewards: tuple[float, ...] = ()
    actor_done: bool = False


class TabularCoreEnv(CoreEnv):
    """A simulation with finitely many states that only a time limit ends."""

    n_actions: ClassVar[int]
    """Number of actions of every actor."""

    attributed: ClassVar[bool] = False
    """Whether rewards belong to agents."""

    @staticmethod
    @abstractmethod
    def first_states() -> list[Outcome]:
        """States in which an episode may start."""

    @staticmethod
    @abstractmethod
    def actor(state: Any) -> ActorID:
        """Who acts in a state."""

    @staticmethod
    @abstractmethod
    def outcomes(state: Any, action: int) -> list[Outcome]:
        """What an act may lead to."""

    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng()
        self._outcome = self.first_states()[0]
        self._acted: list[int] = []  # agents in the present environment step

    def seed(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def reset(self) -> Any:
        self._acted = []
        self._outcome = self._draw(self.first_states())
        return self._outcome.state

    def step(self, maze_action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._outcome.rewards:
            self._acted = []
        self._acted.append(self.actor_id().agent_id)
        self._outcome = self._draw(self.outcomes(self._outcome.state, maze_action))
        if self._outcome.rewards:
            self.context.increment_env_step()
        return self._outcome.state, sum(self._outcome.rewards), False, False, {}

    def get_actor_rewards(self) -> np.ndarray | None:
        return np.array([self._outcome.rewards[agent] for agent in self._acted]) if self.attributed else None

    def actor_id(self) -> ActorID:
        return self.actor(self._outcome.state)

    def is_actor_done(self) -> bool:
        return self._outcome.actor_done

    def get_maze_state(self) -> Any:
        return self._outcome.state

    def close(self) -> None:
        self._acted = []

    def _draw(self, outcomes: Sequence[Outcome]) -> Outcome:
        remaining = self._random.random()
        for outcome in outcomes[:-1]:
            remaining -= outcome.probability
            if remaining < 0.0:
                return outcome
        return outcomes[-1]


class Observe(ObservationConversionInterface):
    """Observations that are vectors of numbers between 0 and 1.

    Args:
        sizes: Name -> length.
    """

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes

    def space(self) -> spaces.Dict:
        return spaces.Dict({name: spaces.Box(0.0, 1.0, (size,)) for name, size in self.sizes.items()})

    def maze_to_space(self, maze_state: Any) -> dict[str, np.ndarray]:
        return {name: np.array(numbers, np.float32) for name, numbers in self.observe(maze_state).items()}

    @abstractmethod
    def observe(self, state: Any) -> dict[str, Sequence[float]]:
        """What the actor sees, by name."""


class Choose(ActionConversionInterface):
    """One of a number of actions, under the name `choice`.

    Args:
        n: How many there are.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    def space(self) -> spaces.Dict:
        return spaces.Dict({"choice": spaces.Discrete(self.n)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["choice"])

    def maze_to_space(self, maze_action: int) -> dict[str, int]:
        return {"choice": maze_action}


def one_hot(index: int, size: int) -> list[float]:
    """A vector with a 1 at `index`, zeros only if that is -1."""
    return [float(place == index) for place in range(size)]


def conversions(
    choices: int, observations: dict[StepKey, Observe]
) -> tuple[dict[StepKey, ActionConversionInterface], dict[StepKey, ObservationConversionInterface]]:
    """Action and observation conversions of all sub-steps."""
    return {key: Choose(choices) for key in observations}, dict(observations)
