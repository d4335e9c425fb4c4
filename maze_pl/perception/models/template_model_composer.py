"""Composes an agent's networks from a template that fits itself to what there is to observe."""

from copy import copy
from functools import partial
from typing import Any

from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.core.spec import Spec
from maze_pl.perception.builders import BaseModelBuilder
from maze_pl.perception.models.critics import StateCriticComposerInterface
from maze_pl.perception.models.custom_model_composer import CustomModelComposer
from maze_pl.perception.models.policies import ProbabilisticPolicyComposer


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
        model_builder: BaseModelBuilder,
        policy: ProbabilisticPolicyComposer,
        critic: StateCriticComposerInterface | None = None,
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
            alone = partial(model_builder.critic_network, policy_network=None)
            self.critic.networks = [model_builder.critic_network if model_builder.shared_embedding_keys else alone]

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Make the networks for a specification; weights depend on torch's global random generator only.

        Raises:
            ValueError: The template does not fit the observations, or networks do not fit the spaces.
            TypeError: No distribution fits an action head.
        """
        self.model_builder.check(spec)
        return super().compose(spec)
