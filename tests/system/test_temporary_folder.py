"""Temporary folders of processes that end, are killed, or still work."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from maze_pl.system.temporary_folder import temporary_folder

HOLD = """
import sys
from maze_pl.system.temporary_folder import temporary_folder
with temporary_folder("mine-") as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_other_users_cannot_enter_the_folder_whatever_its_mode(temporary: Path) -> None:
    with temporary_folder("mine-") as folder:
        folder.chmod(0o777)
        (outer,) = temporary.iterdir()
        assert outer.name.startswith("mine-")
        assert outer in folder.parents
        assert stat.S_IMODE(outer.stat().st_mode) == 0o700
    assert list(temporary.iterdir()) == []


def test_the_next_one_removes_what_a_killed_process_has_left_and_nothing_else(temporary: Path) -> None:
    for name in ("mine-without-a-lock", "other-one"):
        (temporary / name).mkdir()
    (temporary / "mine-link").symlink_to(temporary / "other-one")
    (temporary / "other-one" / ".lock").touch()
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with temporary_folder("mine-"):
            assert (left / "file").exists(), "its process still works"
        os.kill(process.pid, signal.SIGKILL)
    assert (left / "file").exists()
    with temporary_folder("mine-"):
        assert not left.parent.exists()
    assert {path.name for path in temporary.iterdir()} == {"mine-without-a-lock", "other-one", "mine-link"}
    assert (temporary / "other-one" / ".lock").exists()
