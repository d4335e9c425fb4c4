"""Base of wrappers of array environments that change observations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_checks import ArrayChecks, as_numpy, slots_for_checks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.structured_env import Array


class ObservationArrayWrapper(ArrayWrapper):
    """Wrapper that changes the observations of the next actors. Tensors are copied to the host.

    Args:
        env: The environment to wrap.
        observation_spaces_dict: Space of the changed observations of each sub-step, for one environment.
    """

    def __init__(self, env: ArrayEnv, observation_spaces_dict: Mapping[Any, spaces.Dict]) -> None:
        super().__init__(env)
        self._changed_spaces = observation_spaces_dict

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Space of the changed observations of each sub-step."""
        return self._changed_spaces

    @abstractmethod
    def observations(
        self, key: StepKey, observation: Mapping[str, Array], which: Array, agents: Array
    ) -> Mapping[str, Array]:
        """Return changed observations of some environments, without modifying the given arrays.

        Args:
            key: Step key of the next actors.
            observation: Name -> [n, ...] their observations, in the dtypes of the space.
            which: [n] int64, the environments, ascending.
            agents: [n] int64, ids of the next actors.

        Returns:
            Name -> [n, ...].
        """

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        spec = Spec.of(self.env, slots_for_checks(self.env))
        self._spec = spec
        self._checks = ArrayChecks(spec, n_envs, self.unwrapped.first_env_index, type(self.unwrapped).__name__, False)
        self._changed: dict[StepKey, dict[str, Array]] = {}
        for key, space in self._changed_spaces.items():
            arrays = self._changed[key] = {}
            for name, part in space.spaces.items():
                arrays[name] = np.zeros((n_envs, *(part.shape or ())), part.dtype)

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Reset and change the observations."""
        result = super().reset(which, seeds)
        self._change(result, as_numpy(which))
        return result

    def step(self, actions: Mapping[StepKey, Mapping[str, AnyArray]], which: EnvIndex) -> ArrayStep:
        """Step and change the observations."""
        result = super().step(actions, which)
        self._change(result, as_numpy(self.numbers_of(which)))
        return result

    def _change(self, result: ArrayStep, which: Array) -> None:
        """Replace the observations of some environments in a result."""
        if not isinstance(result, ArrayStep):
            return  # the caller reports it
        keys = self._spec.step_keys
        places = np.zeros(self.n_envs, np.int64) if result.next_key is None else as_numpy(result.next_key)
        agents = np.zeros(self.n_envs, np.int64) if result.next_agent is None else as_numpy(result.next_agent)
        if not self._spec.is_flat:
            self._checks.check_next(places, agents, which)
        for place, key in enumerate(keys):
            rows = which if len(keys) == 1 else which[places[which] == place]
            if not len(rows):
                continue
            arrays = self._checks.observation_of(result, key, rows)
            dtypes = self._spec.steps[key].observation_space.spaces
            observation = {name: array[rows].astype(dtypes[name].dtype) for name, array in arrays.items()}
            for name, values in self.observations(key, observation, rows, agents[rows]).items():
                self._changed[key][name][rows] = values
        result.observation = self._changed
