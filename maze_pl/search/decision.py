"""A decision to be made by search, and the simulations in which it is made."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from maze_pl.agents.best_actions import Action
from maze_pl.core.actor_id import ActorID
from maze_pl.core.policy import Array
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.search.simulation import Simulation


@dataclass(frozen=True)
class PlannedAct:
    """An action, and the situation in which it is to be taken.

    Attributes:
        actor: The actor.
        observation: Its observation.
        action: The action.
    """

    actor: ActorID
    observation: Mapping[str, Array]
    action: Action

    def fits(self, actor: ActorID, observation: Mapping[str, Array]) -> bool:
        """Return whether this is the situation."""
        if actor != self.actor:
            return False
        return all(np.array_equal(self.observation[name], value, equal_nan=True) for name, value in observation.items())


class Decision:
    """A decision to be made by search.

    Args:
        env: The environment.
        observation: Observation of the actor that decides.
        seed: Source of all randomness.
        make_env: Makes an environment like it, for simulations.
        spec: Observations and actions of the actors.
        spare: Simulations that may be used again.
        deterministic: Whether the best action is wanted, without random choices.
        milliseconds: Time for the decision, without that in which environments are made; None for no limit.

    Attributes:
        deterministic: As given.
        generator: Source of the randomness of policies.
        random: Source of the search's randomness.
    """

    def __init__(
        self,
        env: Any,
        observation: Mapping[str, Array],
        seed: int,
        make_env: Callable[[], Any],
        spec: Spec,
        spare: list[Simulation],
        deterministic: bool,
        milliseconds: float | None,
    ) -> None:
        self.deterministic = deterministic
        self.generator = torch.Generator().manual_seed(derive_seed(seed, "policy"))
        self.random = np.random.default_rng(derive_seed(seed, "search"))
        self._env = env
        self._observation = observation
        self._seed = seed
        self._make_env = make_env
        self._spec = spec
        self._spare = spare
        self._deadline = None if milliseconds is None else time.perf_counter() + milliseconds / 1000

    def simulation(self, place: int) -> Simulation:
        """Return a simulation, in any state.

        Args:
            place: Its number; the same number is the same simulation.
        """
        while len(self._spare) <= place:
            began = time.perf_counter()
            self._spare.append(Simulation(self._make_env(), self._spec))
            if self._deadline is not None:
                self._deadline += time.perf_counter() - began
        return self._spare[place]

    def started(self, place: int, future: int) -> Simulation:
        """Return a simulation that starts in the present state.

        Args:
            place: Its number.
            future: Number of the future: what is random is the same in futures of the same number.
        """
        simulation = self.simulation(place)
        simulation.start(self._env, self._observation, derive_seed(self._seed, "future", future))
        return simulation

    @property
    def seconds_left(self) -> float:
        """Time that is left for the decision, in seconds; infinite without a limit."""
        return math.inf if self._deadline is None else self._deadline - time.perf_counter()

    @property
    def is_out_of_time(self) -> bool:
        """True if the time for the decision is over."""
        return self._deadline is not None and time.perf_counter() >= self._deadline
