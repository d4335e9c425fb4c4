"""Losses of policies and critics, one number for each act; the caller weights and averages."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from maze_pl.functional.shapes import check_same_shape


def ppo_clip_loss(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip_range: float | Tensor) -> Tensor:
    """Compute the clipped surrogate objective of PPO as a loss, to be minimised.

        L_t = -min(rho_t * A_t, clip(rho_t, 1 - c, 1 + c) * A_t)
        rho_t = pi(a_t | s_t) / pi_old(a_t | s_t)

    Schulman et al. 2017, arXiv:1707.06347, equation 7, where it is an objective to be maximised.

    Args:
        log_prob: [T, B] log-probability of the action under the current policy.
        old_log_prob: [T, B] log-probability under the policy that collected the data.
        advantage: [T, B] advantage of the action.
        clip_range: Maximum deviation of the ratio from 1, not negative; beyond it the gradient
            vanishes. A number, or a tensor without dimensions, which is not checked.

    Returns:
        [T, B] losses.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ or `clip_range` is negative.

    Example:
        >>> log_prob = torch.log(torch.tensor([1.5]))
        >>> ppo_clip_loss(log_prob, torch.zeros(1), torch.ones(1), clip_range=0.25).tolist()
        [-1.25]
    """
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage)
    if not isinstance(clip_range, Tensor) and clip_range < 0.0:
        raise ValueError(f"clip_range={clip_range} must not be negative")
    ratio = torch.exp(log_prob - old_log_prob)
    disadvantage = -advantage  # negated here, which saves a negation in the backward pass
    surrogate = ratio * disadvantage
    # The clipped branch has gradient 0 where selected; `where` has a cheaper backward than `max`.
    limit: Any = clip_range  # its type accepts two numbers or two tensors
    clipped = ratio.detach().clamp(1.0 - limit, 1.0 + limit) * disadvantage
    return torch.where(surrogate >= clipped, surrogate, clipped)


def is_ratio_clipped(log_prob: Tensor, old_log_prob: Tensor, clip_range: float | Tensor) -> Tensor:
    """Mark the acts whose probability ratio is outside of the clip range of PPO; their mean is the clip fraction.

        f_t = 1 if |rho_t - 1| > c, else 0,   rho_t = pi(a_t | s_t) / pi_old(a_t | s_t)

    Args:
        log_prob: [T, B] log-probability of the action under the current policy.
        old_log_prob: [T, B] log-probability under the policy that collected the data.
        clip_range: Maximum deviation of the ratio from 1, not negative. A number, or a tensor without
            dimensions.

    Returns:
        [T, B] ones and zeros, in the type of `log_prob`.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ or `clip_range` is negative.

    Example:
        >>> is_ratio_clipped(torch.tensor([1.5, 1.1]).log(), torch.zeros(2), clip_range=0.25).tolist()
        [1.0, 0.0]
    """
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob)
    if not isinstance(clip_range, Tensor) and clip_range < 0.0:
        raise ValueError(f"clip_range={clip_range} must not be negative")
    # the operations of `ppo_clip_loss`, so that a traced loss computes them once
    ratio = torch.exp(log_prob - old_log_prob)
    limit: Any = clip_range  # its type accepts two numbers or two tensors
    return (ratio != ratio.clamp(1.0 - limit, 1.0 + limit)).to(log_prob.dtype)


def value_loss(
    value: Tensor,
    target: Tensor,
    old_value: Tensor | None = None,
    clip_range: float | Tensor | None = None,
) -> Tensor:
    """Compute the squared error of values, optionally the larger of unclipped and clipped errors.

        L_t = (V_t - R_t)^2,   or   max((V_t - R_t)^2, (V_old,t + clip(V_t - V_old,t, -c, c) - R_t)^2)

    The clipped form follows OpenAI baselines, https://github.com/openai/baselines (ppo2), without
    its factor 1/2.

    Args:
        value: [T, B] values of the critic that learns.
        target: [T, B] returns.
        old_value: [T, B] values before learning; needed to clip.
        clip_range: Maximum change of a value; None for no clipping. A number, or a tensor without
            dimensions, which is not checked.

    Returns:
        [T, B] losses.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ, `clip_range` is negative, or it is given without `old_value`.

    Example:
        >>> value_loss(torch.tensor([2.0]), torch.tensor([2.0]), torch.tensor([0.0]), clip_range=0.5).tolist()
        [2.25]
    """
    check_same_shape(value=value, target=target)
    error = functional.mse_loss(value, target, reduction="none")
    if clip_range is None:
        return error
    is_negative = not isinstance(clip_range, Tensor) and clip_range < 0.0
    if is_negative or old_value is None:
        raise ValueError(f"clip_range={clip_range} must not be negative and needs old_value to be given")
    check_same_shape(value=value, old_value=old_value)
    limit: Any = clip_range
    clipped = old_value + (value - old_value).clamp(-limit, limit)
    return torch.maximum(error, (clipped - target).square())


def approx_kl(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Estimate the divergence KL(pi_old || pi) from actions of pi_old.

        k3_t = rho_t - 1 - log(rho_t),   rho_t = pi(a_t | s_t) / pi_old(a_t | s_t)

    Unbiased, never negative, of low variance: Schulman 2020, http://joschu.net/blog/kl-approx.html.

    Args:
        log_prob: [T, B] log-probability under the current policy.
        old_log_prob: [T, B] log-probability under the policy that collected the data.

    Returns:
        [T, B] estimates.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ.

    Example:
        >>> approx_kl(torch.tensor([-1.0]), torch.tensor([-1.0])).tolist()
        [0.0]
    """
    check_same_shape(log_prob=log_prob, old_log_prob=old_log_prob)
    log_ratio = log_prob - old_log_prob
    return torch.expm1(log_ratio) - log_ratio
