"""`maze-pl export`: mistakes that are found before anything is loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from maze_pl.__main__ import main


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
