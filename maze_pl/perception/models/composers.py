"""Composers, which make policies and critics for a spec, from named classes or from a template."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar

from gymnasium import spaces
from torch import nn

from maze_pl import agents
from maze_pl.agents.policy_step_parts import PolicyNetworks, separate_agent_counts
from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.distributions.distribution_mapper import DistributionMapperConfig, distribution_mappers
from maze_pl.perception.builders import BaseModelBuilder
from maze_pl.perception.network_construction import build_network
from maze_pl.perception.network_factories import (
    CriticNetworkFactory,
    Factory,
    PolicyNetworkFactory,
    StateActionNetworkFactory,
    factories_by_step,
    takes,
)

Networks = list[Factory] | dict[StepKey, Factory]
"""Network classes in the order of the sub-steps, or by key."""


class ProbabilisticPolicyComposer:
    """Makes a policy whose networks return the parameters of probability distributions.

    Args:
        networks: Network classes by class path, one for each sub-step, in order or by key. A single
            one in a list makes a network for each sub-step; null uses the networks of a template.
            The constructor gets `obs_shapes` and `action_logits_shapes` (name -> tuple) and its
            `init_args`; `forward` maps a dict of observations to a dict of logits, one entry per
            head.
        substeps_with_separate_agent_nets: Sub-steps in which each agent has its own network.
    """

    def __init__(
        self,
        networks: Networks[PolicyNetworkFactory] | None = None,
        substeps_with_separate_agent_nets: list[StepKey] | None = None,
    ) -> None:
        self.networks = networks
        self.substeps_with_separate_agent_nets = substeps_with_separate_agent_nets or []

    def compose(self, spec: Spec, distribution_mapper_config: DistributionMapperConfig | None = None) -> TorchPolicy:
        """Make the networks, test each of them on zeros, and combine them into a policy.

        Args:
            spec: Sub-steps with their observation and action spaces.
            distribution_mapper_config: Overrides of distributions, see `DistributionMapper`.

        Raises:
            ValueError: The networks do not fit the sub-steps, or their outputs do not fit the
                action heads.
            TypeError: A network or its outputs have the wrong type, or no distribution fits a head.
        """
        separate = separate_agent_counts(spec, self.substeps_with_separate_agent_nets)
        mappers = distribution_mappers(spec, distribution_mapper_config)
        networks: dict[StepKey, PolicyNetworks] = {}
        for key, factory in factories_by_step(self.networks, spec.step_keys).items():
            step = spec.steps[key]
            shapes = mappers[key].logits_shapes
            count = separate.get(key, 1)
            if count > 1 and isinstance(factory, nn.Module):
                refused = f"one network cannot serve {count} agents of sub-step {key!r}"
                raise ValueError(f"{refused}; give its class instead")
            networks_of_key = []
            for agent in range(count):
                where = f"policy network of sub-step {key!r}"
                if key in separate:
                    where += f", agent {agent}"
                network = build_network(
                    factory,
                    step.observation_space,
                    shapes,
                    where,
                    action_logits_shapes=dict(shapes),
                )
                networks_of_key.append(network)
            networks[key] = networks_of_key
        return TorchPolicy(networks, spec, distribution_mapper_config, list(separate))


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

    @abstractmethod
    def template_network(self, model_builder: BaseModelBuilder) -> Any:
        """Return the template's network factory, used where no networks are named."""


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

    def template_network(self, model_builder: BaseModelBuilder) -> Any:
        """Return the factory of the value network, which shares blocks if the template says so."""
        alone = partial(model_builder.critic_network, policy_network=None)
        return model_builder.critic_network if model_builder.shared_embedding_keys else alone


class SharedStateCriticComposer(StateCriticComposerInterface):
    """One critic for all sub-steps and agents; the choice for flat environments.

    Args:
        networks: One network class by class path; null uses the network of a template. The
            constructor gets `obs_shapes` (name -> tuple), its `init_args` and, if it has such an
            argument, `policy_network`, the policy's only network. `forward` maps a dict of
            observations to `{"value": [B, 1]}`. With several sub-steps, the inputs are the
            observations of all of them, see `TorchSharedStateCritic`.
    """

    critic = agents.TorchSharedStateCritic


class StepStateCriticComposer(StateCriticComposerInterface):
    """One critic per sub-step, which evaluates each actor on its own stream of acts.

    Args:
        networks: As for `StateCriticComposerInterface`.
    """

    critic = agents.TorchStepStateCritic


class DeltaStateCriticComposer(StateCriticComposerInterface):
    """A critic for environments whose sub-steps act once each, in the same order, in every environment step.

    The first sub-step's network estimates the value; each later one estimates the difference to the
    previous sub-step's value, see `TorchDeltaStateCritic`. The reward is the total of the
    environment step, even if the environment attributes rewards to actors.

    Args:
        networks: As for `StateCriticComposerInterface`.
    """

    critic = agents.TorchDeltaStateCritic


