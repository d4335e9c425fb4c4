"""Views at the end of training: what is left where there is nothing to play, or nothing can be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.bad_input.project import SMALL

UNDRAWABLE = """
from maze_pl.envs import GymMazeEnv, Renderer

class Undrawable(GymMazeEnv):
    def __init__(self):
        super().__init__("CartPole-v1")

    def get_renderer(self):
        return Broken()

class Broken(Renderer):
    def render(self, maze_state, maze_action=None, events=(), **arguments):
        raise ArithmeticError("no paint")
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_episode_that_cannot_be_drawn_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("undrawable.py").write_text(UNDRAWABLE)
    env = ["--data.env", "undrawable.Undrawable", "--run_dir", "run", "--view"]
    assert main(["fit", "--config", "ppo_cartpole", *SMALL, *env]) == 0
    shown = capsys.readouterr().out
    assert "no view of an episode" in shown and "Broken cannot draw state 0" in shown and "no paint" in shown
    assert not Path("run/view.html").exists()
    assert Path("run/checkpoints/best.ckpt").exists()
    assert main(["view", "run"]) == 2
    assert "undrawable.Undrawable" in capsys.readouterr().err
    assert main(["view", "run", "--trust"]) == 2
    assert "Broken cannot draw state 0 of episode" in capsys.readouterr().err
    assert main(["view", "run", "--trust", "--pictures", "false", "--max_steps", "5"]) == 0
    assert Path("run/view.html").exists()
