"""Directories of runs and rollouts: those with files, and those that another process uses."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.run_directory import claimed, require_empty, run_directory

TRAINED = ["config.yaml", "run.log"]
PLAYED = ["config.yaml", "command.txt", "episodes.csv"]
CASES: list[tuple[list[str], bool, str]] = [
    (TRAINED, True, "choose another one, or continue its run with `maze-pl fit --resume {path}`"),
    (["config.yaml", "checkpoints/last.ckpt"], True, "or continue its run with `maze-pl fit --resume {path}`"),
    (["seeds.json"], True, "or continue its run with `maze-pl fit --resume {path}`"),
    (["sweep.yaml"], True, "or continue its sweep with `maze-pl sweep --resume {path}`"),
    (PLAYED, True, "the run directory {path} is not empty: choose another one"),
    (PLAYED, False, "the folder {path} is not empty: choose one that does not exist or is empty"),
    (TRAINED, False, "the folder {path} is not empty: choose one that does not exist or is empty"),
]


@pytest.mark.parametrize(("files", "is_training", "message"), CASES)
def test_a_directory_with_files_is_refused_and_only_its_own_run_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], is_training: bool, message: str
) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", "")
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    with ExitStack() as undo, pytest.raises(ConfigurationError) as raised:
        run_directory(None, str(tmp_path), None, undo, is_training)
    assert str(raised.value).endswith(message.format(path=tmp_path))


def test_a_directory_with_a_lock_is_empty(tmp_path: Path) -> None:
    require_empty(tmp_path / "missing")
    (tmp_path / ".lock").touch()
    require_empty(tmp_path)


@pytest.mark.parametrize("keeps_lock_file", [True, False])
def test_a_directory_belongs_to_one_process_and_keeps_its_lock_if_it_is_used_again(
    tmp_path: Path, keeps_lock_file: bool
) -> None:
    with claimed(tmp_path, keeps_lock_file):
        (tmp_path / "file").touch()
        with pytest.raises(ConfigurationError, match=r"is in use: process \d+ writes to it"), claimed(tmp_path):
            pass
    assert (tmp_path / ".lock").exists() == keeps_lock_file
