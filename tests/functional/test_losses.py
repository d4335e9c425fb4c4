from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from maze_pl.functional import approx_kl, is_ratio_clipped, ppo_clip_loss, value_loss


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_ppo_loss_clips_only_what_would_improve_the_objective_further() -> None:
    ratio = vector(1.5, 1.5, 0.5, 0.5, 1.1)
    advantage = vector(2.0, -2.0, 2.0, -2.0, 1.0)
    loss = ppo_clip_loss(ratio.log(), vector(0, 0, 0, 0, 0), advantage, clip_range=0.2)
    torch.testing.assert_close(loss, vector(-2.4, 3.0, -1.0, 1.6, -1.1))


def test_ppo_loss_has_no_gradient_where_it_is_clipped() -> None:
    log_prob = vector(1.5, 1.5).log().requires_grad_()
    ppo_clip_loss(log_prob, vector(0, 0), vector(1, -1), clip_range=0.2).sum().backward()
    assert log_prob.grad is not None
    torch.testing.assert_close(log_prob.grad, vector(0.0, 1.5))


def test_ppo_loss_at_the_old_policy_is_the_policy_gradient() -> None:
    log_prob = vector(-0.3, -2.0, -1.0).requires_grad_()
    advantage = vector(1.0, -3.0, 0.5)
    ppo_clip_loss(log_prob, log_prob.detach(), advantage, clip_range=0.2).sum().backward()
    assert log_prob.grad is not None
    torch.testing.assert_close(log_prob.grad, -advantage)


def test_value_loss_is_the_squared_error() -> None:
    torch.testing.assert_close(value_loss(vector(1, 4), vector(3, 4)), vector(4, 0))


def test_clipped_value_loss_takes_the_worse_of_both() -> None:
    value, old, target = vector(2.0, 2.0, 0.1), vector(0.0, 0.0, 0.0), vector(2.0, 0.0, 1.0)
    torch.testing.assert_close(value_loss(value, target, old, clip_range=0.5), vector(2.25, 4.0, 0.81))


def test_approximate_kl_is_zero_for_equal_policies_and_positive_otherwise() -> None:
    log_ratio = vector(-1.0, 0.0, 1.0)
    expected = vector(math.exp(-1), 0.0, math.e - 2)
    torch.testing.assert_close(approx_kl(log_ratio, vector(0, 0, 0)), expected)


def test_approximate_kl_has_the_exact_divergence_as_its_mean() -> None:
    old, new = vector(0.2, 0.8), vector(0.5, 0.5)
    exact = (old * (old / new).log()).sum()
    torch.testing.assert_close((old * approx_kl(new.log(), old.log())).sum(), exact)


def test_a_ratio_is_clipped_on_either_side_whatever_the_advantage() -> None:
    ratio = vector(1.5, 1.19, 0.81, 0.5, 1.0)
    torch.testing.assert_close(is_ratio_clipped(ratio.log(), 0 * ratio, 0.2), vector(1, 0, 0, 1, 0))
    with pytest.raises(ValueError, match=r"clip_range=-1.0 must not be negative"):
        is_ratio_clipped(ratio.log(), 0 * ratio, -1.0)


def test_wrong_arguments_are_refused() -> None:
    one, two = vector(1), vector(1, 2)
    with pytest.raises(ValueError, match=r"advantage has shape \(2,\), expected \(1,\)"):
        ppo_clip_loss(one, one, two, 0.2)
    with pytest.raises(ValueError, match=r"clip_range=-0\.1 must not be negative"):
        ppo_clip_loss(one, one, one, -0.1)
    with pytest.raises(ValueError, match="old_value"):
        value_loss(one, one, None, 0.2)
    with pytest.raises(ValueError, match="target has shape"):
        value_loss(one, two)
    with pytest.raises(TypeError, match="old_log_prob must be a tensor"):
        approx_kl(one, 0.0)  # type: ignore[arg-type]
