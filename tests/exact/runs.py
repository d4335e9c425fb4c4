"""Runs of the worker of these tests in new processes, on several ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(folder: Path, algorithm: str, phase: str, names: list[str], n_ranks: int) -> None:
    worker = [str(Path(__file__).with_name("launch.py")), str(folder), algorithm, phase, *names]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(n_ranks), "--master-port", str(port)]
    command = [sys.executable, *(launcher if n_ranks > 1 else []), *worker]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-6000:]