def _network(
    factory: CriticNetworkFactory,
    space: spaces.Dict,
    where: str,
    policy: TorchPolicy | None,
    keys: Sequence[StepKey],
) -> nn.Module:
    """Make a network, passing the policy's network for the same sub-steps if its class takes it."""
    if not takes(factory, "policy_network"):
        return build_network(factory, space, {"value": (1,)}, where)
    policy_networks = []
    if policy is not None:
        for key, networks in zip(policy.spec.step_keys, policy.networks, strict=True):
            if key in keys:
                policy_networks += networks.children()
    if len(policy_networks) != 1:
        shares = f"{where} shares parts with the policy's network for the same observations"
        remedy = "use a critic for each sub-step, agents without separate networks, or share nothing"
        raise ValueError(f"{shares}, which must be one network, not {len(policy_networks)}: {remedy}")
    return build_network(factory, space, {"value": (1,)}, where, policy_network=policy_networks[0])


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
            `TorchStateActionCritic.q_values`.
    """

    critic: ClassVar[type[agents.TorchStateActionCritic]]

    def __init__(self, networks: Networks[StateActionNetworkFactory] | None = None) -> None:
        self.networks = networks

    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> agents.TorchStateActionCritic:
        """Make the networks, test each of them on zeros, and combine them into a critic."""
        critic_inputs = self.critic.critic_inputs(spec)
        pairs = []
        for key, factory in factories_by_step(self.networks, tuple(critic_inputs)).items():
            inputs = critic_inputs[key]
            where = f"state-action network of sub-step {key!r}"
            if isinstance(factory, nn.Module):
                refused = "one finished network cannot be two of them"
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
        return self.critic(pairs, spec)

    def template_network(self, model_builder: BaseModelBuilder) -> Any:
        """Return the factory of both twin networks."""
        if model_builder.shared_embedding_keys:
            raise ValueError(
                "a state-action critic has two networks and two target networks, none of which can "
                "share blocks with the policy's: set shared_embedding_keys: null"
            )
        return model_builder.state_action_network


class SharedStateActionCriticComposer(StateActionCriticComposer):
    """One pair of networks for all sub-steps and agents; the choice for flat environments.

    Args:
        networks: One network class, as for `StateActionCriticComposer`. With several sub-steps, the
            inputs are the entries of all of them, see `TorchSharedStateActionCritic`.
    """

    critic = agents.TorchSharedStateActionCritic


class StepStateActionCriticComposer(StateActionCriticComposer):
    """A pair of networks for each sub-step, shared by its agents.

    Args:
        networks: One network class per sub-step, in order or by key; a single one in a list makes
            the networks of all sub-steps. See `StateActionCriticComposer`.
    """

    critic = agents.TorchStepStateActionCritic


StateCriticComposer = SharedStateCriticComposer
"""The default choice of critic."""


class CustomModelComposer:
    """Makes policy and critic from named networks: plain PyTorch modules that map dicts to dicts.

    Args:
        policy: Makes the policy.
        critic: Makes the critic; None for algorithms without a critic.
        distribution_mapper_config: Overrides of the default distributions of action spaces and
            heads: a list of `{action_space: <class path>, distribution: <class path>}` and
            `{action_head: <name>, distribution: <class path>}`, from general to specific.
    """

    def __init__(
        self,
        policy: ProbabilisticPolicyComposer,
        critic: CriticComposerInterface | None = None,
        distribution_mapper_config: list[dict[str, Any]] | None = None,
    ) -> None:
        self.policy = policy
        self.critic = critic
        self.distribution_mapper_config = distribution_mapper_config or []

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Make the networks for a spec; weights depend only on torch's global random generator.

        Raises:
            ValueError: The networks do not fit the sub-steps or the spaces; the message names the
                network, its output and shapes.
            TypeError: A network or its outputs have the wrong type, or no distribution fits an
                action head.
        """
        policy = self.policy.compose(spec, self.distribution_mapper_config)
        if self.critic is None:
            return TorchActorCritic(policy)
        return TorchActorCritic(policy, self.critic.compose(spec, policy))


class TemplateModelComposer(CustomModelComposer):
    """Makes policy and critic with networks that a model builder derives from the spaces.

    Each sub-step gets its own network for its observations.

    Args:
        model_builder: The template.
        policy: Makes the policy; must not name networks.
        critic: Makes the critic, with the template's networks unless it names others; None for
            algorithms without a critic.
        distribution_mapper_config: Overrides of the default distributions of action spaces and
            heads; see `CustomModelComposer`.

    Raises:
        ValueError: The policy names networks.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.perception import ConcatModelBuilder, DenseBlock, StateCriticComposer
        >>> feature = {"block_type": DenseBlock, "block_params": {"hidden_units": [32, 32]}}
        >>> builder = ConcatModelBuilder({"feature": feature}, {"observation": "feature"})
        >>> composer = TemplateModelComposer(builder, ProbabilisticPolicyComposer(), StateCriticComposer())
        >>> networks = composer.compose(Spec.of(GymMazeEnv("CartPole-v1")))
        >>> sum(parameter.numel() for parameter in networks.parameters())
        2531
    """

    def __init__(
        self,
        model_builder: BaseModelBuilder,
        policy: ProbabilisticPolicyComposer,
        critic: CriticComposerInterface | None = None,
        distribution_mapper_config: list[dict[str, Any]] | None = None,
    ) -> None:
        if policy.networks is not None:
            raise ValueError(
                "a template makes networks, but its policy names some: set networks: null, or use a CustomModelComposer"
            )
        super().__init__(copy(policy), copy(critic), distribution_mapper_config)
        self.model_builder = model_builder
        self.policy.networks = [model_builder.policy_network]
        if self.critic is not None and self.critic.networks is None:
            self.critic.networks = [self.critic.template_network(model_builder)]

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Make the networks for a spec; weights depend only on torch's global random generator.

        Raises:
            ValueError: The template does not fit the observations, or networks do not fit the spaces.
            TypeError: No distribution fits an action head.
        """
        self.model_builder.check(spec)
        return super().compose(spec)
