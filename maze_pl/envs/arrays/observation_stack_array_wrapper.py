"""Stacks of the observations of several steps, in arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep
from maze_pl.envs.arrays.observation_array_wrapper import ObservationArrayWrapper
from maze_pl.envs.no_array_form_error import NoArrayFormError
from maze_pl.envs.structured_env import Array

if TYPE_CHECKING:
    from maze_pl.envs.wrappers.observation_stack_wrapper import ObservationStackWrapper


class ObservationStackArrayWrapper(ObservationArrayWrapper):
    """Stacks each actor's latest observations; see `ObservationStackWrapper`.

    Args:
        env: The environment to wrap.
        wrapper: The wrapper for single episodes, with the configuration of the stacks.

    Raises:
        NoArrayFormError: A sub-step with stacks has a varying number of agents.
    """

    def __init__(self, env: ArrayEnv, wrapper: ObservationStackWrapper) -> None:
        super().__init__(env, wrapper.observation_spaces_dict)
        self._stacks, self._dropped = wrapper.stacks, wrapper.dropped
        for key, count in env.agent_counts_dict.items():
            names = env.observation_spaces_dict[key].spaces
            if count < 0 and any(stack.observation in names for stack in self._stacks):
                fault = f"sub-step {key!r} has a varying number of agents"
                raise NoArrayFormError(f"{fault}, which stacks in arrays do not support")

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self._has_begun: dict[StepKey, Array] = {}  # [N, agents] bool, of sub-steps that may have stacks
        self._histories: dict[StepKey, dict[str, Array]] = {}  # [N, agents, stack_steps, ...]
        for key, space in self.env.observation_spaces_dict.items():
            if self.env.agent_counts_dict[key] < 0:
                continue
            shape = (n_envs, self.env.agent_counts_dict[key])
            self._has_begun[key] = np.zeros(shape, np.bool_)
            histories = self._histories[key] = {}
            for stack in self._stacks:
                if stack.observation in space.spaces:
                    part = space[stack.observation]
                    histories[stack.name] = np.zeros((*shape, stack.stack_steps, *(part.shape or ())), part.dtype)

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start an episode with new stacks."""
        for has_begun in self._has_begun.values():
            has_begun[which] = False
        return super().reset(which, seeds)

    def observations(
        self, key: StepKey, observation: Mapping[str, Array], which: Array, agents: Array
    ) -> Mapping[str, Array]:
        """Add the observations to the histories of the next actors, and return them with their stacks."""
        stacked = {name: values for name, values in observation.items() if name not in self._dropped}
        if key not in self._has_begun:
            return stacked
        has_begun = self._has_begun[key][which, agents]
        for stack in self._stacks:
            if stack.observation not in observation:
                continue
            history = self._histories[key][stack.name]
            values = observation[stack.observation]
            latest = np.repeat(values[:, np.newaxis], stack.stack_steps, axis=1)
            earlier = history[which, agents]
            latest[has_begun, :-1] = earlier[has_begun, 1:]
            history[which, agents] = latest
            if stack.delta:
                latest = latest.astype(np.result_type(latest, np.float32))
                latest[:, :-1] = latest[:, -1:] - latest[:, :-1]
            stacked[stack.name] = latest
        self._has_begun[key][which, agents] = True
        return stacked

    def _arrays(self) -> Iterator[tuple[str, AnyArray]]:
        """Yield the histories, too."""
        yield from super()._arrays()
        for key, has_begun in self._has_begun.items():
            yield f"has_begun {key}", has_begun
            for name, history in self._histories[key].items():
                yield f"history {key} {name}", history
