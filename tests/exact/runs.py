"""Runs of the worker of these tests in new processes, on several ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(folder: Path, algorithms: list[str], phases: list[str], names: list[str], n_ranks: int) -> None:
    """Let a new process, or one for each rank, train each algorithm through all phases in all environments.

    Args:
        folder: Gets a folder for each algorithm, with its checkpoints.
        algorithms: "ppo", "a2c".
        phases: "start", "resume", "here", "workers"; see the worker.
        names: Of the environments.
        n_ranks: How many processes train together.
    """
    options = [",".join(algorithms), ",".join(phases), *names]
    worker = [str(Path(__file__).with_name("launch.py")), str(folder), *options]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(n_ranks), "--master-port", str(port)]
    command = [sys.executable, *(launcher if n_ranks > 1 else []), *worker]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-6000:]
