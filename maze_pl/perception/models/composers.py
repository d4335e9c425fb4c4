"""Composers: they make policy and critic that fit a specification, from named classes or from a template."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar

from gymnasium import spaces
from torch import nn

from maze_pl import agents
from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.agents.torch_policy import PolicyNetworks, TorchPolicy, separate_agent_counts
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.distributions.distribution_mapper import DistributionMapperConfig, distribution_mappers
from maze_pl.perception import builders
from maze_pl.perception.builders import CriticNetworkFactory, build_network, factories_by_step, takes

Networks = list[builders.Factory] | dict[StepKey, builders.Factory]
"""Network classes in the order of the sub-steps, or by key."""


class ProbabilisticPolicyComposer:
    """Makes a policy whose networks give the parameters of probability distributions.

    Args:
        networks: Network classes by class path, one for each sub-step, in order or by key; a single one in a list
            makes a network for each of them; null for those of a template. The constructor gets `obs_shapes` and
            `action_logits_shapes` (name -> tuple) and its own `init_args`; `forward` maps a dict of observations to a
            dict of logits, one per head.
        substeps_with_separate_agent_nets: Sub-steps in which each agent has a network of its own.
    """

    def __init__(
        self,
        networks: Networks[builders.PolicyNetworkFactory] | None = None,
        substeps_with_separate_agent_nets: list[StepKey] | None = None,
    ) -> None:
        self.networks = networks
        self.substeps_with_separate_agent_nets = substeps_with_separate_agent_nets or []

    def compose(self, spec: Spec, distribution_mapper_config: DistributionMapperConfig | None = None) -> TorchPolicy:
        """Make the networks, try each of them on zeros, and put them into a policy.

        Args:
            spec: What the agent sees and does.
            distribution_mapper_config: Overrides of distributions, see `DistributionMapper`.

        Raises:
            ValueError: Networks do not fit the sub-steps, or their outputs the action heads.
            TypeError: A network or its outputs are of a wrong type, or no distribution fits a head.
        """
        separate = separate_agent_counts(spec, self.substeps_with_separate_agent_nets)
        mappers = distribution_mappers(spec, distribution_mapper_config)
        networks: dict[StepKey, PolicyNetworks] = {}
        for key, factory in factories_by_step(self.networks, spec.step_keys).items():
            step, shapes, count = spec.steps[key], mappers[key].logits_shapes, separate.get(key, 1)
            if count > 1 and isinstance(factory, nn.Module):
                raise ValueError(f"one network cannot serve {count} agents of sub-step {key!r}; give its class instead")
            agents = [f", agent {agent}" if key in separate else "" for agent in range(count)]
            makes = partial(build_network, factory, step.observation_space, shapes, action_logits_shapes={**shapes})
            networks[key] = [makes(where=f"policy network of sub-step {key!r}{agent}") for agent in agents]
        return TorchPolicy(networks, spec, distribution_mapper_config, list(separate))


class CriticComposerInterface(ABC):
    """Makes a critic that fits a specification."""

    networks: Any

    @abstractmethod
    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> agents.Critic:
        """Make the networks, try each of them on zeros, and put them into a critic.

        Args:
            spec: What the agent sees and does.
            policy: Has the networks of which those of the critic may use parts.

        Raises:
            ValueError: Networks do not fit the sub-steps, or do not give what they should.
            TypeError: A network or its outputs are of a wrong type.
        """

    @abstractmethod
    def template_network(self, model_builder: builders.BaseModelBuilder) -> Any:
        """What makes the networks of a template, where no others are named."""


class StateCriticComposerInterface(CriticComposerInterface):
    """Makes a state critic that fits a specification.

    Args:
        networks: Network classes by class path, one for each sub-step, in order or by key; a single one in a list
            makes a network for each of them; null for those of a template. The constructor gets `obs_shapes` (name ->
            tuple) and its own `init_args`, and `policy_network`, the policy's network of the same sub-step, if it has
            such an argument; `forward` maps a dict of observations to `{"value": [B, 1]}`.
    """

    critic: ClassVar[type[agents.StateCritic]]

    def __init__(self, networks: Networks[CriticNetworkFactory] | None = None) -> None:
        self.networks = networks

    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> agents.StateCritic:
        """Make the networks, try each of them on zeros, and put them into a critic.

        Args:
            spec: What the agent sees and does.
            policy: Has the networks of which those of the critic may use parts.

        Raises:
            ValueError: Networks do not fit the sub-steps, do not give `{"value": [B, 1]}`, or share parts with a policy
                that has not exactly one network for what they judge.
            TypeError: A network or its outputs are of a wrong type.
        """
        judged, networks = self.critic.judged(spec), dict[StepKey, nn.Module]()
        for key, factory in factories_by_step(self.networks, tuple(judged)).items():
            is_shared, where = self.critic.kind == "shared", f"critic network of sub-step {key!r}"
            where, keys = ("shared critic network", spec.step_keys) if is_shared else (where, (key,))
            networks[key] = _network(factory, judged[key], where, policy, keys)
        return self.critic(networks, spec)

    def template_network(self, model_builder: builders.BaseModelBuilder) -> Any:
        """A value network, with blocks of the policy's where the template says so."""
        alone = partial(model_builder.critic_network, policy_network=None)
        return model_builder.critic_network if model_builder.shared_embedding_keys else alone


