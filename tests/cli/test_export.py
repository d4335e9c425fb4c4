"""`maze-pl export`: mistakes that are found before anything is loaded, and faults in the code of a run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.cli.faulty_runs import make_run, set_mode


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("pipe", "pipe cannot be written: it is a device, a pipe or a socket, which a file would replace"),
        ("link", "link cannot be written: it is a device, a pipe or a socket, which a file would replace"),
        (".", ". cannot be written: Is a directory"),
        ("a" * 256, "aaa cannot be written: File name too long"),
        ("new/" + "a" * 256, "aaa cannot be written: File name too long"),
        ("file/agent.bundle", "file is a file"),
    ],
)
def test_a_target_that_cannot_be_replaced_by_a_file_is_refused_at_once(
    target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    Path("file").touch()
    assert main(["export", "run", "--to", target]) == 2
    assert message in capsys.readouterr().err
    assert Path("pipe").is_fifo() and Path("link").is_symlink()


@pytest.mark.slow
def test_a_fault_in_the_code_of_a_run_is_not_taken_for_one_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["export", str(run), "--to", "agent.bundle", "--trust", "--episodes", "1"]
    set_mode(tmp_path, "has no data")
    with pytest.raises(FileNotFoundError, match=r"demand\.csv"):
        main(command)
    set_mode(tmp_path, "works")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("maze_pl.bundle.export.write_file", fail)
    assert main(command) == 2
    assert "agent.bundle cannot be written: No space left on device" in capsys.readouterr().err
