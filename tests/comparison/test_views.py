"""Episodes of a comparison in the viewer: which are chosen, and what their pages hold."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from maze_pl.comparison.compare import compare
from maze_pl.comparison.results import Comparison
from maze_pl.comparison.views import extreme_episodes, most_different
from maze_pl.envs import GymMazeEnv, Renderer

NAN = float("nan")


def test_the_best_the_median_and_the_worst_episode_are_found_in_all_runs() -> None:
    values = np.array([[5.0, 1.0, NAN], [7.0, 2.0, 4.0]])
    assert extreme_episodes(values, False) == {"best": (1, 0), "median": (1, 2), "worst": (0, 1)}
    assert extreme_episodes(values, True) == {"best": (0, 1), "median": (1, 2), "worst": (1, 0)}
    assert extreme_episodes(np.array([[3.0]]), False) == {"best": (0, 0)}
    assert extreme_episodes(np.array([[NAN]]), False) == {}


def test_the_episode_that_differs_most_has_the_same_seed_in_both() -> None:
    values, baseline = np.array([[5.0, 1.0, 2.0], [7.0, NAN, 4.0]]), np.array([[6.0, 100.0, 9.0]])
    assert most_different(values, baseline) == (0, 0, 1)
    assert most_different(values[:, :1], values[:1, :1]) == (1, 0, 0)
    assert most_different(np.ones((2, 3)), np.ones((1, 3))) is None


def document(path: Path) -> dict[str, Any]:
    """The document in a page of the viewer."""
    found = re.search(
        r'<script type="application/json"[^>]*>(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_pages_hold_the_episodes_that_were_compared(tmp_path: Path) -> None:
    table = compare(
        *("heuristic", "random"),
        env=lambda: GymMazeEnv("CartPole-v1"),
        n_episodes=10,
        max_steps=40,
        to=tmp_path / "out",
    )
    page = (tmp_path / "out" / "comparison.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', page)
    places = [address.partition("#") for address, _ in links]
    of_entries = [("episodes/01.html", i) for i in range(3)] + [("episodes/02.html", i) for i in range(3)]
    assert [(file, int(step[-1])) for file, _, step in places[:-1]] == of_entries
    of_random = document(tmp_path / "out" / "episodes/02.html")
    returns = [episode["return"] for episode in of_random["episodes"]]
    assert len(returns) == 3 and returns == sorted(returns, reverse=True)
    assert returns[0] >= table.entry("random").metrics["return"].mean >= returns[2]
    assert "played again" not in str([episode["name"] for episode in of_random["episodes"]])
    assert links[-1][0] == "episodes/03.html" and f"in which they differ most ({returns[2]:g} and 40)" in links[-1][1]
    assert links[3][1] == f"best ({returns[0]:g})" and links[5][1] == f"worst ({returns[2]:g})"
    both = document(tmp_path / "out" / links[-1][0])
    assert both["pairs"] == [[0, 1]]
    first, second = both["episodes"]
    assert first["seed"] == second["seed"]
    assert {first["policy"], second["policy"]} == {"heuristic", "random"}
    assert {first["return"], second["return"]} == {40.0, returns[2]}


class CartRenderer(Renderer):
    """Draws empty pictures."""

    def render(self, *_: Any, **__: Any) -> Figure:
        return Figure((1, 1))


def drawn_cart_pole() -> GymMazeEnv:
    env = GymMazeEnv("CartPole-v1")
    env.core_env.get_renderer = CartRenderer  # type: ignore[method-assign]
    return env


def test_the_table_comes_first_and_drawing_has_a_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, bool]] = []

    def receive(table: Comparison) -> None:
        order.append((table.metric, (tmp_path / "out").exists()))
        before = capsys.readouterr().err
        assert re.search(r"(^|\r)random: .*2/2 .*episode/s", before) and "picture" not in before

    options: dict[str, Any] = {"env": drawn_cart_pole, "n_episodes": 2, "max_steps": 3}
    with monkeypatch.context() as terminal:
        terminal.setattr(sys.stderr, "isatty", lambda: True)
        compare("random", **options, to=tmp_path / "out", progress=True, receive=receive)
    assert order == [("return", False)]
    error = capsys.readouterr().err
    assert re.search(r"pictures of .*4/4 .*picture/s", error)
    assert re.search(r"pages with episodes: .*0/1 .*1/1 ", error, re.DOTALL)
    assert re.search(r"view of random, episode [01]: .*2/2 .*episode/s", error)
    compare("random", **options, to=tmp_path / "quiet")
    compare("random", **options, to=tmp_path / "log", progress=True)  # stderr is a file
    assert capsys.readouterr().err == ""


def test_views_can_be_left_out(tmp_path: Path) -> None:
    compare("random", env=lambda: GymMazeEnv("CartPole-v1"), n_episodes=2, to=tmp_path / "out", views=False)
    assert not (tmp_path / "out" / "episodes").exists()
    assert "<h2>Episodes</h2>" not in (tmp_path / "out" / "comparison.html").read_text(encoding="utf-8")
