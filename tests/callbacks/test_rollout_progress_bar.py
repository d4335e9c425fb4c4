from __future__ import annotations

import pytest
import pytorch_lightning as pl

from maze_pl.callbacks import RolloutProgressBar
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


def fit(*callbacks: pl.Callback) -> None:
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), SharedStateCriticComposer([value_net]))
    evaluators = {"eval": RolloutEvaluator(n_episodes=1)}
    data = RolloutDataModule(make_env, n_envs=2, n_rollout_steps=10, epoch_length=3, evaluators=evaluators)
    module = A2C(networks=networks, spec=data.spec)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        callbacks=list(callbacks),
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


def test_the_bar_shows_the_return_of_the_evaluation_that_has_ended() -> None:
    shown: list[tuple[str, float]] = []

    class Noting(RolloutProgressBar):
        def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            super().on_validation_end(trainer, pl_module)
            if not trainer.sanity_checking:
                shown.append((self.train_progress_bar.postfix, float(trainer.callback_metrics["eval/return"])))

    fit(Noting())
    assert len(shown) == 2
    for postfix, value in shown:
        assert f"return={value:.1f}" in postfix
