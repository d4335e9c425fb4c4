"""Shared parts of composers, which make policies and critics for a spec."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from gymnasium import spaces
from torch import nn

from maze_pl import agents
from maze_pl.agents.critic_inputs import with_agents
from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.perception.builders import BaseModelBuilder
from maze_pl.perception.network_construction import build_network
from maze_pl.perception.network_factories import (
    CriticNetworkFactory,
    Factory,
    StateActionNetworkFactory,
    factories_by_step,
    require_several,
    takes,
)

Networks = list[Factory] | dict[StepKey, Factory]
"""Network classes in the order of the sub-steps, or by key."""


class CriticComposerInterface(ABC):
    """Makes a critic that fits a spec."""

    networks: Any

    @abstractmethod
    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> agents.Critic:
        """Make the networks, test each of them on zeros, and combine them into a critic.

        Args:
            spec: Sub-steps with their observation and action spaces.
            policy: The policy; the critic's networks may share parts of its networks.

        Raises:
            ValueError: The networks do not fit the sub-steps, or do not return the expected
                outputs.
            TypeError: A network or its outputs have the wrong type.
        """

    def check_template(self, model_builder: BaseModelBuilder) -> None:  # noqa: B027  # optional hook
        """Refuse a template whose options the critic cannot fulfil.

        Raises:
            ValueError: It shares blocks that cannot be shared.
        """

    @abstractmethod
    def template_networks(self, model_builder: BaseModelBuilder, spec: Spec) -> Any:
        """Return the template's network factories, used where no networks are named.

        Args:
            model_builder: The template.
            spec: Sub-steps with their observation and action spaces.

        Returns:
            Factories by sub-step, or a list with a single one.
        """


class StateCriticComposerInterface(CriticComposerInterface):
    """Makes a state critic that fits a spec.

    Args:
        networks: Network classes by class path, one for each sub-step, in order or by key. A single
            one in a list makes a network for each sub-step; null uses the networks of a template.
            The constructor gets `obs_shapes` (name -> tuple), its `init_args` and, if it has such
            an argument, `policy_network`, the policy's network of the same sub-step. `forward` maps
            a dict of observations to `{"value": [B, 1]}`.
    """

    critic: ClassVar[type[agents.StateCritic]]

    def __init__(self, networks: Networks[CriticNetworkFactory] | None = None) -> None:
        require_several(networks, type(self).__name__)
        self.networks = networks

    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> agents.StateCritic:
        """Make the networks, test each of them on zeros, and combine them into a critic.

        Args:
            spec: Sub-steps with their observation and action spaces.
            policy: The policy; the critic's networks may share parts of its networks.

        Raises:
            ValueError: The networks do not fit the sub-steps, do not return `{"value": [B, 1]}`, or
                share parts with a policy that does not have exactly one network for the same
                observations.
            TypeError: A network or its outputs have the wrong type.
        """
        critic_inputs = self.critic.critic_inputs(spec)
        networks: dict[StepKey, nn.Module] = {}
        for key, factory in factories_by_step(self.networks, tuple(critic_inputs)).items():
            where = f"critic network of sub-step {key!r}"
            keys: Sequence[StepKey] = (key,)
            if self.critic.kind == "shared":
                where = "shared critic network"
                keys = spec.step_keys
            networks[key] = _network(factory, critic_inputs[key], where, policy, keys)
        return self.critic(networks, spec)

    def template_networks(self, model_builder: BaseModelBuilder, spec: Spec) -> Any:
        """Return factories of value networks, which share blocks where the template says so."""
        factories: dict[StepKey, Any] = {}
        for key in self.critic.critic_inputs(spec):
            step_keys: Sequence[StepKey] = (key,)
            if self.critic.kind == "shared":
                step_keys = spec.step_keys
            factories[key] = partial(model_builder.critic_network, policy_network=None)
            for step_key in step_keys:
                if model_builder.shared_keys(step_key):
                    factories[key] = partial(model_builder.critic_network, step_key=step_key)
        return factories


def _network(
    factory: CriticNetworkFactory,
    space: spaces.Dict,
    where: str,
    policy: TorchPolicy | None,
    keys: Sequence[StepKey],
) -> nn.Module:
    """Make a network, passing the policy's network for the same sub-steps if its class takes it."""
    if not takes(factory, "policy_network"):
        return build_network(factory, space, {"value": (1,)}, where, may_have_auxiliary=True)
    policy_networks = []
    if policy is not None:
        for key, networks in zip(policy.spec.step_keys, policy.networks, strict=True):
            if key in keys:
                policy_networks += networks.children()
    if len(policy_networks) != 1:
        shares = f"{where} shares parts with the policy's network for the same observations"
        remedy = "use a critic for each sub-step, agents without separate networks, or share nothing"
        raise ValueError(f"{shares}, which must be one network, not {len(policy_networks)}: {remedy}")
    options = {"policy_network": policy_networks[0]}
    return build_network(factory, space, {"value": (1,)}, where, may_have_auxiliary=True, **options)


