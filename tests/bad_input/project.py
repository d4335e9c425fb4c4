"""Files that are wrong in all ways, and checks of what a refused command has left behind."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from maze_pl.envs import GymMazeEnv, TrajectoryFiles
from maze_pl.envs.wrappers import SpacesRecordingWrapper, TrajectoryRecordingWrapper

SMALL = [
    *("--trainer.max_epochs", "1", "--data.epoch_length", "1", "--data.n_envs", "2", "--data.n_rollout_steps", "50"),
    *("--data.evaluators", '{"eval": {"n_episodes": 1}}', "--model.capture", "off"),
]
FIT = ["fit", "--config", "ppo_cartpole", *SMALL, "--run_dir", "new"]


def few_fast(rows: Sequence[tuple[Any, ...]], every: int = 4) -> list[Any]:
    """Return the rows of a table of mistakes as parameters, most of them marked as slow."""
    return [pytest.param(*row, marks=[pytest.mark.slow] if i % every else []) for i, row in enumerate(rows)]


class Code:
    """What a pickle with code in it would do."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch pwned",)


@contextmanager
def disk_full_at(file_size: int) -> Iterator[None]:
    """Make writing beyond a file size fail, as on a full disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return the paths and contents of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def require_only_evidence(before: dict[str, bytes | None], folder: Path) -> None:
    """Check that a run which failed has changed nothing but its own logs, and has written no checkpoint.

    Args:
        before: What `tree` gave before.
        folder: The same folder.
    """
    after = tree(folder)
    logs = [name for name in after if name.endswith("/run.log") and after[name] != before.get(name)]
    runs = [name.removesuffix("run.log") for name in logs]
    for name, content in before.items():
        if not name.startswith(tuple(runs)):
            assert after[name] == content, name
        elif content is not None and not name.endswith((".lock", "metrics.csv", "provenance.json")):
            assert (after[name] or b"").startswith(content), name  # logs are appended to
    for name in after.keys() - before.keys():
        assert any(name.startswith(run) or run.startswith(f"{name}/") for run in runs), name
        assert not name.endswith((".ckpt", ".part", "checkpoints")), name
    assert all(after[log] and after[f"{run}config.yaml"] for log, run in zip(logs, runs, strict=True))


TEXTS = {
    "file": "hello\n",
    "tabs.yaml": "model:\n\tlr: 1\n",
    "twice.yaml": "trainer:\n  max_epochs: 1\n  max_epochs: 2\n",
    "list.yaml": "- 1\n- 2\n",
    "empty.yaml": "",
    "itself.yaml": "a: &a [*a]\n",
    "aliases.yaml": "a: &a [1, 1]\n"
    + "".join(f"{name}: &{name} [{', '.join([f'*{former}'] * 9)}]\n" for former, name in pairwise("abcdefgh")),
    "deep.yaml": "{a: " * 1500 + "1" + "}" * 1500,
    "number.yaml": "model: 3\n",
    "section.yaml": "modle: {init_args: {lr: 1}}\n",
    "option.yaml": "trainer: {max_epoch: 1}\n",
    "null.yaml": "trainer: null\n",
    "unnamed.yaml": "model: {init_args: {networks: {init_args: {policy: {init_args: {networks: null}}}}}}\n",
    "code.yaml": 'model: !!python/object/apply:os.system ["touch pwned"]\n',
    "documents.yaml": "a: 1\n---\nb: 2\n",
    "brackets.json": '{"a": 1',
    "text.ckpt": "weights\n",
}


def write_checkpoints(folder: Path, whole: dict[str, Any]) -> None:
    """Write files that are no checkpoints, and checkpoints that cannot be resumed."""
    content = (folder / "run" / "checkpoints" / "last.ckpt").read_bytes()
    (folder / "truncated.ckpt").write_bytes(content[: len(content) // 2])
    shutil.copytree(folder / "run", folder / "flipped")
    for path in (folder / "flipped" / "checkpoints").glob("*.ckpt"):
        flipped = bytearray(path.read_bytes())
        flipped[len(flipped) // 2] ^= 1
        path.write_bytes(flipped)
    (folder / "pickle.ckpt").write_bytes(pickle.dumps({"state_dict": Code()}))
    torch.save({"state_dict": Code()}, folder / "code.ckpt")
    torch.save([1, 2], folder / "list.ckpt")
    torch.save({"state_dict": {}, "epoch": 3}, folder / "foreign.ckpt")
    for name, number, version in (("newer", 99, "9.9"), ("older", 3, "0.0.1")):
        entry = {**whole["maze_pl"], "format": number, "version": version}
        torch.save({**whole, "maze_pl": entry}, folder / f"{name}.ckpt")


def write_episodes(folder: Path) -> None:
    """Write recorded episodes of CartPole, intact and damaged."""
    for name, wrapper in (("episodes", SpacesRecordingWrapper), ("states", TrajectoryRecordingWrapper)):
        env = wrapper.wrap(GymMazeEnv("CartPole-v1"), writer=TrajectoryFiles(str(folder / name)))
        for seed in range(2):
            env.reset(seed=seed)
            env.step({"action": seed})
        env.close()
    content = next((folder / "episodes").iterdir()).read_bytes()
    (folder / "cut").mkdir()
    (folder / "cut" / "cut.spaces").write_bytes(content[:-40])
    (folder / "nothing.spaces").write_bytes(b"")
