"""Data modules, which generate the data of algorithms.

Collecting itself belongs to `maze_pl.collect`; nothing here imports an algorithm.
"""

from maze_pl.datamodules.actors import ActorDataModule as ActorDataModule
from maze_pl.datamodules.population import PopulationDataModule as PopulationDataModule
from maze_pl.datamodules.replay import ReplayDataModule as ReplayDataModule
from maze_pl.datamodules.rollouts import RolloutDataModule as RolloutDataModule
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator as RolloutEvaluator
from maze_pl.datamodules.self_labelling import SelfLabellingDataModule as SelfLabellingDataModule
from maze_pl.datamodules.trajectory import TrajectoryDataModule as TrajectoryDataModule
