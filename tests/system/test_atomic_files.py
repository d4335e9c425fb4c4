"""Files that are replaced as a whole, and when the disk has them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from maze_pl.system.atomic_files import replaced, write_file


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was asked of the system: (function, name of the file or folder)."""
    called: list[tuple[str, str]] = []
    synchronize, rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        called.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        synchronize(descriptor)

    def replace(source: Path, target: Path) -> None:
        called.append(("replace", Path(target).name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return called


def test_the_disk_has_the_content_before_the_name_and_then_the_name(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    write_file(tmp_path / "folder" / "file", b"content")
    assert calls == [("fsync", f".file.{os.getpid()}.part"), ("replace", "file"), ("fsync", "folder")]
    assert (tmp_path / "folder" / "file").read_bytes() == b"content"


def test_a_file_that_is_not_completed_leaves_the_former_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"former")
    with pytest.raises(ZeroDivisionError), replaced(path) as part:
        part.write_bytes(b"half")
        raise ZeroDivisionError
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"file": b"former"}


@pytest.mark.parametrize(("number", "is_raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synchronized_is_no_error_but_a_broken_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_raised: bool
) -> None:
    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if is_raised:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            write_file(tmp_path / "file", b"content")
    else:
        write_file(tmp_path / "file", b"content")
