from __future__ import annotations

import numpy as np
import pytest

from maze_pl.callbacks.epoch_table import format_value, render
from maze_pl.events.histogram import Histogram


def test_statistics_are_grouped_by_topic_under_a_title() -> None:
    text = render(
        "epoch 3",
        {
            "train": {"BaseEnvEvents/reward/mean": 28.1, "ActorCriticEvents/learning_rate": 2.5e-4},
            "eval": {"BaseEnvEvents/reward/mean": 30.0, "BaseEnvEvents/reward/total_step_count": 92800.0},
        },
    )
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[1] == "epoch 3"
    assert [line.split() for line in lines[3:]] == [
        ["train", "ActorCriticEvents", "learning_rate", "0.00025"],
        ["train", "BaseEnvEvents", "reward/mean", "28.100"],
        ["eval", "BaseEnvEvents", "reward/mean", "30.000"],
        ["reward/total_step_count", "92,800"],
    ]


def test_an_epoch_without_statistics_is_just_its_title() -> None:
    assert render("epoch 1", {}).splitlines()[1:] == ["epoch 1", "-------"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (12345, "12,345"),
        (0.0, "0.000"),
        (28.1, "28.100"),
        (-0.25, "-0.250"),
        (0.0042, "0.0042"),
        (1234567.0, "1,234,567"),
        (float("nan"), "nan"),
        (Histogram.of(np.array([0, 1, 1, 0])), "[len:4, μ:0.5]"),
    ],
)
def test_values_are_written_with_enough_digits(value: object, text: str) -> None:
    assert format_value(value) == text
