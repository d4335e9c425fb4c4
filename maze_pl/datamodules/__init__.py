"""Data modules: what generates the data of algorithms."""

from maze_pl.datamodules.rollout import RolloutDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator

__all__ = ["RolloutDataModule", "RolloutEvaluator"]
