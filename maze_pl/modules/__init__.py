"""Algorithms: each a LightningModule that learns from what a data module yields."""

from __future__ import annotations

from maze_pl.modules.a2c import A2C
from maze_pl.modules.algorithm import AlgorithmModule, ModelComposer
from maze_pl.modules.on_policy import Acts, LearningBatch, Minibatch, learning_batch
from maze_pl.modules.optimizer import FlatAdam
from maze_pl.modules.ppo import PPO

__all__ = [
    "A2C",
    "PPO",
    "Acts",
    "AlgorithmModule",
    "FlatAdam",
    "LearningBatch",
    "Minibatch",
    "ModelComposer",
    "learning_batch",
]
