"""Composer of policy and critic from a template."""

from copy import copy
from typing import Any

from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.core.spec import Spec
from maze_pl.perception.builders import BaseModelBuilder
from maze_pl.perception.models.composers import CriticComposerInterface
from maze_pl.perception.models.custom_model_composer import CustomModelComposer
from maze_pl.perception.models.probabilistic_policy_composer import ProbabilisticPolicyComposer


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
        ValueError: The policy names networks, or the critic cannot share blocks as the template says.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.perception import ConcatModelBuilder, DenseBlock, SharedStateCriticComposer
        >>> feature = {"block_type": DenseBlock, "block_params": {"hidden_units": [32, 32]}}
        >>> builder = ConcatModelBuilder({"feature": feature}, {"observation": "feature"})
        >>> composer = TemplateModelComposer(builder, ProbabilisticPolicyComposer(), SharedStateCriticComposer())
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
        if critic is not None and critic.networks is None:
            critic.check_template(model_builder)
        super().__init__(copy(policy), critic, distribution_mapper_config)
        self.model_builder = model_builder
        self.policy.networks = [model_builder.policy_network]

    def compose(self, spec: Spec) -> TorchActorCritic:
        """Make the networks for a spec; weights depend only on torch's global random generator.

        Raises:
            ValueError: The template does not fit the observations, or networks do not fit the spaces.
            TypeError: No distribution fits an action head.
        """
        self.model_builder.check(spec)
        composer = self.critic
        if composer is None or composer.networks is not None:
            return super().compose(spec)
        critic = copy(composer)
        critic.networks = critic.template_networks(self.model_builder, spec)
        policy = self.policy.compose(spec, self.distribution_mapper_config)
        return TorchActorCritic(policy, critic.compose(spec, policy))
