"""Network inputs, recurrent evaluation, and the assignment of networks to sub-steps."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

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
        network: The network; all its parameters have one type and are on one device. Its attribute
            `input_dtype`, a `torch.dtype`, is the type of its inputs if that is another one.
        names: Observations that it uses; all if None.
    """

    def __init__(self, network: nn.Module, names: Collection[str] | None = None) -> None:
        self._names = names
        floats = (item for item in network.parameters() if item.dtype.is_floating_point)
        # This object survives moves and conversions of the network, and reading it is cheap.
        self._reference = next(floats, torch.empty(0))
        declared: Any = getattr(network, "input_dtype", None)
        self._dtype: torch.dtype | None = declared if isinstance(declared, torch.dtype) else None

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return self._reference.device

    @property
    def largest(self) -> float:
        """Largest finite number of the network's type."""
        return torch.finfo(self._reference.dtype).max

    def __call__(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Move observations [..., *shape] to the network's device, and floats to the type of its inputs."""
        dtype = self._dtype or self._reference.dtype
        device = self._reference.device
        moved = {}
        for name, value in observation.items():
            if self._names is None or name in self._names:
                is_float = value.is_floating_point()
                moved[name] = value.to(device, dtype) if is_float else value.to(device)
        return moved


def state_shapes(network: nn.Module) -> StateShapes:
    """Return a network's recurrent state: all entries of its modules' `state_shapes` attributes."""
    shapes: StateShapes = {}
    for module in network.modules():
        for name, shape in getattr(module, "state_shapes", {}).items():
            shapes[name] = tuple(shape)
    return shapes


@runtime_checkable
class HasLatent(Protocol):
    """A network that can also return the features from which it computes its outputs."""

    def return_latent(self) -> int:
        """Have `forward` also return the features, as "latent" [..., L]; return L. May be called again."""
        ...


LATENT = "latent"
"""Name of the features in the outputs of a network."""


def request_latent(network: nn.Module, where: str) -> int:
    """Have a network return its features, and return their number.

    Args:
        network: The network.
        where: Description of the network for messages.

    Raises:
        ValueError: It cannot return them.
    """
    if not isinstance(network, HasLatent):
        needed = "exploration with gsde needs the features from which it computes the means"
        remedy = "give it a method return_latent, see docs/action_distributions.md, or use a template"
        raise ValueError(f"{where}, a {type(network).__name__}: {needed}: {remedy}")
    return network.return_latent()


def auxiliary_shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's auxiliary outputs by name: its attribute `auxiliary_shapes`.

    Auxiliary outputs are tensors that a network returns besides its logits or value, for losses.
    """
    declared: Mapping[str, tuple[int, ...]] = getattr(network, "auxiliary_shapes", {})
    return {name: tuple(shape) for name, shape in declared.items()}


def read_keys(network: nn.Module) -> frozenset[str] | None:
    """Return the inputs that a network reads: its attribute `read_keys`; None if it has none."""
    declared: frozenset[str] | None = getattr(network, "read_keys", None)
    return declared


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
    observation = {name: tensor for name, tensor in inputs.items() if name not in shapes}
    state = {name: tensor for name, tensor in inputs.items() if name in shapes}
    n_acts = len(next(iter(observation.values())))
    if not state:
        like = next(network.parameters())
        state = {name: like.new_zeros(n_acts, *shape) for name, shape in shapes.items()}
    n_actors = len(next(iter(state.values())))
    is_sequence = n_acts != n_actors
    if is_sequence:
        for name, tensor in observation.items():  # [L * S, ...] -> [L, S, ...]
            observation[name] = tensor.reshape(-1, n_actors, *tensor.shape[1:])
    outputs = {}
    for name, tensor in network({**observation, **state}).items():
        has_acts = is_sequence and name not in shapes
        outputs[name] = tensor.flatten(0, 1) if has_acts else tensor  # [L, S, ...] -> [L * S, ...]
    return outputs


def torch_dtype(space: spaces.Space[Any]) -> torch.dtype:
    """The tensor type of a space's elements."""
    return torch.from_numpy(np.zeros(0, space.dtype)).dtype


def networks_by_step(
    networks: Sequence[Item] | Mapping[StepKey, Item], step_keys: Sequence[StepKey]
) -> dict[StepKey, Item]:
    """Assign networks to sub-steps, in the order of `step_keys`.

    A list is in the order of the sub-steps. Keys of a dict may be strings where sub-steps are
    numbers, as in configuration files.

    Raises:
        ValueError: There is not exactly one network per sub-step.
    """
    if not isinstance(networks, Mapping):
        if len(networks) != len(step_keys):
            expected = f"the {len(step_keys)} sub-steps {list(step_keys)}"
            raise ValueError(f"got {len(networks)} networks for {expected}")
        return dict(zip(step_keys, networks, strict=True))
    by_name = {str(key): item for key, item in networks.items()}
    if set(by_name) != {str(key) for key in step_keys} or len(by_name) != len(networks):
        expected = f"one for each sub-step of {list(step_keys)}"
        raise ValueError(f"got networks for {list(networks)}, expected {expected}")
    return {key: by_name[str(key)] for key in step_keys}
