"""Factories of networks: classes that users name, which get the shapes of their tensors."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gymnasium import spaces
from torch import nn

from maze_pl.agents.network_io import networks_by_step
from maze_pl.core.actor_id import StepKey

Shapes = Mapping[str, tuple[int, ...]]
Factory = TypeVar("Factory", bound=Callable[..., nn.Module])


if TYPE_CHECKING:  # a class may omit arguments it does not need, which a protocol cannot express
    PolicyNetworkFactory = Callable[..., nn.Module]
    CriticNetworkFactory = Callable[..., nn.Module]
    StateActionNetworkFactory = Callable[..., nn.Module]
else:  # by these, the configuration knows which constructor arguments it does not set

    class PolicyNetworkFactory(Protocol):
        """A policy network class with all its arguments but the shapes, as in YAML."""

        def __call__(
            self,
            *,
            obs_shapes: dict[str, Any],
            action_logits_shapes: dict[str, Any],
            observation_space: spaces.Dict,
        ) -> nn.Module:
            """Make the network; shapes are tuples by name, without batch dimensions.

            `observation_space` is passed only if the constructor has such an argument.
            """

    class CriticNetworkFactory(Protocol):
        """A state critic network class with all its arguments but the shapes, as in YAML."""

        def __call__(
            self,
            *,
            obs_shapes: dict[str, Any],
            policy_network: nn.Module,
            observation_space: spaces.Dict,
        ) -> nn.Module:
            """Make the network; `obs_shapes` maps names to shapes (tuples) without batch dimensions.

            `policy_network` and `observation_space` are passed only if the constructor has such an
            argument. `policy_network` is the policy's network of the same sub-step; the critic's
            network may share parts of it.
            """

    class StateActionNetworkFactory(Protocol):
        """A state-action critic network class with all its arguments but the shapes, as in YAML."""

        def __call__(
            self,
            *,
            obs_shapes: dict[str, Any],
            action_shapes: dict[str, Any],
            q_shapes: dict[str, Any],
            observation_space: spaces.Dict,
        ) -> nn.Module:
            """Make the network; all arguments map names to shapes (tuples) without batch dimensions.

            `action_shapes`: shapes of the continuous heads of the action, which are inputs in
            addition to the observations. `q_shapes`: shapes of the outputs, (L,) for each discrete
            head, with L the number of options of all its choices, two for a bit; {"q_value": (1,)}
            if there is no discrete head.
            """


def require_several(networks: Any, composer: str) -> None:
    """Refuse a network class that is not in a list or a dict.

    Args:
        networks: The option `networks` of a composer.
        composer: Its class.

    Raises:
        TypeError: It is something else, and not None.
    """
    if networks is None or (isinstance(networks, Sequence | Mapping) and not isinstance(networks, str)):
        return
    name = getattr(networks, "__name__", type(networks).__name__)
    expected = f"a list, such as {composer}([{name}]), or a dict by sub-step"
    raise TypeError(f"networks of a {composer} must be {expected}, not {name} alone")


def factories_by_step(
    networks: Sequence[Factory] | Mapping[StepKey, Factory] | None, step_keys: Sequence[StepKey]
) -> dict[StepKey, Factory]:
    """Assign factories to sub-steps, or a single one to `all`.

    A single factory in a list makes the networks of all sub-steps.

    Raises:
        ValueError: There is not exactly one factory per sub-step, or several sub-steps would use
            the same network instance.
    """
    if networks is None:
        raise ValueError("networks are needed: name their classes, or use a TemplateModelComposer")
    if list(step_keys) == ["all"]:
        if len(networks) != 1:
            found = f"got {len(networks)}"
            raise ValueError(f"a shared critic has one network for all sub-steps, {found}")
        factories = networks.values() if isinstance(networks, Mapping) else networks
        return {"all": next(iter(factories))}
    if not isinstance(networks, Mapping) and len(networks) == 1 and len(step_keys) > 1:
        if isinstance(networks[0], nn.Module):
            refused = f"one network instance cannot serve the sub-steps {list(step_keys)}"
            raise ValueError(f"{refused}; give its class")
        return dict.fromkeys(step_keys, networks[0])
    return networks_by_step(networks, step_keys)


def takes(factory: Callable[..., Any], argument: str) -> bool:
    """True if a class has an argument that no `partial` around it has bound yet."""
    while isinstance(factory, partial):
        if argument in factory.keywords:
            return False
        # a class from the configuration is an argument of the function that makes it
        classes = (item for item in factory.args if isinstance(item, type))
        factory = next(classes, factory.func)
    return callable(factory) and argument in inspect.signature(factory).parameters
