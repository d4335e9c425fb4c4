from __future__ import annotations

import pytest
import pytorch_lightning as pl

from maze_pl.callbacks import EpochTable, ProgressLines, RolloutProgressBar
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)


def make_env() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


def policy_net(obs_shapes: dict, action_logits_shapes: dict) -> FlattenConcatPolicyNet:  # type: ignore[type-arg]
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, "torch.nn.Tanh", [8])


def value_net(obs_shapes: dict) -> FlattenConcatStateValueNet:  # type: ignore[type-arg]
    return FlattenConcatStateValueNet(obs_shapes, "torch.nn.Tanh", [8])


def fit(*callbacks: pl.Callback, max_epochs: int = 2) -> None:
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), SharedStateCriticComposer([value_net]))
    evaluators = {"eval": RolloutEvaluator(n_episodes=1)}
    data = RolloutDataModule(make_env, n_envs=2, n_rollout_steps=10, epoch_length=3, evaluators=evaluators)
    module = A2C(networks=networks, spec=data.spec)
    trainer = pl.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        logger=False,
        callbacks=list(callbacks),
        enable_progress_bar=any(isinstance(callback, RolloutProgressBar) for callback in callbacks),
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(module, datamodule=data)


def test_the_bar_shows_env_steps_per_second_and_the_return(capsys: pytest.CaptureFixture[str]) -> None:
    fit(RolloutProgressBar())
    output = "".join(capsys.readouterr())
    assert "env steps=120" in output
    assert "epoch 2:" in output
    assert "env steps/s=" in output
    assert "return=" in output
    assert "v_num" not in output


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if "rollouts" in line]


def test_without_a_terminal_a_line_now_and_then_says_how_far_a_long_epoch_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fit(EpochTable(), ProgressLines(interval=0.0))
    found = lines(capsys)
    assert [line.split(" env steps/s")[0].rpartition(" | ")[0] for line in found] == [
        "epoch 1: 1 of 3 rollouts | 20 env steps",
        "epoch 1: 2 of 3 rollouts | 40 env steps",
        "epoch 2: 1 of 3 rollouts | 80 env steps",
        "epoch 2: 2 of 3 rollouts | 100 env steps",
    ]
    assert all(line.endswith(" left") for line in found)


def test_nobody_knows_how_long_a_run_without_limit_takes(capsys: pytest.CaptureFixture[str]) -> None:
    class Stop(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.should_stop = True

    fit(EpochTable(), ProgressLines(interval=0.0), Stop(), max_epochs=-1)
    assert [line.endswith(" env steps/s") for line in lines(capsys)] == [True, True]


def test_a_short_epoch_needs_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    fit(EpochTable(), ProgressLines(interval=1e9))
    assert lines(capsys) == []
