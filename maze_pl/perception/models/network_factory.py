"""Builds the networks that users name, and finds out at once whether they fit the spaces."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.network_io import NetworkInput, networks_by_step, state_shapes, torch_dtype
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import evaluation_mode

Shapes = Mapping[str, tuple[int, ...]]
Factory = TypeVar("Factory", bound=Callable[..., nn.Module])


class PolicyNetworkFactory(Protocol):
    """A policy network class with all its arguments but the shapes, as `class_path` and `init_args` in YAML."""

    def __call__(self, *, obs_shapes: dict[str, Any], action_logits_shapes: dict[str, Any]) -> nn.Module:
        """Make the network; both arguments map names to shapes (tuples) without batch dimensions."""


class CriticNetworkFactory(Protocol):
    """A state critic network class with all its arguments but the shapes, as `class_path` and `init_args` in YAML."""

    def __call__(self, *, obs_shapes: dict[str, Any], policy_network: nn.Module) -> nn.Module:
        """Make the network; `obs_shapes` maps names to shapes (tuples) without batch dimensions.

        A constructor without `policy_network` does not get it; one that has it gets the policy's network of the same
        sub-step, of which the critic's network may use parts.
        """


def factories_by_step(
    networks: Sequence[Factory] | Mapping[StepKey, Factory] | None, step_keys: Sequence[StepKey]
) -> dict[StepKey, Factory]:
    """Assign factories to sub-steps; a single one in a list makes the networks of all sub-steps.

    Raises:
        ValueError: There is not exactly one for each sub-step, or one finished network would be used by several.
    """
    if networks is None:
        raise ValueError("networks are needed: name their classes, or use a TemplateModelComposer")
    if not isinstance(networks, Mapping) and len(networks) == 1 and len(step_keys) > 1:
        if isinstance(networks[0], nn.Module):
            raise ValueError(f"one finished network cannot serve the sub-steps {list(step_keys)}; give its class")
        return dict.fromkeys(step_keys, networks[0])
    return networks_by_step(networks, step_keys)


def takes(factory: Callable[..., Any], argument: str) -> bool:
    """Whether a class wants an argument, alone or in a `partial` that does not have it yet."""
    while isinstance(factory, partial):
        if argument in factory.keywords:
            return False
        classes = (item for item in factory.args if isinstance(item, type))  # of what configurations name
        factory = next(classes, factory.func)
    return callable(factory) and argument in inspect.signature(factory).parameters


def build_network(
    factory: Callable[..., nn.Module], observation_space: spaces.Dict, expected: Shapes, where: str, **arguments: Any
) -> nn.Module:
    """Make a network and run it once on zeros.

    Args:
        factory: Called with `obs_shapes` and `arguments`, unless it is a finished network.
        observation_space: What the network sees.
        expected: Name of each output -> its shape, without the batch dimension; a state that the network carries is
            expected too.
        where: Which network it is, for messages.
        arguments: Further arguments for the factory.

    Raises:
        TypeError: The factory does not give a network, or the network does not give a dict of tensors.
        ValueError: The network cannot be made or run, or its outputs have wrong names or shapes.
    """
    network: Any = factory
    if not isinstance(factory, nn.Module):
        shapes = {name: tuple(space.shape or ()) for name, space in observation_space.spaces.items()}
        given = {"obs_shapes": shapes, **arguments}
        try:
            network = factory(**given)
        except Exception as error:  # of any kind, since the network may be the user's
            raise ValueError(f"{where} cannot be made with {', '.join(given)}: {_said(error)}") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"{where}: {factory} gave a {type(network).__name__}, expected a torch.nn.Module")
    _check(network, observation_space, {**expected, **state_shapes(network)}, f"{where} ({type(network).__name__})")
    return network


def on_zeros(network: nn.Module, observation_space: spaces.Dict) -> Any:
    """What a network gives for a batch of two zero observations, in evaluation mode so that it learns nothing of them.

    One that carries a state gets that as zeros, too.
    """
    seen = observation_space.spaces.items()
    zeros = {name: torch.zeros((2, *(space.shape or ())), dtype=torch_dtype(space)) for name, space in seen}
    zeros |= {name: torch.zeros(2, *shape) for name, shape in state_shapes(network).items()}
    with evaluation_mode(network), torch.no_grad():
        return network(NetworkInput(network)(zeros))


def _check(network: nn.Module, observation_space: spaces.Dict, expected: Shapes, where: str) -> None:
    """Run the network on zeros, and refuse what does not give what is expected."""
    try:
        output = on_zeros(network, observation_space)
    except Exception as error:  # of any kind, since the network may be the user's
        zeros = {name: f"{space.dtype} {(2, *(space.shape or ()))}" for name, space in observation_space.items()}
        raise ValueError(f"{where}: forward failed for the zeros {zeros}: {_said(error)}") from error
    if not isinstance(output, Mapping):
        raise TypeError(f"{where}: forward gave a {type(output).__name__}, expected a dict with {sorted(expected)}")
    if set(output) != set(expected):
        raise ValueError(f"{where}: forward gave the keys {sorted(map(str, output))}, expected {sorted(expected)}")
    for name, shape in expected.items():
        tensor, wanted, what = output[name], (2, *shape), f"{where}: output {name!r} for a batch of 2"
        if not (isinstance(tensor, Tensor) and tensor.is_floating_point()):
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise TypeError(f"{what} is a {kind}, expected a tensor of floats of shape {wanted}")
        if tuple(tensor.shape) != wanted:
            raise ValueError(f"{what} has shape {tuple(tensor.shape)}, expected {wanted}")


def _said(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
