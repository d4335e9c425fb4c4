"""Data modules: what generates the data of algorithms."""

from maze_pl.datamodules.rollout import RolloutDataModule as RolloutDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator as RolloutEvaluator
from maze_pl.datamodules.trajectory import TrajectoryDataModule as TrajectoryDataModule
