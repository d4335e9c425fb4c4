"""A rank that fails alone writes a checkpoint without the ranks that wait for it elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.datamodules.replay_learner import fit, make_data
from tests.distributed.launch import run, torchrun

WORKER = str(Path(__file__).with_name("fails_alone.py"))

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
def test_the_checkpoint_of_a_rank_that_fails_alone_holds_its_environments_and_no_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(torchrun(WORKER, str(tmp_path), n_ranks=2), folders=[tmp_path], timeout=90, fails=True)
    state: dict[str, Any] = torch.load(tmp_path / "alone.ckpt", weights_only=True)["ReplayDataModule"]
    assert len(state["ranks"]) == 1
    assert state["layout"] == [1, 1, 1]
    assert "replay" not in state
    said: list[str] = []
    for module in ("replay", "rollouts"):
        monkeypatch.setattr(f"maze_pl.datamodules.{module}.rank_zero_info", said.append)
    data = make_data()
    (batch, *_) = fit(data, 3, ckpt_path=tmp_path / "alone.ckpt").batches
    assert batch.env_steps == 21
    assert len(said) == 1 and "names no replay buffer" in said[0]
