"""Network inputs, recurrent evaluation, and the assignment of networks to sub-steps."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.core.actor_id import StepKey

Item = TypeVar("Item")

StateShapes = dict[str, tuple[int, ...]]
"""Name of each part of a network's recurrent state -> its shape, without the actor dimension."""


class NetworkInput:
    """Brings observations to the network's device and floating point type.

    Integers and booleans keep their type, because networks may embed them.

    Args:
        network: The network; all its parameters have one type and are on one device.
        names: Observations that it uses; all if None.
    """

    def __init__(self, network: nn.Module, names: Collection[str] | None = None) -> None:
        self._names = names
        # This object survives moves and conversions of the network, and reading it is cheap.
        self._reference = next((item for item in network.parameters() if item.dtype.is_floating_point), torch.empty(0))

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return self._reference.device

    def __call__(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Move observations [..., *shape] to the network's device, and floats to its type."""
        dtype, device = self._reference.dtype, self._reference.device
        return {
            name: value.to(device, dtype) if value.is_floating_point() else value.to(device)
            for name, value in observation.items()
            if self._names is None or name in self._names
        }


def state_shapes(network: nn.Module) -> StateShapes:
    """Return a network's recurrent state: all entries of its modules' `state_shapes` attributes."""
    shapes: StateShapes = {}
    for module in network.modules():
        shapes |= {name: tuple(shape) for name, shape in getattr(module, "state_shapes", {}).items()}
    return shapes


def refuse_recurrent(network: nn.Module, what: str) -> None:
    """Refuse a recurrent network, for algorithms that sample acts without the preceding ones.

    Args:
        network: The network, or several in one module.
        what: Name of the network for the message.

    Raises:
        ValueError: The network is recurrent.
    """
    if shapes := state_shapes(network):
        raise ValueError(
            f"{what} is recurrent (policy state {list(shapes)}), but acts are drawn one by one, "
            "without the preceding acts: use a network that is not recurrent, and an "
            "ObservationStackWrapper if one observation does not hold enough information"
        )


def evaluate_recurrent(network: nn.Module, inputs: Mapping[str, Tensor], shapes: StateShapes) -> dict[str, Tensor]:
    """Evaluate a recurrent network.

    Args:
        network: Takes observations and state, and returns outputs and the new state.
        inputs: Name -> [L * S, ...], observations of S actors in L acts each, act by act; and name
            -> [S, ...], the state before the first of these acts. If the state is missing, it is
            zero and each actor acts once.
        shapes: Shapes of the state.

    Returns:
        Name -> [L * S, ...], the outputs, and name -> [S, ...], the state after the last act.
    """
    seen = {name: tensor for name, tensor in inputs.items() if name not in shapes}
    state = {name: tensor for name, tensor in inputs.items() if name in shapes}
    n_acts = len(next(iter(seen.values())))
    if not state:
        state = {name: next(network.parameters()).new_zeros(n_acts, *shape) for name, shape in shapes.items()}
    n_actors = len(next(iter(state.values())))
    if n_acts != n_actors:
        seen = {name: tensor.reshape(-1, n_actors, *tensor.shape[1:]) for name, tensor in seen.items()}
    outputs = network({**seen, **state}).items()
    return {name: tensor if n_acts == n_actors or name in shapes else tensor.flatten(0, 1) for name, tensor in outputs}


def torch_dtype(space: spaces.Space[Any]) -> torch.dtype:
    """The tensor type of a space's elements."""
    return torch.from_numpy(np.zeros(0, space.dtype)).dtype


def networks_by_step(
    given: Sequence[Item] | Mapping[StepKey, Item], step_keys: Sequence[StepKey]
) -> dict[StepKey, Item]:
    """Assign networks to sub-steps, in the order of `step_keys`.

    A list is in the order of the sub-steps. Keys of a dict may be strings where sub-steps are
    numbers, as in configuration files.

    Raises:
        ValueError: There is not exactly one network per sub-step.
    """
    if not isinstance(given, Mapping):
        if len(given) != len(step_keys):
            raise ValueError(f"got {len(given)} networks for the {len(step_keys)} sub-steps {list(step_keys)}")
        return dict(zip(step_keys, given, strict=True))
    by_name = {str(key): item for key, item in given.items()}
    if set(by_name) != {str(key) for key in step_keys} or len(by_name) != len(given):
        raise ValueError(f"got networks for {list(given)}, expected one for each sub-step of {list(step_keys)}")
    return {key: by_name[str(key)] for key in step_keys}
