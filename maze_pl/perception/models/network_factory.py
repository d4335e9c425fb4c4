"""Builds the networks that users name, and finds out at once whether they fit the spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.network_io import NetworkInput, networks_by_step, torch_dtype
from maze_pl.core.actor_id import StepKey

Shapes = Mapping[str, tuple[int, ...]]
Factory = TypeVar("Factory", bound=Callable[..., nn.Module])


class PolicyNetworkFactory(Protocol):
    """A policy network class with all its arguments but the shapes, as `class_path` and `init_args` in YAML."""

    def __call__(self, *, obs_shapes: dict[str, Any], action_logits_shapes: dict[str, Any]) -> nn.Module:
        """Make the network; both arguments map names to shapes (tuples) without batch dimensions."""


class CriticNetworkFactory(Protocol):
    """A state critic network class with all its arguments but the shapes, as `class_path` and `init_args` in YAML."""

    def __call__(self, *, obs_shapes: dict[str, Any]) -> nn.Module:
        """Make the network; `obs_shapes` maps names to shapes (tuples) without batch dimensions."""


def factories_by_step(
    networks: Sequence[Factory] | Mapping[StepKey, Factory], step_keys: Sequence[StepKey]
) -> dict[StepKey, Factory]:
    """Assign factories to sub-steps; a single one in a list makes the networks of all sub-steps.

    Raises:
        ValueError: There is not exactly one for each sub-step, or one finished network would be used by several.
    """
    if not isinstance(networks, Mapping) and len(networks) == 1 and len(step_keys) > 1:
        if isinstance(networks[0], nn.Module):
            raise ValueError(f"one finished network cannot serve the sub-steps {list(step_keys)}; give its class")
        return dict.fromkeys(step_keys, networks[0])
    return networks_by_step(networks, step_keys)


def build_network(
    factory: Callable[..., nn.Module], observation_space: spaces.Dict, expected: Shapes, where: str, **shapes: Any
) -> nn.Module:
    """Make a network and run it once on zeros.

    Args:
        factory: Called with `obs_shapes` and `shapes`, unless it is a finished network.
        observation_space: What the network sees.
        expected: Name of each output -> its shape, without the batch dimension.
        where: Which network it is, for messages.
        shapes: Further arguments for the factory.

    Raises:
        TypeError: The factory does not give a network, or the network does not give a dict of tensors.
        ValueError: The outputs have wrong names or shapes.
    """
    if isinstance(factory, nn.Module):
        network: Any = factory
    else:
        network = factory(obs_shapes=_shapes(observation_space), **shapes)
    if not isinstance(network, nn.Module):
        raise TypeError(f"{where}: {factory} gave a {type(network).__name__}, expected a torch.nn.Module")
    _check(network, observation_space, expected, f"{where} ({type(network).__name__})")
    return network


def _shapes(space: spaces.Dict) -> dict[str, tuple[int, ...]]:
    return {name: tuple(child.shape or ()) for name, child in space.spaces.items()}


def _check(network: nn.Module, observation_space: spaces.Dict, expected: Shapes, where: str) -> None:
    """Run the network on a batch of two zero observations, in evaluation mode so that it learns nothing from them."""
    zeros = {
        name: torch.zeros((2, *(space.shape or ())), dtype=torch_dtype(space))
        for name, space in observation_space.spaces.items()
    }
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        with torch.no_grad():
            output = network(NetworkInput(network)(zeros))
    finally:
        for module in training:
            module.training = True
    if not isinstance(output, Mapping):
        raise TypeError(f"{where}: forward gave a {type(output).__name__}, expected a dict with {sorted(expected)}")
    if set(output) != set(expected):
        raise ValueError(f"{where}: forward gave the keys {sorted(output)}, expected {sorted(expected)}")
    for name, shape in expected.items():
        _check_output(output[name], (2, *shape), f"{where}: output {name!r} for a batch of 2")


def _check_output(output: Any, shape: tuple[int, ...], what: str) -> None:
    if not isinstance(output, Tensor):
        raise TypeError(f"{what} is a {type(output).__name__}, expected a tensor of shape {shape}")
    if tuple(output.shape) != shape:
        raise ValueError(f"{what} has shape {tuple(output.shape)}, expected {shape}")
