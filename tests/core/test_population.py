"""The table of noise: the same numbers everywhere, in memory once, and in no file that stays."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from maze_pl.core.population import NoiseTable, PopulationBatch, perturbed_parameters

SIZE = (1 << 20) + 1000  # a chunk and a part of one


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the chunks that were made."""
    chunks: list[int] = []
    make = NoiseTable._chunk
    monkeypatch.setattr(NoiseTable, "_chunk", lambda self, index: (chunks.append(index), make(self, index))[1])
    return chunks


def expected(seed: int) -> np.ndarray:
    """The numbers, by NumPy alone."""
    generators = [np.random.Generator(np.random.PCG64([seed, index])) for index in (0, 1)]
    parts = zip(generators, (1 << 20, 1000), strict=True)
    return np.concatenate([generator.standard_normal(length, np.float32) for generator, length in parts])


def test_numbers_depend_on_the_seed_alone_and_are_standard_normal(made: list[int]) -> None:
    table = NoiseTable(3, SIZE)
    assert made == []
    whole = table.piece(0, SIZE)
    assert whole.dtype == torch.float32
    assert np.array_equal(whole.numpy(), expected(3))
    assert torch.equal(table.piece((1 << 20) - 5, 10), whole[(1 << 20) - 5 : (1 << 20) + 5])
    assert abs(whole.mean()) < 0.005 and abs(whole.std() - 1) < 0.005
    assert made == [0, 1]
    assert not torch.equal(NoiseTable(4, 1000).piece(0, 1000), whole[:1000])
    assert torch.equal(NoiseTable(3, 1000).piece(0, 1000), whole[:1000])


def test_copies_read_the_numbers_of_the_first_one_and_copies_of_copies_too(made: list[int]) -> None:
    table = NoiseTable(3, SIZE)
    copy = pickle.loads(pickle.dumps(table))  # before there are any numbers
    table.piece(0, 1)
    assert made == [0, 1]
    again = pickle.loads(pickle.dumps(copy))
    for one in (copy, again):
        assert torch.equal(one.piece(5, SIZE - 5), table.piece(5, SIZE - 5))
    assert made == [0, 1, 0, 0]  # the first ones, to compare
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    inode = str(os.fstat(table._file.fileno()).st_ino)
    assert len([line for line in maps if line.split()[4] == inode]) == 3  # one file for all of them


def test_writing_to_a_piece_reaches_nobody_else() -> None:
    table = NoiseTable(3, 1000)
    before = table.piece(0, 5).clone()
    copy = pickle.loads(pickle.dumps(table))
    copy.piece(0, 5).zero_()
    assert torch.equal(table.piece(0, 5), before)


@pytest.mark.parametrize("path", ["/proc/0/fd/3", "other", "short", ""])
def test_without_a_valid_file_the_noise_is_generated_anew(tmp_path: Path, path: str) -> None:
    (tmp_path / "other").write_bytes(np.zeros(SIZE, np.float32).tobytes())
    (tmp_path / "short").write_bytes(expected(3)[:-1].tobytes())
    table = NoiseTable(3, SIZE, path if path.startswith("/") else str(tmp_path / path))
    assert np.array_equal(table.piece(0, SIZE).numpy(), expected(3))
    assert str(os.getpid()) in table.__reduce__()[1][2]  # others read this one's from now on


def test_no_file_is_left_and_none_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = NoiseTable(1, 1000)
    table.piece(0, 1)
    assert pickle.loads(pickle.dumps(table)).piece(0, 1) is not None
    assert list(tmp_path.iterdir()) == []


def test_offsets_reach_the_whole_table_and_nothing_else() -> None:
    table = NoiseTable(1, 20)
    offsets = [table.offset(15, update, pair) for update in range(20) for pair in range(20)]
    assert set(offsets) == set(range(6))
    assert offsets == [NoiseTable(1, 20).offset(15, update, pair) for update in range(20) for pair in range(20)]
    assert table.offset(20, 7, 7) == 0
    with pytest.raises(ValueError, match="noise table of 20 numbers is too small for the 21 parameters"):
        table.offset(21)


def test_parameters_that_are_not_trained_are_not_perturbed() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    module[0].bias.requires_grad_(False)
    assert [tuple(one.shape) for one in perturbed_parameters(module)] == [(3, 2), (1, 3), (1,)]
    assert perturbed_parameters(object()) == []


def test_batches_stay_where_they_are() -> None:
    batch = PopulationBatch(NoiseTable(1, 10), [3], torch.zeros(1, 2), 5)
    assert batch.to("meta") is batch
    assert batch.env_steps == 5
