"""V-trace by hand, against the sums of the paper, and where it must agree with other returns."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maze_pl.functional import lambda_return, vtrace
from tests.functional.paper import by_the_paper


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)


RHO = column(2, 0.5, 1, 4, 0.25)
REWARD = column(1, 2, 3, 4, 5)
VALUE = column(10, 20, 30, 40, 50)
DISCOUNT = column(0.5, 0.5, 0.0, 0.5, 0.5)  # an episode ends with the third step
AFTER = torch.tensor([60.0], dtype=torch.float64)


def test_five_steps_by_hand() -> None:
    vs, advantage = vtrace(RHO.log(), DISCOUNT, REWARD, VALUE, AFTER, 1.0, 1.0)
    # deltas r + g V' - V are 1, -3, -27, -11, -15; rho clipped at 1 is 1, 0.5, 1, 1, 0.25
    d4 = 0.25 * -15
    d3 = -11 + 0.5 * 1 * d4
    d2 = -27.0
    d1 = 0.5 * -3 + 0.5 * 0.5 * d2
    d0 = 1 + 0.5 * 1 * d1
    torch.testing.assert_close(vs, VALUE + column(d0, d1, d2, d3, d4))
    assert vs.flatten().tolist() == [6.875, 11.75, 3.0, 27.125, 46.25]
    by_hand = [1 + 0.5 * 11.75 - 10, 0.5 * (2 + 0.5 * 3 - 20), 3 - 30, 4 + 0.5 * 46.25 - 40, 0.25 * (5 + 30 - 50)]
    assert advantage.flatten().tolist() == pytest.approx(by_hand)


def test_each_threshold_limits_its_own() -> None:
    vs, advantage = vtrace(RHO.log(), DISCOUNT, REWARD, VALUE, AFTER, 3.0, None)
    d4 = 0.25 * -15
    d3 = 3 * -11 + 0.5 * 1 * d4  # the trace c is still limited to 1
    d1 = 0.5 * -3 + 0.5 * 0.5 * -27
    torch.testing.assert_close(vs, VALUE + column(2 * 1 + 0.5 * 1 * d1, d1, -27, d3, d4))
    # the unlimited ratio counts once in the advantage
    assert float(advantage[3]) == pytest.approx(4 * (4 + 0.5 * (50 + d4) - 40))
    assert float(vtrace(RHO.log(), DISCOUNT, REWARD, VALUE, AFTER, None, 1.5)[1][3]) == pytest.approx(
        1.5 * (4 + 0.5 * (50 + d4) - 40)
    )


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Tensor]:
    shape = draw(st.integers(1, 13)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def normal(*size: int) -> Tensor:
        return torch.randn(size or shape, generator=generator, dtype=torch.float64)

    going_on = torch.rand(shape, generator=generator) >= draw(st.sampled_from([0.0, 0.2, 0.6]))
    discount = torch.rand(shape, generator=generator, dtype=torch.float64) * going_on
    spread = draw(st.sampled_from([0.0, 0.5, 2.0]))
    return {
        "log_rho": spread * normal(),
        "discount": discount,
        "reward": normal(),
        "value": normal(),
        "bootstrap_value": normal(shape[1]),
    }


limits = st.sampled_from([None, 0.5, 1.0, 2.5])


@settings(max_examples=150, deadline=None)
@given(batch=batches(), clip=limits, clip_pg=limits)
def test_targets_and_advantages_are_the_sums_of_the_paper(
    batch: dict[str, Tensor], clip: float | None, clip_pg: float | None
) -> None:
    given_limits = [math.inf if limit is None else limit for limit in (clip, clip_pg)]
    wanted = by_the_paper(*batch.values(), *given_limits)
    for found, expected in zip(
        vtrace(**batch, clip_rho_threshold=clip, clip_pg_rho_threshold=clip_pg), wanted, strict=True
    ):
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(batch=batches())
def test_on_policy_targets_are_whole_returns(batch: dict[str, Tensor]) -> None:
    batch["log_rho"] = torch.zeros_like(batch["reward"])
    vs, advantage = vtrace(**batch)
    next_value = torch.cat([batch["value"][1:], batch["bootstrap_value"][None]])
    never = torch.zeros_like(vs, dtype=torch.bool)
    returns = lambda_return(batch["reward"], next_value, never, never, batch["discount"], 1.0)
    torch.testing.assert_close(vs, returns)
    torch.testing.assert_close(advantage, returns - batch["value"])


@settings(max_examples=50, deadline=None)
@given(batch=batches())
def test_what_the_policy_never_does_now_teaches_nothing(batch: dict[str, Tensor]) -> None:
    batch["log_rho"] = torch.full_like(batch["reward"], -math.inf)
    vs, advantage = vtrace(**batch)
    assert torch.equal(vs, batch["value"])
    assert not advantage.any()


@settings(max_examples=50, deadline=None)
@given(batch=batches())
def test_nothing_leaks_back_over_the_end_of_an_episode(batch: dict[str, Tensor]) -> None:
    middle = len(batch["reward"]) // 2
    batch["discount"][middle] = 0.0
    first = {name: tensor[: middle + 1] for name, tensor in batch.items()} | {"bootstrap_value": batch["value"][0]}
    for whole, part in zip(vtrace(**batch), vtrace(**first), strict=True):
        torch.testing.assert_close(whole[: middle + 1], part)


def test_a_time_limit_is_bootstrapped_by_the_caller() -> None:
    values = column(10, 20)
    whole = vtrace(column(0, 0), column(0.5, 0.5), column(1, 2), values, AFTER)
    reward, discount = column(1, 2 + 0.5 * 60), column(0.5, 0.0)
    for found, expected in zip(vtrace(column(0, 0), discount, reward, values, 0 * AFTER), whole, strict=True):
        torch.testing.assert_close(found, expected)


def test_targets_carry_no_gradients_and_huge_ratios_stay_finite() -> None:
    value = VALUE.clone().requires_grad_()
    vs, advantage = vtrace(torch.full_like(RHO, 1000.0), DISCOUNT, REWARD, value, AFTER)
    assert not vs.requires_grad and not advantage.requires_grad
    assert bool(vs.isfinite().all() and advantage.isfinite().all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": torch.zeros(5, 2)}, r"value has shape \(5, 2\), expected \(5, 1\)"),
        ({"discount": torch.zeros(4, 1)}, r"discount has shape \(4, 1\), expected \(5, 1\)"),
        ({"bootstrap_value": torch.zeros(2)}, r"bootstrap_value has shape \(2,\), expected \(1,\)"),
        ({"clip_rho_threshold": 0.0}, "clip_rho_threshold=0.0 must be greater than 0, or None"),
        ({"clip_pg_rho_threshold": -1.0}, "clip_pg_rho_threshold=-1.0 must be greater than 0, or None"),
    ],
)
def test_wrong_shapes_and_thresholds_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = dict(log_rho=RHO, discount=DISCOUNT, reward=REWARD, value=VALUE, bootstrap_value=AFTER)
    with pytest.raises(ValueError, match=message):
        vtrace(**{**arguments, **change})
