"""Learning from replay on two ranks: equal parameters, a buffer of each rank, and an exact resume of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.launch import run, torchrun
from tests.exact.comparison import comparable_with_buffers, differences

WORKER = str(Path(__file__).parents[1] / "exact" / "replay_launch.py")

pytestmark = pytest.mark.slow

FURTHER = [pytest.param(name, marks=pytest.mark.long) for name in ("hierarchy", "dqn_hierarchy")]


@pytest.mark.parametrize("name", [*FURTHER, "td3_pendulum"])
def test_each_rank_has_its_own_buffer_and_resumes_exactly(tmp_path: Path, name: str) -> None:
    run(torchrun(WORKER, str(tmp_path), name, n_ranks=2), folders=[tmp_path])
    whole, resumed = (comparable_with_buffers(tmp_path / f"{name}-{how}.ckpt") for how in ("whole", "resumed"))
    assert differences(whole, resumed) == []
    first, second = whole["buffers"]
    assert first["described"] == second["described"] and differences(first["storages"], second["storages"]) != []
