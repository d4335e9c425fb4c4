from __future__ import annotations

import os
import pickle
import resource
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.records.framing import append_record, read_records, write_record

DECODERS: dict[str, Any] = {"spaces": lambda body: bytes(body).rstrip(b"\0")}


def bodies(path: Path, damaged: list[str] | None = None) -> list[bytes]:
    return list(read_records(path, DECODERS, damaged))


def test_episodes_come_back_in_the_order_in_which_they_were_appended(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "all.spaces"
    for body in (b"first", b"second" * 1000, b"third"):
        append_record(path, "spaces", body)
    assert bodies(path) == [b"first", b"second" * 1000, b"third"]
    write_record(path, "spaces", b"another")
    append_record(path, "spaces", b"and one more")
    assert bodies(path) == [b"another", b"and one more"]


def test_the_format_is_the_one_that_is_documented(tmp_path: Path) -> None:
    path = tmp_path / "one.spaces"
    write_record(path, "spaces", b"an episode of 25 letters.")
    content = path.read_bytes()
    assert content[:56] == b"maze_pl spaces format 1" + b" " * 32 + b"\n"
    assert struct.unpack("<Q", content[56:64]) == (len(content),)
    length, checksum, padding = struct.unpack("<QII", content[64:80])
    assert (length, padding, len(content)) == (32, 0, 64 + 16 + 32)
    assert content[80:] == b"an episode of 25 letters." + b"\0" * 7
    assert checksum == zlib.crc32(content[64:72] + content[80:])


def test_of_a_file_that_is_cut_anywhere_what_is_whole_is_read_and_the_rest_reported(tmp_path: Path) -> None:
    path, cut = tmp_path / "all.spaces", tmp_path / "cut.spaces"
    for body in (b"first", b"second", b"third"):
        append_record(path, "spaces", body)
    content = path.read_bytes()
    for length in range(len(content)):
        cut.write_bytes(content[:length])
        damaged: list[str] = []
        n_whole = max((length - 64) // 32, 0)
        assert bodies(cut, damaged) == [b"first", b"second", b"third"][:n_whole]
        assert len(damaged) == 1  # also where whole episodes are cut off
        assert str(cut) in damaged[0]
        with pytest.raises(ValueError, match=r"empty|cut short|begins with"):
            bodies(cut)
    assert bodies(path) == [b"first", b"second", b"third"]


def test_a_damaged_episode_is_left_out_and_those_around_it_are_read(tmp_path: Path) -> None:
    path = tmp_path / "all.spaces"
    for body in (b"first", b"second", b"third"):
        append_record(path, "spaces", body)
    content = bytearray(path.read_bytes())
    content[64 + 32 + 16 + 2] ^= 4
    path.write_bytes(content)
    damaged: list[str] = []
    assert bodies(path, damaged) == [b"first", b"third"]
    assert [problem.startswith(f"{path}: it is damaged") for problem in damaged] == [True]
    records = read_records(path, DECODERS)
    assert next(records) == b"first"
    with pytest.raises(ValueError, match=r"all.spaces: it is damaged: the checksum 32 bytes before the end"):
        next(records)


def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "one.spaces"
    write_record(path, "spaces", b"body")
    content = path.read_bytes()
    for place in [*range(56), *range(64, 76), *range(80, len(content))]:  # the others are not read
        changed = bytearray(content)
        changed[place] ^= 128
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"one\.spaces"):
            bodies(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (pickle.dumps({"an": "episode"}), "a pickle, which runs whatever code it holds and is not read"),
        (b"PK\x03\x04" + b"x" * 100, "it begins with 'PK.*expected 'maze_pl spaces format 1'"),
        (b"maze_pl spaces", "it begins with 'maze_pl spaces', expected 'maze_pl spaces format 1'"),
        (b"maze_pl states format 1".ljust(55) + b"\n", "begins with 'maze_pl states format 1', expected"),
        (b"maze_pl spaces format 2".ljust(55) + b"\n" + b"x" * 99, "format 2.* a higher format needs a newer maze_pl"),
        (b"maze_pl spaces format 1".ljust(55) + b"\n", "it is cut short"),
        (b"maze_pl \xff\xfe format 1".ljust(55) + b"\n", "begins with"),
    ],
)
def test_files_of_another_format_are_named_with_the_reason(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "strange.spaces"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"strange.spaces: .*{message}"):
        bodies(path)
    damaged: list[str] = []
    assert bodies(path, damaged) == []
    assert len(damaged) == 1


