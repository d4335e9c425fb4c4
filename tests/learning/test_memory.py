"""What cannot be seen at once is learned by who remembers, and only by them: CartPole without velocities."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import maze_pl
from maze_pl.__main__ import main
from maze_pl.modules import A2C, PPO
from tests.learning.training import mean_return

RECURRENCE = "--model.networks.model_builder.modality_config.recurrence"
TRANSFORMER = (
    "{block_type: maze_pl.perception.TransformerMemoryBlock, block_params: "
    "{hidden_size: 32, memory_length: 8, num_heads: 4, feed_forward_size: 64, gate_bias: 0.5}}"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "memory", ["gru", pytest.param("transformer", marks=pytest.mark.long), pytest.param("none", marks=pytest.mark.long)]
)
def test_cartpole_without_velocities_takes_a_memory(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"gru": [], "transformer": [RECURRENCE, TRANSFORMER], "none": [RECURRENCE, "{}"]}[memory]
    command = ["fit", "--config", "ppo_cartpole_recurrent", "--trainer.max_epochs", "2", "--run_dir", "here"]
    assert main([*command, *options]) == 0
    reached = mean_return(Path("here"))
    least, most = {"gru": (400, 500), "transformer": (120, 500), "none": (0, 100)}[memory]
    assert least <= reached <= most


@pytest.mark.slow
def test_what_was_learned_with_a_memory_is_gone_on_with_by_another_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = [
        "--data.n_envs",
        "2",
        "--data.n_rollout_steps",
        "50",
        "--data.epoch_length",
        "1",
        "--trainer.max_epochs",
        "1",
    ]
    small += ["--data.evaluators", '{"eval": {"n_episodes": 2}}']
    first = ["fit", "--config", "ppo_cartpole_recurrent", *small, "--model.batch_size", "50", "--run_dir", "ppo"]
    assert main(first) == 0
    then = ["--model", "algorithm/a2c", "--model.lr", "1e-30", "--run_dir", "a2c"]
    assert main(["fit", "--warm-start", "ppo", *then]) == 0
    before, after = maze_pl.load("ppo/checkpoints/last.ckpt"), maze_pl.load("a2c/checkpoints/last.ckpt")
    assert (type(before), type(after)) == (PPO, A2C)
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert main(["fit", "--resume", "ppo", "--trainer.max_epochs", "2", "--data.n_envs", "4"]) == 0
