"""Staging of the observations of the actors that act next, and checks of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.exact_numbers import holds_all
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError, check_observation
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.vector_env import Staging
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper

Place = tuple[str, Array, tuple[int, ...], np.dtype[Any]]
"""Name of an observation, its staging array `[N, ...]`, its shape and a dtype that fits."""


class NextObservations:
    """Observations of the next actor of each environment.

    An observation is checked in full if its shape or dtype is not that of an earlier one, or if its
    dtype has numbers that the dtype of its space cannot hold.

    Args:
        spec: Observation and action spaces of the agents.
        envs: The environments.
        staging: Arrays that the observations are written to.
        is_exact: Whether the whole contract is checked, including the bounds of values.

    Attributes:
        keys: Step key of the next actor of each environment.
        places: Places of the observations of each step key.
        is_new: Whether every observation is checked in full: until the first step, or always if exact.
    """

    def __init__(self, spec: Spec, envs: Sequence[LogStatsWrapper], staging: Staging, is_exact: bool) -> None:
        self._spec = spec
        self._envs = envs
        self._staging = staging
        self._is_exact = is_exact
        self._is_flat = spec.is_flat
        self.key_index = {key: index for index, key in enumerate(spec.step_keys)}
        self.keys = [spec.step_keys[0]] * len(envs)
        self.is_new = True
        self.places: dict[StepKey, list[Place]] = {}
        for key, tree in staging.observation.items():
            self.places[key] = [(name, rows, rows.shape[1:], rows.dtype) for name, rows in tree.items()]

    def stage(self, n: int, observation: dict[str, Any]) -> None:
        """Stage the observation of the next actor of environment n.

        Raises:
            EnvContractError: The observation breaks the contract, or the sub-step is not declared.
        """
        if self._is_flat:
            key = self.keys[n]
        else:
            key, agent_id = self._envs[n].actor_id()
            if key not in self.key_index:
                raise self._undeclared(key)
            self.keys[n] = key
            self._staging.next_key[n] = self.key_index[key]
            self._staging.next_agent[n] = agent_id
        if self.is_new:
            self._check(key, observation)
        try:
            for name, rows, shape, dtype in self.places[key]:
                value = observation[name]
                if type(value) is not np.ndarray:
                    value = np.asarray(value)
                if value.shape != shape or value.dtype is not dtype:
                    self._check(key, observation)
                    self.accept(key, name, value.dtype)
                rows[n] = value
        except (KeyError, TypeError, ValueError):
            self._check(key, observation)
            raise

    def restore(self, n: int, place: int, agent_id: int, observation: dict[str, Any]) -> None:
        """Stage a saved observation of environment n.

        Args:
            n: Number of the environment.
            place: Index of the step key.
            agent_id: Id of the next actor.
            observation: Its observation.
        """
        key = self._spec.step_keys[place]
        self._staging.next_key[n], self._staging.next_agent[n] = place, agent_id
        self.keys[n] = key
        for name, rows in self._staging.observation[key].items():
            rows[n] = observation[name]

    def accept(self, key: StepKey, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Stop checking observations of a dtype, if all its numbers can be staged.

        Returns:
            The dtype whose observations are not checked.
        """
        held = self._staging.observation[key][name].dtype
        accepted = dtype if holds_all(held, dtype) else held
        places = self.places[key]
        self.places[key] = [(*place[:3], accepted) if place[0] == name else place for place in places]
        return accepted

    def check_final(self, key: StepKey, agent_id: int, observation: Any) -> None:
        """Check the final observation of a truncated episode.

        Args:
            key: Step key of the actor that would act next.
            agent_id: Id of this actor.
            observation: Its observation.

        Raises:
            EnvContractError: It breaks the contract, or the sub-step or the agent is not declared.
        """
        if key not in self.key_index:
            raise self._undeclared(key)
        if not self._is_flat:
            self._require_declared(key, agent_id)
        self._check(key, observation)

    def _require_declared(self, key: StepKey, agent_id: int) -> None:
        """Raise EnvContractError if a sub-step cannot have an agent; `ActorSlots.assign` checks those that act."""
        count = self._spec.steps[key].n_agents
        if agent_id >= 0 and (count < 0 or agent_id < count):
            return
        expected = "ids of agents must be at least 0" if count < 0 else f"agent_counts_dict declares {count}"
        came = f"actor_id() names agent {agent_id} of sub-step {key!r} after a truncated episode"
        raise EnvContractError(f"{came}, but {expected}; name the actor that would act next")

    def _undeclared(self, key: StepKey) -> EnvContractError:
        return EnvContractError(f"actor_id() names sub-step {key!r}; declared are {self._spec.step_keys}")

    def _check(self, key: StepKey, observation: Any) -> None:
        space = self._spec.steps[key].observation_space
        check_observation(observation, space, f"the observation of sub-step {key!r}", self._is_exact)
