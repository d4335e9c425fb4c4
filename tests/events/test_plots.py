from __future__ import annotations

import numpy as np
import pytest

from maze_pl.events.display import create_bar_plot, create_violin_plot


def test_bars_show_the_share_of_every_choice_also_of_those_never_made() -> None:
    figure = create_bar_plot([3, 3, 4, 6], ("substep_0", "gear", "3_to_7"))
    (axes,) = figure.axes
    bars = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in axes.patches}
    assert bars == {3: 0.5, 4: 0.25, 5: 0.0, 6: 0.25, 7: 0.0}
    assert [text.get_text() for text in axes.texts] == ["50%", "25%", "0%", "25%", "0%"]
    assert axes.get_title() == "substep_0 / gear"
    assert axes.get_xlabel() == "index of the action"
    assert axes.get_ylabel() == "share of 4 sampled acts"


def test_binary_actions_show_how_often_each_was_on() -> None:
    figure = create_bar_plot([np.array([1, 0, 1]), np.array([1, 0, 0])], ("substep_0", "lamps"))
    assert [bar.get_height() for bar in figure.axes[0].patches] == [1.0, 0.0, 0.5]


@pytest.mark.parametrize("last", [199, 99_999])
def test_many_choices_are_one_outline(last: int) -> None:
    figure = create_bar_plot([0, last], ("substep_0", "piece", f"0_to_{last}"))
    (outline,) = figure.axes[0].patches
    shares, edges, _ = outline.get_data()  # type: ignore[attr-defined]
    assert len(shares) == min(last + 1, 256)
    assert (shares[0], shares[1], shares[-1], shares.sum()) == (0.5, 0.0, 0.5, 1.0)
    assert (edges[0], edges[-1]) == (-0.5, last + 0.5)


@pytest.mark.parametrize("scale", [1.0, 0.0], ids=["spread", "constant"])
def test_continuous_actions_have_a_violin_for_each_component(scale: float) -> None:
    values = scale * np.random.default_rng(1).normal(size=(100, 2, 20))
    figure = create_violin_plot(list(values), ("substep_walk", "joints"))
    (axes,) = figure.axes
    bodies = [collection for collection in axes.collections if hasattr(collection, "get_paths")][:32]
    medians = [path.vertices[:, 1].mean() for path in axes.collections[-1].get_paths()]
    assert len(bodies) == 32
    np.testing.assert_allclose(medians, np.median(values.reshape(100, -1)[:, :32], axis=0))
    assert axes.get_title() == "substep_walk / joints"


def test_a_single_act_can_be_drawn() -> None:
    (axes,) = create_violin_plot([np.array([0.5])], ("substep_0", "wheel")).axes
    assert axes.get_ylabel() == "value in 1 sampled acts"
