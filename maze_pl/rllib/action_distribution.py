"""RLlib's distributions of actions, made of those of maze_pl."""

from typing import Any, ClassVar, Self

import torch
from ray.rllib.core.distribution.distribution import Distribution
from torch import Tensor

from maze_pl.rllib.action_layout import ActionLayout, Actions


class DeterministicActions(Distribution):  # type: ignore[misc]  # RLlib has no types
    """The most likely actions of a distribution.

    Args:
        distribution: The distribution.
    """

    def __init__(self, distribution: "ActionDistribution") -> None:
        super().__init__()
        self._distribution = distribution
        self._action = distribution.layout.to_rllib(distribution.joint.deterministic_sample())

    def sample(self, *, sample_shape: Any = None, **_: Any) -> Actions:
        """Return the actions."""
        return self._action

    def rsample(self, *, sample_shape: Any = None, **_: Any) -> Actions:
        """Return the actions."""
        return self._action

    def logp(self, value: Actions, **_: Any) -> Tensor:
        """Return the log-probabilities [...] of actions under the distribution itself."""
        return self._distribution.logp(value)

    def entropy(self, **_: Any) -> Tensor:
        """Raise an error: one action has no entropy that could be learned."""
        raise NotImplementedError("a deterministic action has no entropy: use the distribution that it comes from")

    def kl(self, other: Distribution, **_: Any) -> Tensor:
        """Raise an error: it is infinite."""
        raise NotImplementedError("the divergence of deterministic actions is infinite: use their distributions")

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        """Raise an error: it is made of a distribution."""
        raise NotImplementedError("DeterministicActions have no inputs: call to_deterministic of a distribution")

    @classmethod
    def from_logits(cls, logits: Tensor, **_: Any) -> Self:
        """Raise an error: RLlib makes these of distributions."""
        raise NotImplementedError("DeterministicActions have no logits: call to_deterministic of a distribution")


class ActionDistribution(Distribution):  # type: ignore[misc]  # RLlib has no types
    """The joint distribution of all heads of a sub-step; RLlib uses subclasses with a layout.

    Args:
        logits: [..., n] logits and masks, see `ActionLayout`.

    Attributes:
        joint: The distribution of maze_pl.
    """

    layout: ClassVar[ActionLayout]

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.joint = self.layout.distribution(logits)

    @classmethod
    def with_layout(cls, layout: ActionLayout) -> "type[ActionDistribution]":
        """Return the class for a sub-step."""
        return type("ActionDistribution", (cls,), {"layout": layout})

    @classmethod
    def from_logits(cls, logits: Tensor, **_: Any) -> Self:
        """Make a distribution of logits and masks [..., n]."""
        return cls(logits)

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        """Raise an error: the layout of the sub-step has the number of inputs."""
        raise NotImplementedError("the number of inputs depends on the sub-step: ask its ActionLayout")

    def sample(self, *, sample_shape: Any = None, **_: Any) -> Actions:
        """Draw one action for each batch entry, without gradients."""
        with torch.no_grad():
            return self.layout.to_rllib(self.joint.sample())

    def rsample(self, *, sample_shape: Any = None, **_: Any) -> Actions:
        """Raise an error: PPO and APPO do not differentiate actions."""
        raise NotImplementedError("actions cannot be differentiated: PPO and APPO use sample and logp")

    def logp(self, value: Actions, **_: Any) -> Tensor:
        """Return the log-probabilities [...] of actions."""
        return self.joint.log_prob(self.layout.from_rllib(value))

    def entropy(self, **_: Any) -> Tensor:
        """Return the entropies [...] in nats."""
        return self.joint.entropy()

    def kl(self, other: "ActionDistribution", **_: Any) -> Tensor:
        """Return KL(self || other) [...] in nats."""
        return self.joint.kl(other.joint)

    def to_deterministic(self) -> DeterministicActions:
        """Return the most likely actions."""
        return DeterministicActions(self)
