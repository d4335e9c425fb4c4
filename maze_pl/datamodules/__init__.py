"""Data modules: what generates the data of algorithms."""

from maze_pl.datamodules.actors import ActorDataModule as ActorDataModule
from maze_pl.datamodules.population import PopulationDataModule as PopulationDataModule
from maze_pl.datamodules.replay import ReplayDataModule as ReplayDataModule
from maze_pl.datamodules.rollout import RolloutDataModule as RolloutDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator as RolloutEvaluator
from maze_pl.datamodules.trajectory import TrajectoryDataModule as TrajectoryDataModule
