"""Checks of action heads for algorithms that learn a policy from the values of its actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytorch_lightning.utilities import rank_zero_warn

from maze_pl.distributions import DiagonalGaussianProbabilityDistribution, ProbabilityDistribution
from maze_pl.distributions.continuous import has_any_bound
from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution, choice_sizes
from maze_pl.modules.network_choice import has_gradient_of_samples

if TYPE_CHECKING:
    from maze_pl.agents import TorchPolicy

_BOUNDED: Final = "name SquashedGaussianProbabilityDistribution or BetaProbabilityDistribution"


def refuse_unusable_head(algorithm: str, head: ProbabilityDistribution, where: str) -> None:
    """Refuse a distribution without probabilities, or differentiable samples within the bounds.

    Args:
        algorithm: Name of the algorithm.
        head: The distribution.
        where: Name of the head in messages.

    Raises:
        ValueError: It is one.
    """
    space: Any = head.action_space
    remedy = _BOUNDED
    if isinstance(head, MaskableProbabilityDistribution):
        return
    if choice_sizes(space):
        fault = "has no `probabilities` of its options"
        remedy = "name one derived from those of maze_pl.distributions"
    elif isinstance(head, DiagonalGaussianProbabilityDistribution) and space.is_bounded():
        fault = f"does not keep to the bounds of {space}"
    elif not has_gradient_of_samples(head):
        fault = "gives samples without a gradient (compute them from the logits and noise)"
    else:
        return
    raise ValueError(_message(algorithm, type(head), where, fault, remedy))


def refuse_open_bounds(algorithm: str, policy: TorchPolicy, *, has_learned: bool) -> None:
    """Refuse to begin with Gaussians for boxes that are bounded in some components, or on one side only.

    Beyond a bound, differences count as entropy, and never reach the environment.

    Args:
        algorithm: Name of the algorithm.
        policy: The policy.
        has_learned: Whether it has learned before, and only a warning is given.

    Raises:
        ValueError: There is one, and the policy has not learned.
    """
    for key, step in policy.spec.steps.items():
        for head, kind in policy.distribution_classes(key).items():
            space: Any = step.action_space[head]
            if not issubclass(kind, DiagonalGaussianProbabilityDistribution) or not has_any_bound(space):
                continue
            fault = f"does not keep to the bounds of {space}"
            remedy = f"give all components both bounds, or none, in separate heads; for bounded ones {_BOUNDED}"
            message = _message(algorithm, kind, f"action head {head!r} of sub-step {key!r}", fault, remedy)
            if not has_learned:
                raise ValueError(message)
            rank_zero_warn(message)


def _message(algorithm: str, kind: type, where: str, fault: str, remedy: str) -> str:
    refused = f"{where}: {algorithm} cannot use {kind.__name__}, which {fault}"
    return f"{refused}; {remedy} in distribution_mapper_config"
