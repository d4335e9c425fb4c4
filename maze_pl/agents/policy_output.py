"""Everything that a policy network says about one batch of actors."""

from dataclasses import dataclass

from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.distributions.dict import DictProbabilityDistribution


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """The policy's outputs for one sub-step.

    Attributes:
        step_key: The sub-step.
        action_logits: Head -> [..., L] outputs of the network, before temperature and masks.
        distribution: Joint distribution of all heads, with temperature and masks.
    """

    step_key: StepKey
    action_logits: dict[str, Tensor]
    distribution: DictProbabilityDistribution

    @property
    def entropy(self) -> Tensor:
        """[...] entropy of the joint distribution in nats."""
        return self.distribution.entropy()
