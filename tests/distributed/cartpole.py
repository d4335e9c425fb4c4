"""A small A2C on CartPole, with a data module of any class."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytorch_lightning as pl
from torch import nn

from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)


def make(kind: type[RolloutDataModule], **options: Any) -> tuple[A2C, RolloutDataModule]:
    given: dict[str, Any] = {
        "wrappers": [ObservationNormalizationWrapper],
        "n_envs": 1,
        "n_rollout_steps": 5,
        "epoch_length": 1,
        "evaluators": {"eval": RolloutEvaluator(n_episodes=1)},
        "n_normalization_samples": 10,
    }
    data = kind(partial(GymMazeEnv, "CartPole-v1"), **given | options)
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, non_lin=nn.Tanh, hidden_units=[4])]),
        critic=SharedStateCriticComposer([partial(FlattenConcatStateValueNet, non_lin=nn.Tanh, hidden_units=[4])]),
    )
    return A2C(networks=networks, spec=data.spec), data


def trainer(max_epochs: int) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
