"""Collective operations: what a rank gets is what the others sent."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import distributed

from maze_pl.system import ranks

DTYPES = [torch.uint16, torch.uint32, torch.uint64, torch.int64, torch.float32, torch.bfloat16, torch.bool]


@pytest.fixture(params=[1, 2])
def n_ranks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of ranks; a second one sends the same values through pickle, as torch does."""

    def gather(values: list[Any], value: Any) -> None:
        values[:] = [pickle.loads(pickle.dumps(value)) for _ in values]

    def broadcast(values: list[Any], src: int) -> None:
        values[:] = pickle.loads(pickle.dumps(values))

    monkeypatch.setattr(ranks, "world_size", lambda: request.param)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(distributed, "all_gather_object", gather)
    monkeypatch.setattr(distributed, "broadcast_object_list", broadcast)
    return int(request.param)


def require_equal(found: Any, sent: dict[str, Any]) -> None:
    assert list(found) == list(sent)
    assert found["text"] == sent["text"]
    for tensor, expected in zip(found["tensors"], sent["tensors"], strict=True):
        assert tensor.dtype == expected.dtype and tensor.shape == expected.shape
        assert tensor.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_all_types_arrive(n_ranks: int, dtype: torch.dtype) -> None:
    largest = 2**64 - 1 if dtype == torch.uint64 else 1
    tensors = [torch.tensor([0, 1, largest], dtype=dtype), torch.tensor(1, dtype=dtype), torch.zeros(0, dtype=dtype)]
    sent = {"text": "b", "tensors": tensors}
    gathered = ranks.gather_objects(sent)
    assert len(gathered) == n_ranks
    for found in (*gathered, ranks.from_first_rank(sent)):
        require_equal(found, sent)
