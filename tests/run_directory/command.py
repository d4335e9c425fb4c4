"""The command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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
