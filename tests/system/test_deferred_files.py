"""Files that are renamed in the background, and never before the disk has their content."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from maze_pl.envs import GymMazeEnv, TrajectoryFiles
from maze_pl.envs.wrappers import EventLogsWrapper, SpacesRecordingWrapper
from maze_pl.events import EventLogFiles
from maze_pl.system.deferred_files import DeferredFiles


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Calls of the system: (function, file or folder, thread)."""
    called: list[tuple[str, str, str]] = []
    synchronize, rename, link = os.fsync, os.replace, os.link

    def fsync(descriptor: int) -> None:
        called.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}"), threading.current_thread().name))
        synchronize(descriptor)

    def replace(source: Path, target: Path) -> None:
        called.append(("replace", str(source), threading.current_thread().name))
        called.append(("to", str(target), threading.current_thread().name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)

    def take_name(source: Path, target: Path) -> None:
        called.append(("replace", str(source), threading.current_thread().name))
        called.append(("to", str(target), threading.current_thread().name))
        link(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "link", take_name)
    return called


def check_order(calls: list[tuple[str, str, str]], folder: Path, n_files: int) -> None:
    """Each file is synchronized before it is renamed, and its folder afterwards; nothing in the caller's thread."""
    entries = [(function, path) for function, path, _ in calls]
    renamed = [n for n, (function, _) in enumerate(entries) if function == "replace"]
    assert len(renamed) == n_files
    for n in renamed:
        assert ("fsync", entries[n][1]) in entries[:n]
        assert ("fsync", str(folder)) in entries[n:]
    assert threading.current_thread().name not in {thread for _, _, thread in calls}


def test_a_recorded_episode_is_renamed_after_its_content_is_on_the_disk_and_not_by_the_loop(
    tmp_path: Path, calls: list[tuple[str, str, str]]
) -> None:
    env = SpacesRecordingWrapper.wrap(GymMazeEnv("CartPole-v1"), writer=TrajectoryFiles(str(tmp_path)))
    for seed in range(5):
        env.reset(seed=seed)
        env.step({"action": 1})
    env.close()
    check_order(calls, tmp_path, 5)
    assert len(list(tmp_path.glob("*.spaces"))) == 5


def test_a_parquet_part_of_an_event_log_is_renamed_after_its_content_is_on_the_disk(
    tmp_path: Path, calls: list[tuple[str, str, str]]
) -> None:
    pytest.importorskip("pyarrow")
    env = EventLogsWrapper.wrap(GymMazeEnv("CartPole-v1"), writer=EventLogFiles(str(tmp_path), "parquet", n_rows=2))
    env.reset(seed=0)
    for _ in range(4):
        env.step({"action": 1})
    env.close()
    check_order(calls, tmp_path / "BaseEnvEvents.reward.parquet", 2)


def test_files_written_meanwhile_share_one_pass_over_the_folder(
    tmp_path: Path, calls: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, may_begin, synchronize = DeferredFiles(), threading.Event(), os.fsync

    def fsync(descriptor: int) -> None:
        may_begin.wait()
        synchronize(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for n in range(20):
        files.write(tmp_path / f"{n}", b"content")
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    may_begin.set()
    files.flush()
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == list(range(20))
    assert [path for function, path, _ in calls if function == "fsync"].count(str(tmp_path)) <= 2


def test_a_file_of_a_relative_path_stays_in_the_folder_in_which_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_moved = threading.Event()
    synchronize = os.fsync

    def fsync(descriptor: int) -> None:
        assert has_moved.wait(30)
        synchronize(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    files = DeferredFiles()
    files.write(Path("first", "file"), b"1")
    files.write(Path("second", "file"), b"2")
    monkeypatch.chdir(tmp_path / "elsewhere")
    has_moved.set()
    files.flush()
    assert [path.read_bytes() for path in sorted(tmp_path.glob("*/file"))] == [b"1", b"2"]


def test_the_last_content_of_a_file_wins(tmp_path: Path) -> None:
    files = DeferredFiles()
    for n in range(50):
        files.write(tmp_path / "file", str(n).encode())
    files.flush()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"49"}


def have_no_links(source: Path, target: Path) -> None:
    """`os.link` on a file system without hard links."""
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("has_links", [True, False])
def test_files_of_several_processes_do_not_replace_each_other_if_there_are_further_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", have_no_links)
    processes = [DeferredFiles() for _ in range(3)]  # which do not know of each other's files
    for number, files in enumerate(processes):
        files._numbers = itertools.count(number * 10)  # of parts, whose names hold the number of a process
        files.write(tmp_path / "file", str(number).encode(), iter(["file-2", "file-3", "file-4"]))
    for files in processes:
        files.flush()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file-2", "file-3"]
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"0", b"1", b"2"]


def test_a_name_is_not_left_to_an_empty_file_if_renaming_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", have_no_links)
    monkeypatch.setattr(os, "replace", replace)
    files = DeferredFiles()
    files.write(tmp_path / "file", b"content", iter(["file-2"]))
    with pytest.raises(OSError, match="No space left"):
        files.flush()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_disk_is_raised_and_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DeferredFiles()

    def fsync(descriptor: int) -> None:
        raise OSError(5, "broken disk")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        files.write(tmp_path / "file", b"content")
        with pytest.raises(OSError, match="broken disk"):
            files.flush()
    assert list(tmp_path.iterdir()) == []
    files.write(tmp_path / "file", b"content")
    files.flush()
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("number", range(5))
def test_an_error_of_one_file_does_not_take_the_others_that_were_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    files, may_begin = DeferredFiles(), threading.Event()
    synchronize, rename = os.fsync, os.replace

    def raise_for(path: str, called: str) -> None:
        if called == function and Path(path).name.startswith(f".{number}."):
            raise OSError(errno.EIO, "broken disk")

    def fsync(descriptor: int) -> None:
        may_begin.wait(30)
        raise_for(os.readlink(f"/proc/self/fd/{descriptor}"), "fsync")
        synchronize(descriptor)

    def replace(source: Path, target: Path) -> None:
        raise_for(str(source), "replace")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    for n in range(5):
        files.write(tmp_path / f"{n}", str(n).encode())
    may_begin.set()
    with pytest.raises(OSError, match="broken disk"):
        files.flush()
    expected = {str(n): str(n).encode() for n in range(5) if n != number}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == expected
    files.flush()  # the error was told


def test_a_file_that_is_not_completed_leaves_nothing(tmp_path: Path) -> None:
    files = DeferredFiles()
    with pytest.raises(ZeroDivisionError), files.replaced(tmp_path / "file") as part:
        part.write_bytes(b"half")
        raise ZeroDivisionError
    files.flush()
    assert list(tmp_path.iterdir()) == []


EXITING = """
import multiprocessing, sys
from pathlib import Path
from maze_pl.system.deferred_files import deferred_files

def write(name):
    deferred_files().write(Path(sys.argv[1], name), b"content")

if __name__ == "__main__":
    write("parent")
    child = multiprocessing.get_context("fork").Process(target=write, args=("child",))
    child.start()
    child.join()
"""


def test_files_are_completed_when_a_process_and_its_forked_child_exit(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", EXITING, str(tmp_path)], check=True, timeout=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "parent"]
