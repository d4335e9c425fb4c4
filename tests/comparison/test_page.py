"""The page of a comparison: its plots, its words, and its look in a browser."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from maze_pl.comparison.compare import compare
from maze_pl.comparison.interval_plots import Mark, Row, interval_plot, ticks
from maze_pl.comparison.results import Comparison, Difference
from maze_pl.comparison.tables import shown_differences, verdict_text
from maze_pl.envs import GymMazeEnv
from tests.viewer.browser import DESKTOP, PHONE, chromium

LOW_CONTRAST = Path(__file__).parents[1].joinpath("viewer", "low_contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-3.0, 17.0, [0.0, 5.0, 10.0, 15.0]),
        (1e6, 1e6 + 0.3, [1000000.0, 1000000.1, 1000000.2, 1000000.3]),
    ],
)
def test_ticks_are_round_numbers_in_the_range(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


def test_values_and_intervals_lie_at_their_share_of_the_scale() -> None:
    plot = interval_plot([Row("one", [Mark("mean", 5.0, (0.0, 10.0))], "five")]).html
    low, high = -0.6, 10.6  # with a margin of 6%
    left = 100 * (0.0 - low) / (high - low)
    assert f"left: {left:.2f}%; right: calc(100% - {100 - left:.2f}%)" in plot
    assert 'class="dot of-mean" style="left: 50.00%"' in plot
    assert 'aria-label="mean 5, 95% interval 0 to 10"' in plot


def test_unknown_and_constant_values_are_drawn_without_a_fault() -> None:
    assert "no values" in interval_plot([Row("none", [Mark("mean", math.nan, None)], "")]).html
    assert "left: 50.00%" in interval_plot([Row("one", [Mark("iqm", 500.0, (500.0, 500.0))], "")]).html
    assert "&lt;b&gt;" in interval_plot([Row("<b>", [Mark("mean", 1.0, None)], "<i>")]).html


def comparison(*differences: Difference, lower_is_better: bool = False) -> Comparison:
    return Comparison("return", lower_is_better, 9, 0, 0, False, [], list(differences), None, 1)


def difference(interval: tuple[float, float] | None, needed: int | None = None, **others: bool) -> Difference:
    estimate = 0.0 if interval is None else sum(interval) / 2
    return Difference("a", "b", "return", estimate, interval, 0.5, None, needed, **others)


def test_a_difference_is_described_in_words() -> None:
    for interval, needed, expected in (
        ((1.0, 3.0), None, "better"),
        ((-3.0, -1.0), None, "worse"),
        ((-1.0, 3.0), 1234, "undecided; about 1,234 episodes would decide"),
        ((0.0, 0.0), None, "no difference"),
        (None, None, "undecided: there is no interval"),
    ):
        one = difference(interval, needed)
        assert verdict_text(comparison(one), one) == expected
    one = difference((-1.0, 3.0), needs_more_runs=True)
    assert verdict_text(comparison(one), one) == "undecided; only more runs can decide"
    one = difference((1.0, 3.0))
    assert verdict_text(comparison(one, lower_is_better=True), one) == "worse"
    of_kpi = Difference("a", "b", "kpi/waste", 2.0, (1.0, 3.0), 1.0, None)
    assert verdict_text(comparison(of_kpi), of_kpi) == "higher"  # nobody has said which is better


def test_two_baselines_are_shown_in_one_direction_only() -> None:
    one = difference((1.0, 3.0))
    mirrored = Difference("b", "a", "return", -2.0, (-3.0, -1.0), 0.5, None)
    assert shown_differences(comparison(one, mirrored)) == [one]


@pytest.mark.slow
def test_the_page_fits_laptops_and_phones_and_links_single_episodes(tmp_path: Path) -> None:
    compare(
        *("heuristic", {"long " * 12: "random"}),
        env=lambda: GymMazeEnv("CartPole-v1"),
        n_episodes=8,
        max_steps=20,
        to=tmp_path / "out",
    )
    with chromium(tmp_path / "profile") as page:
        for size in (DESKTOP, PHONE):
            for theme in ("light", "dark"):
                page.resize(size)
                features = [{"name": "prefers-color-scheme", "value": theme}]
                page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
                page.driver.get((tmp_path / "out" / "comparison.html").as_uri())
                assert page.run("return document.documentElement.scrollWidth") <= size[0]
                assert page.run(LOW_CONTRAST) == []
        assert page.logs("browser") == []
        address = page.run("return document.querySelectorAll('li a')[2].href")
        page.driver.get(address)
        page.wait("'ready' in document.documentElement.dataset")
        assert [text.split(":")[0] for text in page.texts(".pane h2")] == ["worst"]
