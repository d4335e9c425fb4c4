"""The environments of a collector on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from maze_pl.core.spec import Spec
from maze_pl.envs.tensors.tensor_env import TensorEnv


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
    """

    env: TensorEnv
    n_envs: int
    spec: Spec
    device: torch.device
    seed: int = 0
    first_env_index: int = 0
    n_same_starts: int = 1

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Do nothing, as there are no wrappers with statistics."""

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the statistics of wrappers: none."""
        return []

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
