"""The precision of matrix products during training, and before and after it."""

from __future__ import annotations

from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.callbacks import MatmulPrecision
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import PPO


class Precisions(pl.Callback):
    """Notes the precision of matrix products in each training batch, and fails if asked to."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.seen = fails, list[str]()

    def on_train_batch_end(self, *arguments: Any) -> None:
        self.seen.append(torch.get_float32_matmul_precision())
        if self.fails:
            raise RuntimeError("a failure in training")


def trained(callbacks: list[pl.Callback]) -> None:
    """Train PPO on two short rollouts."""
    data = RolloutDataModule(
        lambda: make_gym_maze_env("CartPole-v1"), n_envs=2, n_rollout_steps=8, epoch_length=2, evaluators={}
    )
    options: dict[str, Any] = {
        "logger": False,
        "limit_val_batches": 0,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
    }
    trainer = pl.Trainer(max_epochs=1, callbacks=callbacks, accelerator="cpu", **options)
    trainer.fit(PPO(spec=data.spec, batch_size=16), data)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("earlier", ["highest", "medium"])
def test_training_has_its_precision_and_the_earlier_one_returns(earlier: str, fails: bool) -> None:
    precisions = Precisions(fails)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(earlier)
    try:
        if fails:
            with pytest.raises(RuntimeError, match="a failure in training"):
                trained([MatmulPrecision(), precisions])
        else:
            trained([MatmulPrecision(), precisions])
        assert torch.get_float32_matmul_precision() == earlier
    finally:
        torch.set_float32_matmul_precision(before)
    assert precisions.seen == ["high"] * (1 if fails else 2)


def test_an_unknown_precision_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"precision='tf32'\) must be one of 'highest', 'high', 'medium'"):
        MatmulPrecision("tf32")  # type: ignore[arg-type]
