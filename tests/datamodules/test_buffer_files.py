"""Files of replay buffers: on a disk that is full, with holes, and next to checkpoints that name them or not."""

from __future__ import annotations

import errno
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.datamodules.buffer_files import find_buffer, read_buffer, remove_unnamed_buffers, write_buffer
from tests.bad_input.project import disk_full_at


class Numbers:
    """A buffer of 20,000 numbers."""

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": torch.zeros(20_000)}


@pytest.mark.parametrize("n_bytes", [0, 100, 4096, 50_000])
def test_the_error_of_the_disk_is_told_also_if_torch_raises_another_one(tmp_path: Path, n_bytes: int) -> None:
    buffer: Any = Numbers()
    with disk_full_at(n_bytes), pytest.raises(OSError, match=f"written to {tmp_path}: File too large$") as raised:
        write_buffer(tmp_path, 0, buffer, {})
    assert raised.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


def test_a_buffer_of_other_spaces_is_refused_with_both_of_them(tmp_path: Path) -> None:
    buffer: Any = Numbers()
    described = []
    for high in (1000, 10):
        step = StepSpec(spaces.Dict(level=spaces.Box(-1, 1, (1,))), spaces.Dict(action=spaces.Box(0, high, (1,))))
        described.append({"gamma": 0.99, "spec": Spec({0: step}).to_dict()})
    name = write_buffer(tmp_path, 0, buffer, described[0])
    boxes = r"action 'action' of sub-step 0 was Box\(0.0, 1000.0, .* and is Box\(0.0, 10.0, \(1,\), float32\)$"
    with pytest.raises(ValueError, match=rf"{name} does not fit: {boxes}"):
        read_buffer(tmp_path / name, lambda n_separate: buffer, described[1])
    with pytest.raises(ValueError, match=r"does not fit: gamma was 0.99 and is 0.5$"):
        read_buffer(tmp_path / name, lambda n_separate: buffer, {**described[0], "gamma": 0.5})


def test_buffers_may_have_holes_where_the_file_system_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holes of zeros, as ZFS makes them, are no reason to refuse a file that was just written."""

    def refuse(path: Path) -> int:
        raise ValueError("it is sparse")

    monkeypatch.setattr("maze_pl.datamodules.buffer_files.written_size", refuse)
    buffer: Any = Numbers()
    name = write_buffer(tmp_path, 0, buffer, {})
    assert (tmp_path / name).is_file()
    with pytest.raises(ValueError, match="it is sparse"):
        find_buffer(name, [tmp_path])


def test_an_intact_copy_is_found_where_the_first_file_is_sparse(tmp_path: Path) -> None:
    buffer: Any = Numbers()
    name = write_buffer(tmp_path / "intact", 0, buffer, {})
    (tmp_path / "sparse").mkdir()
    with (tmp_path / "sparse" / name).open("wb") as file:
        file.truncate(1 << 25)
    folders = [tmp_path / "sparse", tmp_path / "intact"]
    assert find_buffer(name, folders) == folders[1] / name
    (tmp_path / "intact" / name).unlink()
    with pytest.raises(ValueError, match=str(folders[0] / name)):
        find_buffer(name, folders)


def test_checkpoints_are_searched_for_names_without_reading_them_into_memory(tmp_path: Path) -> None:
    names = [f"replay-{64 * digit}.pt" for digit in "abc"]
    for name in names:
        (tmp_path / name).write_bytes(b"of a buffer")
    (tmp_path / "empty.ckpt").touch()
    with (tmp_path / "large.ckpt").open("wb") as file:
        file.truncate(1 << 25)  # zeros, and a name in between
        file.seek(12345)
        file.write(names[1].encode())
    (tmp_path / "small.ckpt").write_bytes(b"..." + names[2].encode())
    tracemalloc.start()
    try:
        remove_unnamed_buffers([tmp_path])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert sorted(path.name for path in tmp_path.glob("replay-*")) == names[1:]


class Closed:
    """A buffer with an object that cannot be written."""

    def state_dict(self) -> dict[str, Any]:
        return {"closed": self}

    def __reduce__(self) -> Any:
        raise RuntimeError("it is closed")


def test_an_error_from_before_is_not_taken_for_that_of_the_disk(tmp_path: Path) -> None:
    buffer: Any = Closed()
    try:
        (tmp_path / "missing").read_text()
    except FileNotFoundError:
        with pytest.raises(OSError, match=r"cannot be written to .*: it is closed$") as raised:
            write_buffer(tmp_path, 0, buffer, {})
    assert raised.value.errno is None
