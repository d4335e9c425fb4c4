"""Pictures of chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs.multi_echelon_stock import StockChain, StockMazeAction, StockRenderer, structured_stock_factory
from tests.envs.multi_echelon_stock.chains import CHAINS, SERIAL

pytest.importorskip("matplotlib")


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_bars_are_stock_pipeline_and_backlog() -> None:
    env = structured_stock_factory(StockChain(**SERIAL))
    env.reset(seed=0)
    state = env.get_maze_state()
    state.owed[0] = 2
    axes, history = StockRenderer().render(state, StockMazeAction((7,))).axes
    heights = sorted(patch.get_height() for patch in axes.patches)
    assert heights == [-2, 5, 10, 15]  # owed, on its way to echelon 1, and the stocks
    assert {"10", "15", "5", "2", "+ 7"} <= set(texts(axes))
    assert len(history.patches) == 4


@pytest.mark.parametrize("name", CHAINS)
def test_a_step_is_rendered_by_the_environment(name: str) -> None:
    env = structured_stock_factory(StockChain(**CHAINS[name]))
    env.reset(seed=0)
    env.step(env.action_space.sample())
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