class SharedStateCriticComposer(StateCriticComposerInterface):
    """One critic for all sub-steps and agents; the choice for flat environments.

    Args:
        networks: One network class by class path; null for that of a template. The constructor gets `obs_shapes` (name
            -> tuple) and its own `init_args`, and `policy_network`, the network of a policy that has no other, if it
            has such an argument; `forward` maps a dict of observations to `{"value": [B, 1]}`. With several sub-steps
            it sees the observations of all of them, see `TorchSharedStateCritic`.
    """

    critic = agents.TorchSharedStateCritic


class StepStateCriticComposer(StateCriticComposerInterface):
    """A critic for each sub-step, which judges every actor by its own stream of acts.

    Args:
        networks: As for `StateCriticComposerInterface`.
    """

    critic = agents.TorchStepStateCritic


class DeltaStateCriticComposer(StateCriticComposerInterface):
    """A critic for environments whose sub-steps act once each, in the same order, in every environment step.

    The first sub-step's network gives the value, each later one the difference to the value of the sub-step before; see
    `TorchDeltaStateCritic`. Rewards are those of the whole, also where an environment attributes them to actors.

    Args:
        networks: As for `StateCriticComposerInterface`.
    """

    critic = agents.TorchDeltaStateCritic


def _network(
    factory: CriticNetworkFactory, space: spaces.Dict, where: str, policy: TorchPolicy | None, keys: Sequence[StepKey]
) -> nn.Module:
    """A network, with the policy's network for the same sub-steps if its class wants it."""
    if not takes(factory, "policy_network"):
        return build_network(factory, space, {"value": (1,)}, where)
    by_step = {} if policy is None else dict(zip(policy.spec.step_keys, policy.networks, strict=True))
    found = [network for key, networks in by_step.items() if key in keys for network in networks.children()]
    if len(found) != 1:
        raise ValueError(
            f"{where} shares parts with the policy's network for the same observations, which must be one network, not "
            f"{len(found)}: use a critic for each sub-step, agents without separate networks, or share nothing"
        )
    return build_network(factory, space, {"value": (1,)}, where, policy_network=found[0])


