"""Files of replay buffers on a disk that is full."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from maze_pl.datamodules.buffer_files import write_buffer
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
