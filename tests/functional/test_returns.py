from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maze_pl.functional import gae, lambda_return, n_step_return
from maze_pl.functional.returns import discounted_sum

Batch = dict[str, Tensor]


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)


def flags(*rows: int, n: int = 5) -> Tensor:
    result = torch.zeros(n, 1, dtype=torch.bool)
    result[list(rows)] = True
    return result


REWARD = column(1, 2, 3, 4, 5)
VALUE = column(10, 20, 30, 40, 50)
NEXT_VALUE = column(20, 30, 40, 50, 60)


def test_gae_of_five_steps_without_end() -> None:
    # d = r + V' / 2 - V = (1, -3, -7, -11, -15); A_t = d_t + A_{t+1} / 4
    advantage = gae(REWARD, VALUE, NEXT_VALUE, flags(), flags(), gamma=0.5, gae_lambda=0.5)
    a4 = -15.0
    a3 = -11 + a4 / 4
    a2 = -7 + a3 / 4
    a1 = -3 + a2 / 4
    a0 = 1 + a1 / 4
    torch.testing.assert_close(advantage, column(a0, a1, a2, a3, a4))


def test_gae_cuts_at_a_terminal_state_without_bootstrap() -> None:
    advantage = gae(REWARD, VALUE, NEXT_VALUE, flags(2), flags(), gamma=0.5, gae_lambda=0.5)
    # d_2 = 3 - 30 = -27 and nothing follows it
    torch.testing.assert_close(advantage, column(1 - 9.75 / 4, -3 - 27 / 4, -27, -11 - 15 / 4, -15))


def test_gae_cuts_at_a_time_limit_and_bootstraps() -> None:
    advantage = gae(REWARD, VALUE, NEXT_VALUE, flags(), flags(2), gamma=0.5, gae_lambda=0.5)
    torch.testing.assert_close(advantage, column(1 - 4.75 / 4, -3 - 7 / 4, -7, -11 - 15 / 4, -15))


def test_termination_wins_over_truncation() -> None:
    both = gae(REWARD, VALUE, NEXT_VALUE, flags(2), flags(2), gamma=0.5, gae_lambda=0.5)
    torch.testing.assert_close(both, gae(REWARD, VALUE, NEXT_VALUE, flags(2), flags(), gamma=0.5, gae_lambda=0.5))


def test_lambda_return_of_five_steps() -> None:
    # Cut after step 1 by a time limit, terminal at step 3, open at step 4.
    result = lambda_return(REWARD, NEXT_VALUE, flags(3), flags(1), gamma=0.5, lambda_=0.5)
    g4, g3, g1 = 5 + 30.0, 4.0, 2 + 15.0
    g2 = 3 + 0.5 * (0.5 * 40 + 0.5 * g3)
    g0 = 1 + 0.5 * (0.5 * 20 + 0.5 * g1)
    torch.testing.assert_close(result, column(g0, g1, g2, g3, g4))


def test_n_step_return_of_five_steps() -> None:
    result = n_step_return(REWARD, NEXT_VALUE, flags(3), flags(), gamma=0.5, n=2)
    torch.testing.assert_close(result, column(1 + 1 + 7.5, 2 + 1.5 + 10, 3 + 2, 4, 5 + 30))


def test_n_step_return_bootstraps_at_the_last_step_when_n_reaches_past_it() -> None:
    result = n_step_return(REWARD, NEXT_VALUE, flags(), flags(), gamma=0.5, n=4)
    expected_last_two = [4 + 0.5 * 5 + 0.25 * 60, 5 + 30]
    torch.testing.assert_close(result[3:], column(*expected_last_two))
    everything = n_step_return(REWARD, NEXT_VALUE, flags(), flags(), gamma=0.5, n=100)
    torch.testing.assert_close(everything[0, 0].item(), 1 + 1 + 0.75 + 0.5 + 5 / 16 + 60 / 32)


