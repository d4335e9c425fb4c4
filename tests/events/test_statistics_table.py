from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.core.histogram import Histogram
from maze_pl.events.display import WIDTH, format_value, render, render_descriptions, shortened


def test_statistics_are_rows_of_step_path_and_value_grouped_by_topic() -> None:
    text = render(
        "epoch 3",
        3,
        {
            "train": {
                "BaseEnvEvents/reward/mean": 28.1,
                "ActorCriticEvents/learning_rate": 2.5e-4,
                "BaseEnvEvents/reward/episode_count": 12.0,
                "DiscreteActionEvents/action/substep_0/action": Histogram.of(np.array([0, 1])),
            },
            "eval": {"BaseEnvEvents/reward/mean": 30.0, "BaseEnvEvents/reward/total_step_count": 92800.0},
        },
    )
    assert text.splitlines() == [
        "",
        "epoch 3",
        " step|path                                                       |          value",
        "=====|===========================================================|===============",
        "    3|train ActorCriticEvents     learning_rate                  |        0.00025",
        "    3|train BaseEnvEvents         reward         episode_count   |             12",
        "    3|train BaseEnvEvents         reward         mean            |         28.100",
        "    3|train DiscreteActionEvents  action         substep_0/action| [len:2, μ:0.5]",
        "    3|eval BaseEnvEvents          reward         mean            |         30.000",
        "    3|eval BaseEnvEvents          reward         total_step_count|         92,800",
    ]


def test_an_epoch_without_statistics_is_just_its_title() -> None:
    assert render("epoch 1", 1, {}).split() == ["epoch", "1"]


NAMES = st.lists(st.text("abcdefgh_", min_size=1, max_size=60), min_size=1, max_size=6, unique=True)


@given(topics=NAMES, events=NAMES, statistics=NAMES, value=st.floats(allow_nan=True) | st.integers(0, 2**62))
def test_a_table_is_never_wider_than_100_columns(
    topics: list[str], events: list[str], statistics: list[str], value: float
) -> None:
    names = [f"{topic}/{event}/{name}" for topic in topics for event in events for name in statistics]
    text = render(
        "epoch 1", 1, {"train": dict.fromkeys(names, value), "a_second_evaluator": dict.fromkeys(names, value)}
    )
    rows = [line for line in text.splitlines() if line.startswith("    1|")]
    assert max(map(len, text.splitlines())) <= WIDTH
    assert len(rows) == 2 * len(names)
    assert len({len(row) for row in rows}) == 1


@given(name=st.text("abcdefgh_", max_size=60), width=st.integers(8, 40))
def test_a_name_is_shortened_only_if_it_has_to_be(name: str, width: int) -> None:
    short = shortened(name, width)
    assert short == name if len(name) <= width else len(short) == width and ".." in short


def test_a_name_that_is_too_long_keeps_its_beginning_and_its_end() -> None:
    assert shortened("mean/raw_piece_usage_per_step", 20) == "mean/raw..e_per_step"
    assert shortened("max", 20) == "max"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (12345, "12,345"),
        (0.0, "0.000"),
        (28.1, "28.100"),
        (-0.25, "-0.250"),
        (0.0042, "0.0042"),
        (-3e-9, "-3e-09"),
        (1234567.0, "1,234,567"),
        (1234.5, "1,234.500"),
        (1e30, "1e+30"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Histogram.of(np.array([0, 1, 1, 0])), "[len:4, μ:0.5]"),
        (Histogram.of(np.array([0.002])), "[len:1, μ:0.002]"),
    ],
)
def test_values_are_written_with_enough_digits(value: object, text: str) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: value != 0))
def test_no_number_but_zero_reads_as_zero(value: float) -> None:
    assert re.search("[1-9]", format_value(value))


def test_each_described_statistic_of_a_table_has_one_line() -> None:
    tables = {"train": {"A/loss/substep_0": 1.0, "A/loss/substep_1": 1.0, "B/reward/mean": 1.0, "A/norm": 2.0}}
    text = render_descriptions(tables, {"A/loss": "mean loss", "A/norm": "its norm", "A/absent": "never shown"})
    assert text.splitlines() == ["statistics of the algorithm:", "  loss  mean loss", "  norm  its norm"]
    assert render_descriptions(tables, {}) == ""
