"""Files that are replaced as a whole, and when the disk has them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maze_pl.system.atomic_files import part_path, replaced, write_file
from maze_pl.system.deferred_files import DeferredFiles


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


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("real").mkdir()
    Path("real", "file").write_bytes(b"former")
    Path("link").symlink_to("real/file")
    Path("further").symlink_to(tmp_path / "link")
    Path("dangling").symlink_to("new/folder/file")
    for name in ("further", "dangling"):
        write_file(name, name.encode())
    assert Path("real", "file").read_bytes() == b"further"
    assert Path("new", "folder", "file").read_bytes() == b"dangling"
    assert all(Path(name).is_symlink() for name in ("link", "further", "dangling"))
    with replaced("link", follows_links=False) as part:
        part.write_bytes(b"other")
    assert not Path("link").is_symlink()
    assert Path("real", "file").read_bytes() == b"further"
    assert sorted(path.name for path in Path().rglob("*") if path.name.startswith(".")) == []


def test_what_is_not_a_regular_file_is_not_replaced(tmp_path: Path) -> None:
    pipe, link, loop, folder = (tmp_path / name for name in ("pipe", "link", "loop", "folder"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    loop.symlink_to(loop)
    folder.mkdir()
    messages = {pipe: "a pipe", link: "a pipe", loop: "symbolic links", folder: "Is a directory"}
    for path, message in messages.items():
        for follows_links in (True, False):
            with pytest.raises(OSError, match=message), replaced(path, follows_links) as part:
                part.write_bytes(b"content")
    assert pipe.is_fifo() and link.is_symlink() and loop.is_symlink() and folder.is_dir()
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("letter", ["a", "\u00e4", "\u9f98", "\U0001f40d", "\udcff"])
def test_every_name_that_the_file_system_allows_can_be_written(tmp_path: Path, letter: str) -> None:
    size = len(os.fsencode(letter))
    deferred = DeferredFiles()
    for n_bytes in (200, 239, 240, 241, 254, 255):
        path = tmp_path / (letter * (n_bytes // size) + "b" * (n_bytes % size))
        assert len(os.fsencode(path.name)) == n_bytes
        write_file(path, b"content")
        deferred.write(path.with_name(f"{path.name[:-1]}c"), b"other")
        deferred.flush()
        assert path.read_bytes() == b"content" and path.with_name(f"{path.name[:-1]}c").read_bytes() == b"other"
    assert not list(tmp_path.glob(".*"))


def test_names_of_parts_differ_where_names_do(tmp_path: Path) -> None:
    names = ["a", *("a" * 250 + end for end in ("", "b", "c", "bc")), "\u00e4" * 127, "\u00e4" * 126 + "a"]
    parts = [part_path(tmp_path / name, number) for name in names for number in (None, 1, 2)]
    assert len(set(parts)) == len(parts)
    for part in parts:
        assert part.name.startswith(".") and part.suffix == ".part" and len(os.fsencode(part.name)) <= 255
        assert part.name.encode("utf-8")  # no half characters
    assert part_path(tmp_path / "a").name == f".a.{os.getpid()}.part"


def test_a_name_that_is_too_long_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for path in (tmp_path / ("a" * 256), tmp_path / "new" / ("a" * 256), tmp_path / "new" / ("a" * 256) / "b"):
        with pytest.raises(OSError, match="File name too long"), replaced(path):
            raise AssertionError("nothing is written")
    assert not list(tmp_path.iterdir())


def test_parts_that_a_killed_process_left_are_removed_when_their_file_is_written_again(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path, long = tmp_path / "file", tmp_path / ("a" * 255)
    start = part_path(long).name.removesuffix(f"{os.getpid()}.part")
    left = [f".file.{dead.pid}.part", f".file.{dead.pid}-7.part"]
    if len(str(dead.pid)) == len(str(os.getpid())):  # else a shortened name is shortened differently
        left.append(f"{start}{dead.pid}.part")
    kept = [
        *(f".file.{os.getppid()}.part", f".file.{os.getpid()}-7.part"),  # of processes that are alive
        *(f".file.a.{dead.pid}.part", f".file.1.{dead.pid}.part", f".other.{dead.pid}.part"),  # of other files
        *(f"file.{dead.pid}.part", f".file.{dead.pid}", ".file.x.part", ".file..part"),
    ]
    for name in (*left, *kept):
        (tmp_path / name).write_bytes(b"half")
    write_file(path, b"content")
    assert sorted(os.listdir(tmp_path)) == sorted(["file", *left, *kept])  # a process elsewhere may be writing them
    for name in (*left, *kept):
        os.utime(tmp_path / name, (0, time.time() - 25 * 3600))
    (tmp_path / f".file.{dead.pid}-8.part").mkdir()
    write_file(path, b"content")
    write_file(long, b"content")
    assert sorted(os.listdir(tmp_path)) == sorted(["file", long.name, f".file.{dead.pid}-8.part", *kept])
