"""Count of environment steps in the state of a module."""

from typing import Any

import torch
from torch import Tensor

_COUNT = "_extra_state"  # torch's name for the result of `get_extra_state`


class EnvStepCount:
    """Lets the weights of a `LightningModule` carry its count of environment steps.

    Attributes:
        env_steps: Environment steps learned from so far, over all ranks and the whole run.
    """

    env_steps: int

    def get_extra_state(self) -> Tensor:
        """Return the count of environment steps: spawned processes return only module state."""
        return torch.tensor(self.env_steps)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the count of environment steps from `get_extra_state`."""
        self.env_steps = int(state)

    def count_in(self, checkpoint: dict[str, Any]) -> None:
        """Set the count in the weights of a checkpoint, which may be an average with the count of a copy."""
        if _COUNT in checkpoint["state_dict"]:
            checkpoint["state_dict"][_COUNT] = torch.tensor(self.env_steps)