def slow_gae(batch: Batch, gamma: Tensor, gae_lambda: float) -> list[list[float]]:
    n_steps, n_columns = batch["reward"].shape
    result = [[0.0] * n_columns for _ in range(n_steps)]
    for b in range(n_columns):
        following = 0.0
        for t in reversed(range(n_steps)):
            ended = bool(batch["terminated"][t, b])
            delta = float(batch["reward"][t, b]) - float(batch["value"][t, b])
            if not ended:
                delta += float(gamma[t, b]) * float(batch["next_value"][t, b])
            if ended or bool(batch["truncated"][t, b]):
                following = 0.0
            following = delta + float(gamma[t, b]) * gae_lambda * following
            result[t][b] = following
    return result


def slow_n_step(batch: Batch, gamma: Tensor, n: int) -> list[list[float]]:
    """Walks forward from each step, as the definition reads."""
    n_steps, n_columns = batch["reward"].shape
    result = [[0.0] * n_columns for _ in range(n_steps)]
    for b in range(n_columns):
        for start in range(n_steps):
            weight, total, t = 1.0, 0.0, start
            while True:
                total += weight * float(batch["reward"][t, b])
                weight *= float(gamma[t, b])
                if bool(batch["terminated"][t, b]):
                    break
                if bool(batch["truncated"][t, b]) or t == n_steps - 1 or t == start + n - 1:
                    total += weight * float(batch["next_value"][t, b])
                    break
                t += 1
            result[start][b] = total
    return result


def slow_lambda_return(batch: Batch, gamma: Tensor, lambda_: float) -> list[list[float]]:
    """The weighted average of all n-step returns, as the definition reads."""
    n_steps, n_columns = batch["reward"].shape
    by_n = [slow_n_step(batch, gamma, n) for n in range(1, n_steps + 1)]
    result = [[0.0] * n_columns for _ in range(n_steps)]
    for b in range(n_columns):
        for t in range(n_steps):
            total = sum((1 - lambda_) * lambda_**k * by_n[k][t][b] for k in range(n_steps - 1))
            result[t][b] = total + lambda_ ** (n_steps - 1) * by_n[-1][t][b]
    return result


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, Tensor]:
    n_steps, n_columns = draw(st.integers(1, 17)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    size = (n_steps, n_columns)
    share = draw(st.sampled_from([0.0, 0.1, 0.5]))

    def normal() -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    def ends() -> Tensor:
        return torch.rand(size, generator=generator) < share

    batch = dict(reward=normal(), value=normal(), next_value=normal(), terminated=ends(), truncated=ends())
    batch["next_value"][batch["terminated"]] = draw(st.sampled_from([0.0, float("inf"), float("nan")]))
    return batch, torch.rand(size, generator=generator, dtype=torch.float64)


@settings(max_examples=50, deadline=None)
@given(batches(), st.sampled_from([0.0, 0.3, 0.95, 1.0]), st.integers(1, 20))
def test_returns_agree_with_slow_references(drawn: tuple[Batch, Tensor], lambda_: float, n: int) -> None:
    batch, gamma = drawn
    without_value = {name: tensor for name, tensor in batch.items() if name != "value"}

    def expect(actual: Tensor, expected: list[list[float]]) -> None:
        torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)

    for discount in (gamma, torch.full_like(gamma, 0.98)):
        given_gamma = discount if discount is gamma else 0.98
        expect(gae(**batch, gamma=given_gamma, gae_lambda=lambda_), slow_gae(batch, discount, lambda_))
        expect(n_step_return(**without_value, gamma=given_gamma, n=n), slow_n_step(batch, discount, n))
        expected = slow_lambda_return(batch, discount, lambda_)
        expect(lambda_return(**without_value, gamma=given_gamma, lambda_=lambda_), expected)


@settings(max_examples=50, deadline=None)
@given(batches(), st.sampled_from([0.0, 0.5, 1.0]))
def test_gae_is_lambda_return_minus_value_when_values_line_up(drawn: tuple[Batch, Tensor], lambda_: float) -> None:
    batch, gamma = drawn
    batch["next_value"] = torch.cat([batch["value"][1:], batch["next_value"][-1:]])
    value = batch.pop("value")
    truncated = batch.pop("truncated") & False
    advantage = gae(**batch, value=value, truncated=truncated, gamma=gamma, gae_lambda=lambda_)
    returns = lambda_return(**batch, truncated=truncated, gamma=gamma, lambda_=lambda_)
    torch.testing.assert_close(advantage, returns - value, rtol=1e-11, atol=1e-11)


