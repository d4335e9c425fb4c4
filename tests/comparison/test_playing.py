"""Progress of a comparison: one bar over all rounds."""

from __future__ import annotations

import io
import re
import sys

import pytest

from maze_pl.comparison.compare import compare
from maze_pl.envs import GymMazeEnv


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("precision", [None, 1e-9])
def test_one_bar_goes_over_the_rounds_of_a_comparison(precision: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    name = "an_extremely_long_name/of_the_first_policy"
    compare(
        "heuristic",
        {name: "random"},
        env=lambda: GymMazeEnv("CartPole-v1"),
        n_episodes=8,
        n_envs=2,
        max_steps=60,
        progress=True,
        precision=precision,
        max_episodes=9,
    )
    text = terminal.getvalue()
    counts = [(int(done), int(total)) for done, total in re.findall(r" (\d+)/(\d+) \[", text)]
    n_wanted = 16 if precision is None else 18
    assert counts[-1] == (n_wanted, n_wanted) and counts[0] == (0, 16)
    assert [done for done, _ in counts] == sorted(done for done, _ in counts)
    assert text.count("\n") == 1 and "\r…/of_the_first_policy: 100%" in text
