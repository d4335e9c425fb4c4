"""Stacks of the observations of several steps, in tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.tensors.tensor_env import TensorEnv, Tensors, tensor_type
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper, of_each_env

if TYPE_CHECKING:
    from maze_pl.envs.wrappers.observation_stack_wrapper import ObservationStackWrapper


class ObservationStackTensorWrapper(TensorWrapper):
    """Stacks each actor's latest observations; see `ObservationStackWrapper`.

    Args:
        env: The environment to wrap.
        wrapper: The wrapper for single episodes, with the configuration of the stacks.
    """

    def __init__(self, env: TensorEnv, wrapper: ObservationStackWrapper) -> None:
        super().__init__(env)
        self._changed_spaces = wrapper.observation_spaces_dict
        self._stacks, self._dropped = wrapper.stacks, sorted(wrapper.dropped)

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Space of the observations with stacks of each sub-step."""
        return self._changed_spaces

    def make_tensors(self, n_envs: int) -> None:
        """Make the histories, and whether they have begun."""
        self.has_begun: dict[StepKey, Tensor] = {}  # [N] bool
        self.histories: dict[StepKey, dict[str, Tensor]] = {}  # [N, stack_steps, ...]
        for key, space in self.env.observation_spaces_dict.items():
            self.has_begun[key] = torch.zeros(n_envs, dtype=torch.bool, device=self.device)
            histories = self.histories[key] = {}
            for stack in self._stacks:
                if stack.observation in space.spaces:
                    part = space[stack.observation]
                    shape = (n_envs, stack.stack_steps, *(part.shape or ()))
                    dtype = tensor_type(part)
                    histories[stack.name] = torch.zeros(shape, dtype=dtype, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        """Start episodes with new stacks."""
        for has_begun in self.has_begun.values():
            has_begun.masked_fill_(which, False)
        super().begin(which, seeds)

    def observation(self, step_key: StepKey, observation: Tensors) -> Tensors:
        """Return the observations with their stacks."""
        kept = [name for name in observation if name not in self._dropped]
        stacked = {name: observation[name] for name in kept}
        for stack in self._stacks:
            if stack.observation in observation:
                latest = self._latest(step_key, stack.name, observation[stack.observation])
                if stack.delta:
                    latest = latest.to(torch.promote_types(latest.dtype, torch.float32))
                    latest = torch.cat([latest[:, -1:] - latest[:, :-1], latest[:, -1:]], dim=1)
                stacked[stack.name] = latest
        return stacked

    def learn(self, step_key: StepKey, observation: Tensors) -> None:
        """Add the observations to the histories."""
        for stack in self._stacks:
            if stack.observation in observation:
                latest = self._latest(step_key, stack.name, observation[stack.observation])
                self.histories[step_key][stack.name].copy_(latest)
        self.has_begun[step_key].fill_(True)

    def _latest(self, step_key: StepKey, name: str, values: Tensor) -> Tensor:
        """Return a history with one more observation; the first one fills all entries.

        Args:
            step_key: The sub-step.
            name: Name of the stack.
            values: [N, ...] the observation.

        Returns:
            [N, stack_steps, ...]
        """
        history = self.histories[step_key][name]
        newest = values.unsqueeze(1)
        earlier = torch.where(of_each_env(self.has_begun[step_key], newest), history[:, 1:], newest)
        return torch.cat([earlier, newest], dim=1)