def test_a_length_that_no_file_has_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "huge.spaces"
    write_record(path, "spaces", b"body")
    content = bytearray(path.read_bytes())
    for length in (1 << 40, (1 << 64) - 1):
        content[64:72] = struct.pack("<Q", length)
        path.write_bytes(content)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ValueError, match="cut short"):
            bodies(path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20


def make_sparse(path: Path, length: int) -> None:
    """A file with the head of a record of so many bytes, of which not one was written."""
    write_record(path, "spaces", b"an episode")
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(struct.pack("<QI4x", length, 0))
        file.truncate(file.tell() + length)


def test_bytes_that_were_never_written_are_neither_read_nor_allocated(tmp_path: Path) -> None:
    path, length = tmp_path / "sparse.spaces", 4 << 30
    make_sparse(path, length)
    assert path.stat().st_blocks * 512 < 1 << 16 < length < path.stat().st_size
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"sparse\.spaces: it is sparse: from byte \d+ on, some of its \d+ bytes"):
        bodies(path)
    damaged: list[str] = []
    assert bodies(path, damaged) == []
    assert len(damaged) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 10


def test_a_tail_of_zeros_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "zeros.spaces"
    write_record(path, "spaces", b"an episode")
    with path.open("ab") as file:
        file.write(bytes(1 << 20))
    damaged: list[str] = []
    assert bodies(path, damaged) == [b"an episode"]
    assert damaged == [f"{path}: it is damaged: its last {1 << 20} bytes are an empty episode"]


def test_a_file_of_nothing_but_damaged_episodes_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "noise.spaces"
    write_record(path, "spaces", b"an episode")
    wrong = struct.pack("<QI4x", 16, 1) + bytes(16)
    with path.open("ab") as file:
        file.write(wrong * 99 + path.read_bytes()[64:] + wrong * 5000)
    damaged: list[str] = []
    assert bodies(path, damaged) == [b"an episode"] * 2  # faults count in a row only
    assert len(damaged) == 199
    assert damaged[-1].endswith(f"the {4900 * 32} bytes after it are skipped, as 100 episodes in a row are damaged")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.binary(max_size=40)), max_size=30))
@settings(max_examples=50)
def test_messages_are_fewer_than_bytes_whatever_follows_the_last_episode(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, int, bytes]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces.spaces"
    write_record(path, "spaces", b"an episode")
    heads = [b"", bytes(16), struct.pack("<QI4x", 16, 1), struct.pack("<QI4x", 1 << 60, 1)]
    tail = b"".join(heads[kind] + content * repeated for kind, repeated, content in pieces)
    with path.open("ab") as file:
        file.write(tail)
    damaged: list[str] = []
    assert bodies(path, damaged)[0] == b"an episode"
    assert bool(tail) == bool(damaged)
    assert len(damaged) <= min(100, 1 + len(tail) // 32)


def test_what_a_killed_process_left_unfinished_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "all.spaces"
    append_record(path, "spaces", b"first")
    before = path.stat().st_size
    append_record(path, "spaces", b"second" * 9)
    for length in range(before + 1, path.stat().st_size):
        content = path.read_bytes()
        path.write_bytes(content[:56] + struct.pack("<Q", before) + content[64:length])
        assert bodies(path, []) == [b"first"]
        append_record(path, "spaces", b"second" * 9)
        assert bodies(path) == [b"first", b"second" * 9]


@pytest.mark.parametrize("n_bytes", [0, 10, 56, 60, 64])
def test_a_file_that_was_only_begun_is_gone_on_with(n_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "all.spaces"
    append_record(path, "spaces", b"first")
    path.write_bytes(path.read_bytes()[:56].ljust(64, b"\0")[:n_bytes])
    append_record(path, "spaces", b"second")
    assert bodies(path) == [b"second"]


def test_a_file_of_another_kind_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "all.states"
    append_record(path, "states", b"first")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="exists and holds no records of spaces: name another file"):
        append_record(path, "spaces", b"second")
    assert path.read_bytes() == before


def test_a_full_disk_damages_nothing_that_was_written_before(tmp_path: Path) -> None:
    path = tmp_path / "all.spaces"
    append_record(path, "spaces", b"first")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            append_record(path, "spaces", b"second" * 100)
        with pytest.raises(OSError, match="too large"):
            write_record(path, "spaces", b"second" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert bodies(path, []) == [b"first"]
    assert os.listdir(tmp_path) == ["all.spaces"]
    append_record(path, "spaces", b"second" * 100)
    assert bodies(path) == [b"first", b"second" * 100]


def test_several_processes_append_to_one_file(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from maze_pl.records.framing import append_record\n"
    code += "for i in range(50): append_record(Path(sys.argv[1]), 'spaces', f'{sys.argv[2]} {i} '.encode() * 500)"
    path = tmp_path / "all.spaces"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "ab"]
    assert [process.wait() for process in processes] == [0, 0]
    names = [body.split()[:2] for body in bodies(path)]
    assert [number for name, number in names if name == b"a"] == [b"%d" % i for i in range(50)]
    assert [number for name, number in names if name == b"b"] == [b"%d" % i for i in range(50)]
