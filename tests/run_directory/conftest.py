from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.run_directory.probe import option

ROOT = Path(__file__).parents[2]
SMALL = ["--data.epoch_length", "2", "--data.n_envs", "2", "--data.n_rollout_steps", "50"]
TWO_EPISODES = ["--data.evaluators", '{"eval": {"n_episodes": 2}}']


def maze_pl(arguments: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, by somebody who is not logged in anywhere."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MAZE_PL"))}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(folder), **variables}
    command = [sys.executable, "-m", "maze_pl", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run `here` that was killed in its third epoch after that was logged, and resumed to the end of four.

    It counts from just below 2**24 env steps, and `probe.txt` has what should have been logged.
    """
    folder = tmp_path_factory.mktemp("resumed")
    probe = option(folder / "probe.txt", begin_at=2**24 - 201, kill_in_epoch=2)
    options = [*SMALL, *TWO_EPISODES, "--wandb", "--run_dir", "here", "--trainer.max_epochs", "4", probe]
    killed = maze_pl(["fit", "--config", "ppo_cartpole", *options], folder)
    assert killed.returncode == -9, killed.stderr
    once_more = option(folder / "probe.txt", kill_in_epoch=None).replace("callbacks+=", "callbacks=[") + "]"
    result = maze_pl(["fit", "--resume", "here", "--trust", once_more, "--model.lr", "1e-3"], folder)
    assert result.returncode == 0, result.stderr
    (folder / "output.txt").write_text(result.stdout, encoding="utf-8")
    return folder
