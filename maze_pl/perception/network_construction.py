"""Construction of networks, which are run once on zeros and checked immediately."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.network_io import (
    LATENT,
    NetworkInput,
    auxiliary_shapes,
    request_latent,
    state_shapes,
    torch_dtype,
)
from maze_pl.core.policy import evaluation_mode
from maze_pl.perception.network_factories import Shapes, takes


def build_network(
    factory: Callable[..., nn.Module],
    observation_space: spaces.Dict,
    expected: Shapes,
    where: str,
    *,
    with_latent: bool = False,
    may_have_auxiliary: bool = False,
    **arguments: Any,
) -> nn.Module:
    """Make a network and run it once on zeros.

    Args:
        factory: Called with `obs_shapes`, `arguments` and, if it has such an argument,
            `observation_space`; or a network instance.
        observation_space: Observations of the network.
        expected: Name of each output -> its shape, without the batch dimension; the state of a
            recurrent network is expected, too.
        where: Description of the network for messages.
        with_latent: Whether the network also returns its features, see `HasLatent`.
        may_have_auxiliary: True if the network may declare auxiliary outputs, which are then expected, too.
        arguments: Further arguments for the factory.

    Raises:
        TypeError: The factory does not return a network, or the network does not return a dict of
            tensors.
        ValueError: The network cannot be made or run, or its outputs have wrong names or shapes.
    """
    network: Any = factory
    if not isinstance(factory, nn.Module):
        network = _made(factory, observation_space, where, arguments)
    class_name = type(network).__name__
    if not isinstance(network, nn.Module):
        raise TypeError(f"{where}: {factory} returned a {class_name}, expected a torch.nn.Module")
    outputs = {**expected, **state_shapes(network)}
    if with_latent:
        outputs[LATENT] = (request_latent(network, where),)
    if may_have_auxiliary:
        clashing = sorted(outputs.keys() & auxiliary_shapes(network).keys())
        if clashing:
            reason = "which are names of other outputs: rename them"
            raise ValueError(f"{where} ({class_name}): auxiliary_shapes names {clashing}, {reason}")
        outputs |= auxiliary_shapes(network)
    _check(network, observation_space, outputs, f"{where} ({class_name})")
    return network


def _made(
    factory: Callable[..., nn.Module],
    observation_space: spaces.Dict,
    where: str,
    arguments: Mapping[str, Any],
) -> Any:
    """Call a factory; arguments as for `build_network`."""
    shapes = {name: tuple(space.shape or ()) for name, space in observation_space.spaces.items()}
    passed = {"obs_shapes": shapes, **arguments}
    if takes(factory, "observation_space"):
        passed["observation_space"] = observation_space
    try:
        return factory(**passed)
    except Exception as error:  # any exception, as the network may be user code
        refused = f"{where} cannot be made with {', '.join(passed)}"
        raise ValueError(f"{refused}: {_text_of(error)}") from error


def on_zeros(network: nn.Module, observation_space: spaces.Dict) -> Any:
    """Run a network on two zero observations, in evaluation mode so that it updates no statistics.

    A recurrent network gets a state of zeros, too.
    """
    zeros = {}
    for name, space in observation_space.spaces.items():
        zeros[name] = torch.zeros((2, *(space.shape or ())), dtype=torch_dtype(space))
    for name, shape in state_shapes(network).items():
        zeros[name] = torch.zeros(2, *shape)
    with evaluation_mode(network), torch.no_grad():
        return network(NetworkInput(network)(zeros))


def _check(network: nn.Module, observation_space: spaces.Dict, expected: Shapes, where: str) -> None:
    """Run the network on zeros, and refuse unexpected outputs."""
    try:
        output = on_zeros(network, observation_space)
    except Exception as error:  # any exception, as the network may be user code
        zeros = {name: f"{space.dtype} {(2, *(space.shape or ()))}" for name, space in observation_space.items()}
        failed = f"{where}: forward failed for the zeros {zeros}"
        raise ValueError(f"{failed}: {_text_of(error)}") from error
    names = sorted(expected)
    if not isinstance(output, Mapping):
        found = f"forward returned a {type(output).__name__}"
        raise TypeError(f"{where}: {found}, expected a dict with {names}")
    if set(output) != set(expected):
        found = f"forward returned the keys {sorted(map(str, output))}"
        raise ValueError(f"{where}: {found}, expected {names}")
    for name, shape in expected.items():
        _check_output(output[name], (2, *shape), f"{where}: output {name!r} for a batch of 2")


def _check_output(output: Any, shape: tuple[int, ...], what: str) -> None:
    """Refuse an output that is not a tensor of floats of a shape."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        found = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(f"{what} is a {found}, expected a tensor of floats of shape {shape}")
    if tuple(output.shape) != shape:
        raise ValueError(f"{what} has shape {tuple(output.shape)}, expected {shape}")


def _text_of(error: Exception) -> str:
    """Text of an error, with its type unless it is a plain ValueError."""
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
