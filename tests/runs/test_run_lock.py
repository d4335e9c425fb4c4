"""The lock of a run directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from maze_pl.runs.run_directory import claimed
from maze_pl.runs.run_lock import lock_for_writing, lock_holder


def test_the_process_that_holds_the_lock_is_named_and_no_other(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None
    with claimed(tmp_path):
        (tmp_path / "file").touch()
        assert lock_holder(tmp_path) == str(os.getpid())
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"  # as after a kill, and this process exists
    assert lock_holder(tmp_path) is None
    with claimed(tmp_path):
        (tmp_path / ".lock").write_bytes(b"\xff")
        assert lock_holder(tmp_path) == "\N{REPLACEMENT CHARACTER}"


def test_looking_at_a_lock_leaves_it_free(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert lock_holder(tmp_path) is None
    with claimed(tmp_path):
        assert lock_holder(tmp_path) is not None


def test_a_process_that_only_looks_does_not_hinder_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / ".lock").open("a+b") as lock, (tmp_path / ".lock").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(BlockingIOError):
            lock_for_writing(lock)
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(other, fcntl.LOCK_UN))
        lock_for_writing(lock)
        assert lock_holder(tmp_path) == ""
