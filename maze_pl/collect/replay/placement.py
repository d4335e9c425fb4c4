"""The device that a replay buffer is stored on."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import StepSpec

BufferDevice = Literal["auto", "host"]

LARGEST_SHARE = 0.5
"""Share of the free memory of a device that a buffer may take."""


def device_of_buffer(
    choice: BufferDevice, of_networks: torch.device, steps: Mapping[StepKey, StepSpec], capacity: int
) -> torch.device | None:
    """Return the device on which observations and actions are stored; None for the memory of the process.

    With `auto`, they lie on the GPU of the networks if they take at most half of its free memory, unless
    torch cannot write numbers of their type by index there. Minibatches are then drawn without copies
    from the host.

    Args:
        choice: `auto` or `host`.
        of_networks: Device of the networks.
        steps: Sub-steps of the specification.
        capacity: Transitions of each sub-step.
    """
    if choice == "host" or of_networks.type != "cuda":
        return None
    if not all(can_be_written(step) for step in steps.values()):
        return None
    free = torch.cuda.mem_get_info(of_networks)[0]
    needed = capacity * sum(bytes_of_values(step) for step in steps.values())
    return of_networks if needed <= LARGEST_SHARE * free else None


def can_be_written(step: StepSpec) -> bool:
    """True if torch can write observations and actions by index."""
    parts = [*step.observation_space.spaces.values(), *step.action_space.spaces.values()]
    return not any(np.dtype(part.dtype) in (np.uint16, np.uint32, np.uint64) for part in parts)


def bytes_of_values(step: StepSpec) -> int:
    """Bytes of the observation, the action and the next observation of a transition."""
    return 2 * _bytes_of(step.observation_space) + _bytes_of(step.action_space)


def _bytes_of(space: spaces.Dict) -> int:
    """Bytes of a value of a space."""
    return sum(int(np.prod(part.shape or ())) * np.dtype(part.dtype).itemsize for part in space.spaces.values())
