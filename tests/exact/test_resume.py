"""Training that was interrupted ends exactly where training that was not interrupted ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
ALL = ["cartpole", "lunarlander", "agreement", "team", "hierarchy"]


def run(folder: Path, algorithm: str, phase: str, names: list[str], n_ranks: int) -> None:
    worker = [str(Path(__file__).with_name("worker.py")), str(folder), algorithm, phase, *names]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(n_ranks), "--master-port", str(port)]
    command = [sys.executable, *(launcher if n_ranks > 1 else []), *worker]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-6000:]


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Paths at which two nested states differ, bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
        return [] if same else [path]
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return [f"{path} has keys {sorted(map(str, a.keys() ^ b.keys()))} on one side"]
        return [found for key in a for found in differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return [f"{path} has lengths {len(a)} and {len(b)}"]
        return [found for i, (x, y) in enumerate(zip(a, b, strict=True)) for found in differences(x, y, f"{path}/{i}")]
    return [] if a == b or (a != a and b != b) else [f"{path}: {a!r} != {b!r}"]


def comparable(path: Path) -> dict[str, Any]:
    """What of a checkpoint must be equal: everything but times, callbacks and Lightning's loop bookkeeping."""
    checkpoint = torch.load(path, weights_only=True)
    kept = ("state_dict", "optimizer_states", "RolloutDataModule", "global_step", "epoch", "maze_pl")
    return {key: checkpoint[key] for key in kept}


def without_times(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: without_times(value) for key, value in state.items() if "time_" not in str(key)}
    return state


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [1, 2])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_six_epochs_equal_three_and_three_more_in_a_new_process(tmp_path: Path, algorithm: str, n_ranks: int) -> None:
    run(tmp_path, algorithm, "start", ALL, n_ranks)
    run(tmp_path, algorithm, "resume", ALL, n_ranks)
    for name in ALL:
        whole = without_times(comparable(tmp_path / f"{name}-whole.ckpt"))
        assert whole["epoch"] == 6 and whole["global_step"] > 0
        for point in ("epoch", "validation"):
            kept = comparable(tmp_path / f"{name}-kept-{point}.ckpt")
            assert differences(kept["state_dict"], whole["state_dict"]) != []
            resumed = without_times(comparable(tmp_path / f"{name}-from-{point}.ckpt"))
            assert differences(whole, resumed) == [], (name, point)
        if n_ranks == 2:
            first, second = torch.load(tmp_path / f"{name}-whole.ckpt", weights_only=True)["RolloutDataModule"]["ranks"]
            assert differences(first["histories"], second["histories"]) != [], "both ranks saw the same data"
