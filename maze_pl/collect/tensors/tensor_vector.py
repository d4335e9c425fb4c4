"""The environments of a collector on a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from maze_pl.collect.state_tensors import on_host
from maze_pl.core.spec import Spec
from maze_pl.envs.tensors.tensor_env import TensorEnv
from maze_pl.envs.tensors.tensor_wrapper import tensor_wrappers_of


@dataclass
class TensorVector:
    """The environments of a `TensorCollector`.

    Attributes:
        env: The environment, not yet allocated.
        n_envs: Number of environments.
        spec: Observation and action spaces of the agents.
        device: Device of the environments; the policy must be on it, too.
        seed: Seed of the run.
        first_env_index: Index of the first environment across all ranks and workers.
        n_same_starts: Number of consecutive environments that play each start. With several, each
            rollout begins with new episodes; those that are running are dropped.
        merges: Whether statistics of wrappers are merged on the device, as no other environments
            gather some.
    """

    env: TensorEnv
    n_envs: int
    spec: Spec
    device: torch.device
    seed: int = 0
    first_env_index: int = 0
    n_same_starts: int = 1

    merges: bool = False
    _loaded: dict[str, Any] = field(default_factory=dict)

    def load_shared_states(self, state: dict[str, Any]) -> None:
        """Load statistics into the wrappers, unless `shared_states` has just returned them.

        Raises:
            ValueError: Those of a wrapper are missing.
        """
        if state is self._loaded:
            return
        for wrapper in tensor_wrappers_of(self.env):
            own = state.get(wrapper.statistics_name, {})
            if not own and wrapper.shared_state():
                fault = f"there are no statistics for {wrapper.statistics_name}"
                raise ValueError(f"{fault}, but for {sorted(state)}")
            wrapper.load_shared_state(own)
        self._loaded = state

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the statistics of wrappers, by name, in one state for all environments.

        They are tensors of the device after `merges`, and otherwise arrays and numbers, for which
        the host waits.
        """
        states = dict(self._loaded)
        for wrapper in tensor_wrappers_of(self.env):
            if self.merges:
                wrapper.merge()
            if state := wrapper.shared_state():
                states[wrapper.statistics_name] = state
        self._loaded = states
        return [self._loaded if self.merges else on_host(self._loaded)]

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