def _substeps_with_separate_networks(policy: TorchPolicy) -> list[StepKey]:
    """Return the sub-steps in which several agents have separate policy networks."""
    keys = zip(policy.spec.step_keys, policy.networks, strict=True)
    return [key for key, networks in keys if len(networks) > 1]


def _shapes(space: spaces.Dict) -> dict[str, tuple[int, ...]]:
    """Shapes of the parts of a space, by name."""
    return {name: tuple(part.shape or ()) for name, part in space.spaces.items()}


class StateActionCriticComposer(CriticComposerInterface, ABC):
    """Makes twin Q-networks: two instances of each class, with different initial weights.

    Args:
        networks: Network classes by class path; null uses the networks of a template. The
            constructor gets `obs_shapes`, `action_shapes` (continuous heads of the action) and
            `q_shapes` (outputs), each name -> tuple, and its `init_args`. `forward` maps a dict of
            observations and continuous heads to a dict of outputs [B, L], see
            `TorchStateActionCritic.q_values`. Where agents have separate policy networks, there is
            the further observation `agent`, a one-hot vector.
    """

    critic: ClassVar[type[agents.TorchStateActionCritic]]

    def __init__(self, networks: Networks[StateActionNetworkFactory] | None = None) -> None:
        require_several(networks, type(self).__name__)
        self.networks = networks

    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> agents.TorchStateActionCritic:
        """Make the networks, test each of them on zeros, and combine them into a critic."""
        separate = [] if policy is None else _substeps_with_separate_networks(policy)
        critic_inputs = self.critic.critic_inputs(with_agents(spec, separate))
        pairs = []
        for key, factory in factories_by_step(self.networks, tuple(critic_inputs)).items():
            inputs = critic_inputs[key]
            where = f"state-action network of sub-step {key!r}"
            if isinstance(factory, nn.Module):
                refused = "one network instance cannot serve as both twins"
                raise ValueError(f"{where}: {refused}; give its class")
            all_spaces = {**inputs.observation_space.spaces, **inputs.action_space.spaces}
            build = partial(
                build_network,
                factory,
                spaces.Dict(all_spaces),
                inputs.q_shapes,
                where,
                obs_shapes=_shapes(inputs.observation_space),
                action_shapes=_shapes(inputs.action_space),
                q_shapes=dict(inputs.q_shapes),
            )
            pairs.append([build(), build()])
        return self.critic(pairs, spec, separate)

    def check_template(self, model_builder: BaseModelBuilder) -> None:
        """Refuse a template that shares blocks."""
        if model_builder.shared_embedding_keys:
            raise ValueError(
                "a state-action critic has two networks and two target networks, none of which can "
                "share blocks with the policy's: set shared_embedding_keys: null"
            )

    def template_networks(self, model_builder: BaseModelBuilder, spec: Spec) -> Any:
        """Return the factory of both twin networks."""
        return [model_builder.state_action_network]
