"""Two nodes that torchrun starts, here on one machine, each in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.distributed.launch import free_port, run, torchrun
from tests.distributed.rank_report import reports
from tests.exact.comparison import differences

OPTIONS = [
    *("--config", "ppo_cartpole", "--run_dir", "here", "--data.wrappers", "wrappers/vector_obs"),
    *("--trainer.accelerator", "cpu", "--trainer.num_nodes", "2", "--trainer.devices", "1"),
    *("--trainer.max_epochs", "2", "--data.epoch_length", "3", "--data.n_envs", "2", "--data.n_rollout_steps", "50"),
    *("--data.evaluators", '{"eval": {"n_episodes": 5}}'),
]


@pytest.mark.slow
@pytest.mark.long
def test_two_nodes_end_with_the_same_parameters_and_statistics(tmp_path: Path) -> None:
    folders = [tmp_path / "node0", tmp_path / "node1"]
    for folder in folders:
        folder.mkdir()
    report = f'{{"class_path": "tests.distributed.rank_report.RankReport", "init_args": {{"folder": "{tmp_path}"}}}}'
    fit = ["-m", "maze_pl", "fit", *OPTIONS, f"--trainer.callbacks+={report}"]
    port = free_port()
    commands = [torchrun(*fit, node=node, n_nodes=2, port=port) for node in range(2)]
    first_output, second_output = run(*commands, folders=folders, timeout=120)
    first, second = reports(tmp_path)
    assert not set(first["seen"]) & set(second["seen"])
    for name in ("state_dict", "optimizer", "statistics", "callback_metrics", "env_steps", "global_step"):
        assert differences(first[name], second[name]) == [], name
    assert first["env_steps"] == 2 * 3 * 2 * 50 * 2
    assert first["statistics"]["eval/BaseEnvEvents/reward/episode_count"] == 5
    assert differences(first["before"], first["state_dict"]) != []
    last = torch.load(folders[0] / "here" / "checkpoints" / "last.ckpt", weights_only=True)
    assert differences(last["state_dict"], first["state_dict"]) == []
    assert last["RolloutDataModule"]["shared"]
    histories = [shard["histories"] for (shard,) in last["RolloutDataModule"]["ranks"]]
    assert len(histories) == 2
    assert differences(*histories) != []
    assert "epoch 2 |" in first_output
    assert "epoch 2 |" not in second_output
    assert list(folders[1].iterdir()) == []
