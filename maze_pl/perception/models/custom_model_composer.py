"""Composer of policy and critic from named networks."""

from typing import Any

from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.core.spec import Spec
from maze_pl.perception.models.composers import CriticComposerInterface
from maze_pl.perception.models.probabilistic_policy_composer import ProbabilisticPolicyComposer


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
