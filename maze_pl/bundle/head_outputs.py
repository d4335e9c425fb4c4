"""Outputs of action heads: parameters of their distributions, and actions sampled from uniform numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl import distributions
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.observation_stages import constant
from maze_pl.bundle.quantiles import beta_quantile, normal_quantile
from maze_pl.distributions.probability_distribution import (
    MaskableProbabilityDistribution,
    ProbabilityDistribution,
    choice_sizes,
    impossible,
)


@dataclass(frozen=True)
class HeadOutputs:
    """Functions that compute the outputs of a head.

    Attributes:
        description: Meaning of the parameters.
        parameters: Distribution -> [B, size] float32 parameters.
        sample: Distribution and [B, n_uniforms] uniform numbers in float64 -> [B, *shape] actions.
        size: Number of parameters.
        n_uniforms: Number of uniform numbers that determine an action.
        choices: Number of options of each choice; none for continuous heads.
        magnitude: [size] or a number: sizes of the parameters, to which rounding errors are relative.
    """

    description: str
    parameters: Callable[[Any], Tensor]
    sample: Callable[[Any, Tensor], Tensor]
    size: int
    n_uniforms: int
    choices: tuple[int, ...] = ()
    magnitude: Any = 1.0


class _Continuous(NamedTuple):
    """Functions of a continuous distribution, see `HeadOutputs`.

    Attributes:
        description: Meaning of the parameters.
        parameters: Function that computes the parameters.
        sample: Function that computes the actions.
        n_parameters: Number of parameters of each component of the action.
    """

    description: str
    parameters: Callable[[Any], Tensor]
    sample: Callable[[Any, Tensor], Tensor]
    n_parameters: int


def magnitude_of(low: Any, high: Any) -> Any:
    """[...] sizes of numbers between bounds: that of the larger bound, at least 1; infinite bounds do not count.

    Args:
        low: [...] lower bounds.
        high: [...] upper bounds.
    """
    sizes = np.abs(np.stack(np.broadcast_arrays(np.asarray(low, np.float64), np.asarray(high, np.float64))))
    return np.where(np.isfinite(sizes), sizes, 0.0).max(axis=0, initial=1.0)


def head_outputs(head: str, distribution: type[ProbabilityDistribution], space: spaces.Space[Any]) -> HeadOutputs:
    """Return the functions for a head.

    Args:
        head: Its name, for messages.
        distribution: Class of its distribution.
        space: Its space.

    Raises:
        ExportError: The distribution is not one of maze_pl's.
    """
    if distribution in _DISCRETE:
        sizes = choice_sizes(space)
        described = "log-probabilities of the options of all choices, masks applied"
        if isinstance(space, spaces.MultiBinary):
            described = "log-probabilities bit by bit: that it is 0, and that it is 1, masks applied"
        return HeadOutputs(
            description=described,
            parameters=_log_probs,
            sample=_sampled_options,
            size=sum(sizes),
            n_uniforms=len(sizes),
            choices=tuple(sizes),
        )
    if distribution not in _CONTINUOUS:
        name = f"{distribution.__module__}.{distribution.__qualname__}"
        remedy = "use one of maze_pl.distributions"
        raise ExportError(f"action head {head!r}: no bundle can sample from {name}; {remedy}")
    continuous = _CONTINUOUS[distribution]
    n_components = math.prod(space.shape or ())
    magnitude: Any = 1.0
    if distribution is distributions.DeterministicProbabilityDistribution:
        box: Any = space
        magnitude = magnitude_of(box.low, box.high).ravel()
    return HeadOutputs(
        description=continuous.description,
        parameters=continuous.parameters,
        sample=continuous.sample,
        size=continuous.n_parameters * n_components,
        n_uniforms=n_components,
        magnitude=magnitude,
    )


# ------------------------------------------------------------------------------------------------------------ discrete


def _log_probs(part: MaskableProbabilityDistribution) -> Tensor:
    """[B, L] log-probabilities, with the lowest finite number for impossible options."""
    log_probs = part.log_probs_of_options()
    return torch.where(impossible(log_probs), torch.finfo(torch.float32).min, log_probs)


def _sampled_options(part: MaskableProbabilityDistribution, uniforms: Tensor) -> Tensor:
    """[B, *shape] the first options at which the cumulative probability exceeds the uniform numbers."""
    space = part.action_space
    sizes = choice_sizes(space)
    probability = part.log_probs_of_options().double().exp()
    if len(set(sizes)) == 1:
        of_choices = probability.reshape(-1, len(sizes), sizes[0])  # [B, choices, options]
        options = _first_above(of_choices, uniforms)
    else:
        columns: list[Tensor] = []
        for number, of_choice in enumerate(torch.split(probability, sizes, dim=-1)):
            columns.append(_first_above(of_choice, uniforms[:, number]))
        options = torch.stack(columns, dim=-1)
    if isinstance(space, spaces.Discrete):
        return options.squeeze(-1) + int(space.start)
    options = options.reshape(-1, *(space.shape or ()))
    return options.to(torch.int8) if isinstance(space, spaces.MultiBinary) else options


def _first_above(probability: Tensor, uniform: Tensor) -> Tensor:
    """[...] int64 index of the first option whose cumulative probability is above a number.

    Scaled by the total, the number stays below it, so that an impossible option is never chosen.

    Args:
        probability: [..., n] float64.
        uniform: [...] float64 in [0, 1).
    """
    cumulative = probability.cumsum(dim=-1)
    is_above = cumulative > uniform.unsqueeze(-1) * cumulative[..., -1:]
    return is_above.to(torch.int32).argmax(dim=-1)


# ---------------------------------------------------------------------------------------------------------- continuous


def _normal_logits(part: ProbabilityDistribution) -> Tensor:
    return part.logits.float()


def _normal_sample(part: ProbabilityDistribution, uniforms: Tensor) -> Tensor:
    """[B, *shape] the action whose underlying normal number has the given cumulative probability."""
    mean, log_std = part.logits.chunk(2, dim=-1)
    x = mean.double() + log_std.double().exp() * normal_quantile(uniforms)
    shifted = torch.cat((x.to(mean.dtype), log_std), dim=-1)
    return type(part)(shifted, part.action_space).deterministic_sample()


def _beta_parameters(part: distributions.BetaProbabilityDistribution) -> Tensor:
    """[B, 2n] alpha of all components, then beta."""
    return part.concentration.movedim(-1, 1).flatten(1).float()


def _beta_sample(part: distributions.BetaProbabilityDistribution, uniforms: Tensor) -> Tensor:
    concentration = part.concentration
    uniforms = uniforms.reshape(concentration.shape[:-1])
    fractions = beta_quantile(uniforms, concentration[..., 0], concentration[..., 1])
    return part.action_at(fractions.to(part.logits.dtype))


def _deterministic_parameters(part: ProbabilityDistribution) -> Tensor:
    """[B, n] the action; a shape () has one component."""
    return part.deterministic_sample().unsqueeze(-1).flatten(1).float()


def _noisy_action(part: ProbabilityDistribution, uniforms: Tensor) -> Tensor:
    """[B, *shape] the action with the policy's noise of exploration."""
    space: Any = part.action_space
    action = part.deterministic_sample()
    scale = float(part.exploration)
    if scale == 0.0:
        return action
    noise = normal_quantile(uniforms).reshape(action.shape) * scale
    half_width = constant((space.high.astype(float) - space.low.astype(float)) / 2)
    noisy = (action.double() + half_width * noise).to(action.dtype)
    return noisy.maximum(constant(space.low).to(action)).minimum(constant(space.high).to(action))


_DISCRETE: Final = (
    distributions.BernoulliProbabilityDistribution,
    distributions.CategoricalProbabilityDistribution,
    distributions.EpsilonGreedyProbabilityDistribution,
    distributions.MultiCategoricalProbabilityDistribution,
)
_CONTINUOUS: Final[dict[Any, _Continuous]] = {
    distributions.BetaProbabilityDistribution: _Continuous(
        "alpha of all components, then beta",
        _beta_parameters,
        _beta_sample,
        2,
    ),
    distributions.DeterministicProbabilityDistribution: _Continuous(
        "the action without noise",
        _deterministic_parameters,
        _noisy_action,
        1,
    ),
    distributions.DiagonalGaussianProbabilityDistribution: _Continuous(
        "means of all components, then log standard deviations",
        _normal_logits,
        _normal_sample,
        2,
    ),
    distributions.SquashedGaussianProbabilityDistribution: _Continuous(
        "means of all components before tanh, then log standard deviations",
        _normal_logits,
        _normal_sample,
        2,
    ),
}
