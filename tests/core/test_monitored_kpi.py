"""KPIs that monitored values are statistics of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from maze_pl.core.monitored_kpi import monitored_kpi, sources_of


@pytest.mark.parametrize(
    ("monitor", "kpi"),
    [
        ("eval/kpi/makespan", ("eval", "makespan")),
        ("held_out/kpi/a/b", ("held_out", "a/b")),
        ("held_out_BaseEnvEvents/kpi/mean/makespan", ("held_out", "makespan")),
        ("train_BaseEnvEvents/kpi/std/a/b", ("train", "a/b")),
        ("eval/return", None),
        ("eval_BaseEnvEvents/reward/mean", None),
        ("eval_ShopEvents/kpi/mean/makespan", None),
        ("other/kpi/makespan", None),
        ("", None),
    ],
)
def test_short_names_and_columns_name_a_kpi(monitor: str, kpi: tuple[str, str] | None) -> None:
    assert monitored_kpi(monitor, ["train", "eval", "held_out"]) == kpi


def test_sources_are_training_and_the_evaluators_of_a_data_module() -> None:
    assert sources_of(SimpleNamespace(evaluators={"held_out": None})) == ["train", "held_out"]
    assert sources_of(None) == ["train", "eval"]
