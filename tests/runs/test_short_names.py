"""Long names keep their ends, and paths the parts by which they are told apart."""

from __future__ import annotations

import pytest

from maze_pl.runs.short_names import shortened, shortest_ending


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


@pytest.mark.parametrize(
    ("path", "others", "n_parts", "expected"),
    [
        ("/x/trial_0/seed_0", ["/x/trial_0/seed_1", "/x/trial_1/seed_1"], 1, "seed_0"),
        ("/x/trial_0/seed_0", ["/x/trial_0/seed_1", "/x/trial_1/seed_0"], 1, "trial_0/seed_0"),
        ("/x/runs/a", ["/x/runs/ba"], 1, "a"),
        ("/x/runs/a", ["/x/runs/b"], 2, "runs/a"),
        ("random", ["heuristic"], 2, "random"),
        ("b/c", ["a/b/c"], 1, "b/c"),
        ("a/b/c", ["b/c"], 1, "a/b/c"),
        ("x/a/b/c", ["b/c"], 2, "a/b/c"),
        ("/x/a", [], 1, "a"),
        (".", ["a"], 1, "."),
    ],
)
def test_a_path_has_as_few_parts_as_tell_it_from_others(
    path: str, others: list[str], n_parts: int, expected: str
) -> None:
    assert shortest_ending(path, others, n_parts) == expected
