"""What cannot be seen at once is learned by who remembers, and only by them: CartPole without velocities."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import maze_pl
from maze_pl.__main__ import main
from maze_pl.modules import A2C, PPO
from tests.learning.training import mean_return

FORGETFUL = ["--model.networks.model_builder.modality_config.recurrence", "{}"]


@pytest.mark.slow
@pytest.mark.parametrize("remembers", [True, False])
def test_cartpole_without_velocities_takes_a_memory(
    remembers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [] if remembers else FORGETFUL
    command = ["fit", "--config", "ppo_cartpole_recurrent", "--trainer.max_epochs", "2", "--run_dir", "here"]
    assert main([*command, *options]) == 0
    reached = mean_return(Path("here"))
    assert reached >= 400 if remembers else reached < 100


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
