"""Composes an agent's networks from classes that the user names."""

from typing import Any

from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.core.spec import Spec
from maze_pl.perception.models.critics import StateCriticComposerInterface
from maze_pl.perception.models.policies import ProbabilisticPolicyComposer


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
        critic: StateCriticComposerInterface | None = None,
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