class StateActionCriticComposer(CriticComposerInterface, ABC):
    """Twin networks that judge actions: each class is called twice, for two networks that start with other weights.

    Args:
        networks: Network classes by class path; null for those of a template. The constructor gets `obs_shapes`,
            `action_shapes` (continuous heads of the action) and `q_shapes` (outputs), each name -> tuple, and its own
            `init_args`; `forward` maps a dict of observations and continuous heads to a dict of outputs [B, L], see
            `TorchStateActionCritic.q_values`.
    """

    critic: ClassVar[type[agents.TorchStateActionCritic]]

    def __init__(self, networks: Networks[builders.StateActionNetworkFactory] | None = None) -> None:
        self.networks = networks

    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> agents.TorchStateActionCritic:
        """Make the networks, try each of them on zeros, and put them into a critic."""
        judged, pairs = self.critic.judged(spec), []
        for key, factory in factories_by_step(self.networks, tuple(judged)).items():
            one, where = judged[key], f"state-action network of sub-step {key!r}"
            if isinstance(factory, nn.Module):
                raise ValueError(f"{where}: one finished network cannot be two of them; give its class")
            sees, does = one.observation_space.spaces, one.action_space.spaces
            obs_shapes, action_shapes = ({name: tuple(of[name].shape or ()) for name in of} for of in (sees, does))
            shapes = {"obs_shapes": obs_shapes, "action_shapes": action_shapes, "q_shapes": dict(one.q_shapes)}
            build = partial(build_network, factory, spaces.Dict({**sees, **does}), one.q_shapes, where, **shapes)
            pairs.append([build(), build()])
        return self.critic(pairs, spec)

    def template_network(self, model_builder: builders.BaseModelBuilder) -> Any:
        """A network for both of the twins."""
        if model_builder.shared_embedding_keys:
            raise ValueError(
                "a state-action critic has two networks and slow copies of them, none of which can share blocks with "
                "the policy's: set shared_embedding_keys: null"
            )
        return model_builder.state_action_network


class SharedStateActionCriticComposer(StateActionCriticComposer):
    """One pair of networks for all sub-steps and agents; the choice for flat environments.

    Args:
        networks: One network class, as for `StateActionCriticComposer`. With several sub-steps it sees what belongs to
            any of them, see `TorchSharedStateActionCritic`.
    """

    critic = agents.TorchSharedStateActionCritic


class StepStateActionCriticComposer(StateActionCriticComposer):
    """A pair of networks for each sub-step, shared by its agents.

    Args:
        networks: One network class for each sub-step, in order or by key; a single one in a list makes the networks of
            all of them. See `StateActionCriticComposer`.
    """

    critic = agents.TorchStepStateActionCritic


StateCriticComposer = SharedStateCriticComposer
"""The critic to use when there is no reason for another."""


class CustomModelComposer:
    """Makes policy and critic from explicitly named networks: plain PyTorch modules that take and give dicts.

    Args:
        policy: Makes the policy.
        critic: Makes the critic; None for algorithms that need none.
        distribution_mapper_config: Which distribution to use for which action space or head, where it is not the
            default one; a list of `{action_space: <class path>, distribution: <class path>}` and
            `{action_head: <name>, distribution: <class path>}`, from the general to the particular.
    """

    def __init__(
        self,
        policy: ProbabilisticPolicyComposer,
        critic: CriticComposerInterface | None = None,
        distribution_mapper_config: list[dict[str, Any]] | None = None,
    ) -> None:
        self.policy, self.critic = policy, critic
        self.distribution_mapper_config = distribution_mapper_config or []

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Make the networks for a specification; weights depend on torch's global random generator only.

        Raises:
            ValueError: Networks do not fit the sub-steps or the spaces; the message names network, output and shapes.
            TypeError: A network or its outputs are of a wrong type, or no distribution fits an action head.
        """
        policy = self.policy.compose(spec, self.distribution_mapper_config)
        return TorchActorCritic(policy, self.critic.compose(spec, policy) if self.critic is not None else None)


class TemplateModelComposer(CustomModelComposer):
    """Makes policy and critic whose networks a model builder derives from the spaces of observations and actions.

    Each sub-step gets a network of its own, for the observations that it has.

    Args:
        model_builder: The template.
        policy: Makes the policy, and names no networks.
        critic: Makes the critic, whose networks are the template's unless it names others; None for algorithms that
            need none.
        distribution_mapper_config: Which distribution to use for which action space or head, where it is not the
            default one; see `CustomModelComposer`.

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
        model_builder: builders.BaseModelBuilder,
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
        """Make the networks for a specification; weights depend on torch's global random generator only.

        Raises:
            ValueError: The template does not fit the observations, or networks do not fit the spaces.
            TypeError: No distribution fits an action head.
        """
        self.model_builder.check(spec)
        return super().compose(spec)
