"""The parts of two checkpoints that must be equal bit for bit, and the places in which they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Paths at which two nested states differ, bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.isnan(), b.isnan())
        return [] if same and torch.equal(a[~a.isnan()], b[~b.isnan()]) else [path]
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
    """What of a checkpoint must be equal: everything but provenance, times, callbacks and Lightning's bookkeeping."""
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["maze_pl"].pop("provenance", None)
    kept = ("state_dict", "optimizer_states", "RolloutDataModule", "global_step", "epoch", "maze_pl")
    return {key: checkpoint[key] for key in kept}


def without_times(state: Any) -> Any:
    """Return a nested state without measured times."""
    if isinstance(state, dict):
        return {key: without_times(value) for key, value in state.items() if "time_" not in str(key)}
    return state


def comparable_with_buffers(path: Path) -> Any:
    """What of a checkpoint of SAC must be equal, the replay buffers included.

    The same content may be pickled in several ways, so the names of the buffers' files are left out.
    """
    checkpoint = torch.load(path, weights_only=True)
    replay = checkpoint["ReplayDataModule"].pop("replay")
    buffers = [torch.load(path.with_name(name), weights_only=True) for name in replay["files"]]
    for state in (checkpoint["maze_pl"], *buffers):
        state.pop("provenance", None)
    kept = ("state_dict", "optimizer_states", "ReplayDataModule", "global_step", "epoch", "maze_pl")
    return without_times({key: checkpoint[key] for key in kept} | {"buffers": buffers})
