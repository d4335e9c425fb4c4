"""The shapes of schedules, at points computed by hand, and the refusal of impossible ones."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.core.checks import check_fraction, check_positive
from maze_pl.schedules import Constant, Cosine, Linear, Piecewise, Schedule, described, value_at

POINTS = [(0.2, 1.0), (0.4, 3.0), (0.8, 2.0)]


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (Constant(0.3), {0.0: 0.3, 0.7: 0.3, 1.0: 0.3}),
        (Linear(0.2, 0.0), {0.0: 0.2, 0.25: 0.15, 0.5: 0.1, 1.0: 0.0}),
        (Linear(1.0, 3.0, until=0.5), {0.0: 1.0, 0.25: 2.0, 0.5: 3.0, 0.75: 3.0, 1.0: 3.0}),
        (Cosine(2.0, 0.0), {0.0: 2.0, 1 / 3: 1.5, 0.5: 1.0, 2 / 3: 0.5, 1.0: 0.0}),
        (Cosine(0.0, 1.0, until=0.5), {0.125: (1 - math.sqrt(0.5)) / 2, 0.25: 0.5, 0.5: 1.0, 0.9: 1.0}),
        (Piecewise(POINTS), {0.0: 1.0, 0.2: 1.0, 0.3: 2.0, 0.4: 3.0, 0.5: 2.75, 0.8: 2.0, 1.0: 2.0}),
        (Piecewise(POINTS, "constant"), {0.0: 1.0, 0.39: 1.0, 0.4: 3.0, 0.79: 3.0, 0.8: 2.0, 1.0: 2.0}),
        (Piecewise([[0.5, 7]]), {0.0: 7.0, 0.5: 7.0, 1.0: 7.0}),  # type: ignore[list-item]
    ],
)
def test_values_are_those_computed_by_hand(schedule: Schedule, values: dict[float, float]) -> None:
    assert {progress: schedule(progress) for progress in values} == pytest.approx(values)
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert eval(repr(schedule)) == schedule
    assert schedule != Constant(9.0)


@pytest.mark.parametrize("schedule", [Linear(3.0, 1.0), Linear(3.0, 1.0, until=0.4), Piecewise([(0, 3.0), (0.4, 1.0)])])
def test_interpolation_agrees_with_numpy(schedule: Any) -> None:
    end = getattr(schedule, "until", 0.4)
    progress = np.linspace(0.0, 1.0, 21)
    expected = np.interp(progress, [0.0, end], [3.0, 1.0])
    assert [schedule(one) for one in progress] == pytest.approx(expected.tolist())


def test_cosine_agrees_with_torch() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10, eta_min=0.1)
    for step in range(11):
        assert Cosine(0.5, 0.1)(step / 10) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear(1.0, 0.0, until=0.0), "until=0.0 must be greater than 0 and at most 1"),
        (lambda: Cosine(1.0, 0.0, until=1.5), "until=1.5 must be greater than 0 and at most 1"),
        (lambda: Piecewise([]), r"points=\[\] must be pairs of progress and value"),
        (lambda: Piecewise([(0.0, 1.0, 2.0)]), "must be pairs of progress and value"),  # type: ignore[list-item]
        (lambda: Piecewise([(0.5, 1.0), (0.5, 2.0)]), "must be in ascending order of progress"),
        (lambda: Piecewise([(0.5, 1.0), (1.5, 2.0)]), "must be in ascending order of progress"),
        (lambda: Piecewise([(0.5, 1.0)], "cubic"), "interpolation='cubic' must be"),  # type: ignore[arg-type]
    ],
)
def test_impossible_schedules_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_value_of_an_option_is_a_number_at_any_progress() -> None:
    assert value_at("lr", 3, 0.5) == 3
    assert value_at("lr", np.float32(0.5), 0.5) == 0.5
    assert value_at("lr", Linear(1.0, 0.0), 0.25) == 0.75
    value = value_at("lr", lambda progress: torch.tensor(progress / 2), 0.5)
    assert value == 0.25 and type(value) is float


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        ("fast", TypeError, r"rate='fast' must be a number, a schedule .*; .* pass rate=\.\.\. to load_from"),
        (None, TypeError, "rate=None must be a number"),
        (lambda _: None, TypeError, r"rate: its schedule .*<lambda> returned None at progress 0.5, which is not a"),
        (-1.0, ValueError, r"rate=-1.0 must be greater than 0$"),
        (
            Linear(1, -2),
            ValueError,
            r"rate=-0.5 must be .*schedule Linear\(start=1, end=-2, until=1.0\) gives at .* 0.5",
        ),
    ],
)
def test_options_that_give_no_fitting_number_are_refused(option: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        value_at("rate", option, 0.5, check_positive)


@pytest.mark.parametrize("schedule", [Linear(0.2, 0.0), lambda progress: 0.2 * (1.0 - progress)])
def test_a_decay_to_a_number_out_of_range_is_refused_with_a_remedy(schedule: Any) -> None:
    assert value_at("rate", schedule, 0.75, check_positive) == pytest.approx(0.05)
    with pytest.raises(ValueError, match=r"rate=0.0 must be .* progress 1, the end of the run: let it end at a small"):
        value_at("rate", schedule, 1.0, check_positive)


def test_schedules_describe_themselves() -> None:
    assert described(Constant(0.5)) == "Constant(value=0.5)"
    assert described(math.sqrt) == "math.sqrt"
    assert described(check_fraction) == "maze_pl.core.checks.check_fraction"
