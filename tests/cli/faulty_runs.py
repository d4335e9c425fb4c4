"""A run whose environment fails in a chosen way when it is made again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from maze_pl.__main__ import main

ENVIRONMENT = """
import sys
import time
from pathlib import Path

from maze_pl.envs import GymMazeEnv

FOLDER = Path(__file__).parent


def make_env() -> GymMazeEnv:
    mode = (FOLDER / "mode.txt").read_text()
    if mode == "exits":
        sys.exit(3)
    if mode == "has no data":
        (FOLDER / "demand.csv").read_text()
    if mode == "hangs":
        (FOLDER / "hangs").touch()
        time.sleep(600)
    return GymMazeEnv("CartPole-v1")
"""
SMALL = [
    *("--data.epoch_length", "1", "--data.n_envs", "2", "--data.n_rollout_steps", "50", "--model.batch_size", "50"),
    *("--trainer.max_epochs", "1", "--data.evaluators", '{"eval": {"n_episodes": 1}}'),
]


def make_run(folder: Path) -> Path:
    """Train briefly in a folder, and return the run directory; `set_mode` chooses how its environment fails then."""
    (folder / "faulty_shop.py").write_text(ENVIRONMENT)
    set_mode(folder, "works")
    sys.modules.pop("faulty_shop", None)  # of another folder
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        options = ["--data.env", "faulty_shop.make_env", *SMALL, "--run_dir", str(folder / "run")]
        assert main(["fit", "--config", "ppo_cartpole", *options]) == 0
    return folder / "run"


def set_mode(folder: Path, mode: str) -> None:
    """Let the environment work, or let it fail as it `exits`, `has no data` or `hangs`."""
    (folder / "mode.txt").write_text(mode)
