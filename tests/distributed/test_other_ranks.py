"""Resuming with other environments than before: their episodes are none that were played before."""

from __future__ import annotations

from pathlib import Path

import torch

from maze_pl.datamodules import RolloutDataModule
from tests.distributed.cartpole import make, trainer


def test_episodes_go_on_counting_where_environments_start_anew(tmp_path: Path) -> None:
    first = trainer(1)
    module, data = make(RolloutDataModule)
    data.n_rollout_steps = 200
    first.fit(module, data)
    first.save_checkpoint(tmp_path / "first.ckpt")
    module, data = make(RolloutDataModule)
    data.n_envs, data.n_rollout_steps = 2, 1
    second = trainer(2)
    second.fit(module, data, ckpt_path=tmp_path / "first.ckpt", weights_only=True)
    second.save_checkpoint(tmp_path / "second.ckpt")

    def episodes(name: str) -> list[int]:
        ((shard,),) = torch.load(tmp_path / name, weights_only=True)["RolloutDataModule"]["ranks"]
        return [history["episode"] for history in shard["histories"]]

    (played,) = episodes("first.ckpt")
    assert 2 < played < 2**48
    assert episodes("second.ckpt") == [2**48] * 2  # the first ones after a start of new episodes
