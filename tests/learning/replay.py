"""Training from replay through the public Python API, and the mean return of what was learned."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch

from maze_pl.callbacks import StopAtReturn
from maze_pl.datamodules import ReplayDataModule, RolloutEvaluator
from maze_pl.modules import AlgorithmModule

SEED = 1


def learned_return(
    module: AlgorithmModule, env: Any, n_batches: int, stop_at: float | None = None, **options: Any
) -> float:
    """Return of 20 deterministic episodes after so many batches, or after each fifth of them until `stop_at`."""
    n_epochs = 1 if stop_at is None else 5
    assert n_batches % n_epochs == 0
    options |= {"epoch_length": n_batches // n_epochs}
    evaluator = RolloutEvaluator(n_episodes=20, deterministic=True)
    data = ReplayDataModule(env, seed=SEED, evaluators={"eval": evaluator}, **options)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=n_epochs,
        callbacks=[StopAtReturn(stop_at)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    torch.set_num_threads(1)
    trainer.fit(module, data)
    assert module.capture_refusal is None
    return float(trainer.callback_metrics["eval/return"])