FUNCTIONS: list[Callable[..., Tensor]] = [
    lambda reward, value, next_value, *ends: gae(reward, value, next_value, *ends, 0.9, 0.8),
    lambda reward, value, next_value, *ends: lambda_return(reward, next_value, *ends, 0.9, 0.8) + 0 * value,
    lambda reward, value, next_value, *ends: n_step_return(reward, next_value, *ends, 0.9, 3) + 0 * value,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_are_those_of_finite_differences(function: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(6, 2, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    ends = [torch.rand(6, 2, generator=generator) < 0.2 for _ in range(2)]
    assert torch.autograd.gradcheck(lambda *tensors: function(*tensors, *ends), inputs)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_infinite_value_behind_a_terminal_state_has_no_gradient(function: Callable[..., Tensor]) -> None:
    next_value = NEXT_VALUE.clone()
    next_value[2] = float("inf")
    next_value.requires_grad_()
    function(REWARD, VALUE, next_value, flags(2), flags()).sum().backward()
    assert next_value.grad is not None
    assert next_value.grad[2].item() == 0.0
    assert next_value.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_floating_type_is_kept(dtype: torch.dtype) -> None:
    zeros = torch.zeros(3, 2, dtype=dtype)
    never = torch.zeros(3, 2, dtype=torch.bool)
    assert gae(zeros, zeros, zeros, never, never, 0.9, 0.9).dtype == dtype
    assert lambda_return(zeros, zeros, never, never, 0.9, 0.9).dtype == dtype
    assert n_step_return(zeros, zeros, never, never, 0.9, 2).dtype == dtype


def test_flags_may_be_numbers() -> None:
    as_numbers = gae(REWARD, VALUE, NEXT_VALUE, flags(2).double(), flags().double(), 0.5, 0.5)
    torch.testing.assert_close(as_numbers, gae(REWARD, VALUE, NEXT_VALUE, flags(2), flags(), 0.5, 0.5))


def test_wrong_shapes_and_discounts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"next_value has shape \(4, 1\), expected \(5, 1\)"):
        gae(REWARD, VALUE, NEXT_VALUE[1:], flags(), flags(), 0.9, 0.9)
    with pytest.raises(ValueError, match=r"gamma has shape \(1, 1\)"):
        lambda_return(REWARD, NEXT_VALUE, flags(), flags(), torch.ones(1, 1), 0.9)
    with pytest.raises(ValueError, match=r"gamma=1\.5 must lie between 0 and 1"):
        n_step_return(REWARD, NEXT_VALUE, flags(), flags(), 1.5, 1)
    with pytest.raises(ValueError, match="n=0 must be at least 1"):
        n_step_return(REWARD, NEXT_VALUE, flags(), flags(), 0.9, 0)
    with pytest.raises(ValueError, match="at least one step"):
        empty = REWARD[:0]
        gae(empty, empty, empty, flags()[:0], flags()[:0], 0.9, 0.9)
    with pytest.raises(TypeError, match="reward must be a tensor, got list"):
        gae([1.0], VALUE, NEXT_VALUE, flags(), flags(), 0.9, 0.9)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_steps", [1, 2, 3, 7, 8, 9, 100])
def test_discounted_sum_solves_its_recursion_for_every_length(n_steps: int) -> None:
    generator = torch.Generator().manual_seed(n_steps)
    x, decay = torch.randn(2, n_steps, 4, generator=generator, dtype=torch.float64).unbind(0)
    result = discounted_sum(x, decay)
    shifted = torch.cat([result[1:], torch.zeros(1, 4, dtype=torch.float64)])
    torch.testing.assert_close(result, x + decay * shifted, rtol=1e-12, atol=1e-12)
