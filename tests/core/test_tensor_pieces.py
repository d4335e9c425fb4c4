"""Tensors are cut into pieces that one kernel works on, and which are views."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.core.tensor_pieces import MOST_PIECES, gains_from_pieces, in_pieces, piece_size


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=MOST_PIECES - 1))
def test_one_kernel_works_on_all_pieces(sizes: list[int]) -> None:
    size = piece_size(sizes)
    assert sum(-(-one // size) for one in sizes) <= MOST_PIECES
    assert size % 4 == 0, "vectors of four numbers are loaded at once"


@pytest.mark.parametrize("n_tensors", [MOST_PIECES, 100])
def test_many_tensors_are_not_cut(n_tensors: int) -> None:
    assert piece_size([100_000] * n_tensors) >= 100_000


def test_pieces_are_views_in_order() -> None:
    tensors = [torch.arange(10.0).view(2, 5), torch.arange(3.0)]
    pieces = in_pieces(tensors, 4)
    assert [piece.tolist() for piece in pieces] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2]]
    pieces[2].fill_(-1.0)
    assert tensors[0][1].tolist() == [5, 6, 7, -1, -1]


def test_only_kernels_of_a_gpu_gain_from_pieces() -> None:
    assert [gains_from_pieces(torch.device(name)) for name in ("cpu", "cuda")] == [False, True]
