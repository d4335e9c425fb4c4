"""How networks get their inputs, and which network belongs to which sub-step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.core.actor_id import StepKey

Item = TypeVar("Item")


class NetworkInput:
    """Brings observations to the network's device and floating point type.

    Integers and booleans keep their type, because networks may want to embed them.

    Args:
        network: The network, all of whose parameters are of one type and on one device.
    """

    def __init__(self, network: nn.Module) -> None:
        # The parameter object outlives moves and conversions of the network, and asking it costs next to nothing.
        self._reference = next((item for item in network.parameters() if item.dtype.is_floating_point), torch.empty(0))

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self._reference.device

    def __call__(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., *shape] observations that the network can compute with."""
        dtype, device = self._reference.dtype, self._reference.device
        return {
            name: value.to(device, dtype) if value.is_floating_point() else value.to(device)
            for name, value in observation.items()
        }


def torch_dtype(space: spaces.Space[Any]) -> torch.dtype:
    """The tensor type of a space's elements."""
    return torch.from_numpy(np.zeros(0, space.dtype)).dtype


def networks_by_step(
    given: Sequence[Item] | Mapping[StepKey, Item], step_keys: Sequence[StepKey]
) -> dict[StepKey, Item]:
    """Assign networks to sub-steps, in the order of `step_keys`.

    A list is in the order of the sub-steps. The keys of a dict may be given as text where the sub-steps are numbers, as
    configuration files do.

    Raises:
        ValueError: There is not exactly one for each sub-step.
    """
    if not isinstance(given, Mapping):
        if len(given) != len(step_keys):
            raise ValueError(f"got {len(given)} networks for the {len(step_keys)} sub-steps {list(step_keys)}")
        return dict(zip(step_keys, given, strict=True))
    by_name = {str(key): item for key, item in given.items()}
    if set(by_name) != {str(key) for key in step_keys} or len(by_name) != len(given):
        raise ValueError(f"got networks for {list(given)}, expected one for each sub-step of {list(step_keys)}")
    return {key: by_name[str(key)] for key in step_keys}
