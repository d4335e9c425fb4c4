"""Checks of action heads, which some algorithms cannot use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from gymnasium import spaces
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from maze_pl.distributions import DiagonalGaussianProbabilityDistribution, ProbabilityDistribution
from maze_pl.distributions.continuous import has_any_bound
from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution, choice_sizes

if TYPE_CHECKING:
    from maze_pl.agents import TorchPolicy

_BOUNDED: Final = "name SquashedGaussianProbabilityDistribution or BetaProbabilityDistribution"


def refuse_exploration_scale(algorithm: str, policy: TorchPolicy, *, accepted: tuple[type, ...] = ()) -> None:
    """Refuse heads whose probabilities come from a scale of exploration, which the algorithm does not set.

    Args:
        algorithm: Name of an algorithm that learns from the probabilities of actions.
        policy: The policy.
        accepted: Distributions that the algorithm can learn without probabilities.

    Raises:
        ValueError: A head has such a distribution; see `ProbabilityDistribution.has_exploration_scale`.
    """
    for key in policy.spec.step_keys:
        action_space = policy.spec.steps[key].action_space
        for head, distribution in policy.distribution_classes(key).items():
            if not distribution.has_exploration_scale or issubclass(distribution, accepted):
                continue
            where = f"action head {head!r} of sub-step {key!r} has the distribution {distribution.__name__}"
            reason = f"all its randomness comes from a scale of exploration, which {algorithm} does not set"
            remedy = "omit the head from distribution_mapper_config, so that it has the default distribution"
            if isinstance(action_space[head], spaces.Box):
                remedy = "name SquashedGaussianProbabilityDistribution in distribution_mapper_config"
            raise ValueError(f"{where}, from which {algorithm} cannot learn: {reason}; {remedy}")


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


def has_gradient_of_samples(distribution: ProbabilityDistribution) -> bool:
    """Return whether samples change with the logits; those of `torch.normal` have a gradient that is always 0.

    Args:
        distribution: Distribution of a continuous head.
    """
    logits = distribution.logits.detach()
    return _changes_with(distribution, logits) or _changes_with(distribution, torch.zeros_like(logits))


def _changes_with(distribution: ProbabilityDistribution, logits: Tensor) -> bool:
    """Return whether a sample by these logits has a gradient; where they are large, it may vanish."""
    logits = logits.clone().requires_grad_()
    sample = type(distribution)(logits, distribution.action_space, distribution.temperature).sample()
    if not sample.requires_grad:
        return False
    weighted = sample.flatten().cumsum(0).sum()  # unlike a sum, it changes also if shares sum to 1
    (gradient,) = torch.autograd.grad(weighted, logits, allow_unused=True)
    return gradient is not None and bool(gradient.any())


def _message(algorithm: str, kind: type, where: str, fault: str, remedy: str) -> str:
    refused = f"{where}: {algorithm} cannot use {kind.__name__}, which {fault}"
    return f"{refused}; {remedy} in distribution_mapper_config"
