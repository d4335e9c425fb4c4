"""Long names keep their ends, from a separator on if there is one near."""

from __future__ import annotations

import pytest

from maze_pl.runs.short_names import shortened


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("short/name", "short/name"),
        ("outputs/experiment/a_run", "…periment/a_run"),
        ("outputs/experiments/run_1234", "…/run_1234"),
        ("package.module.OfPolicies", "….OfPolicies"),
        ("x" * 30, "…" + "x" * 14),
    ],
)
def test_names_are_cut_at_a_separator_or_with_an_ellipsis(name: str, short: str) -> None:
    assert shortened(name, 15) == short
