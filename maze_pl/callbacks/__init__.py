"""Callbacks and loggers of a training run: what is kept, what is shown, and when it ends."""

from maze_pl.callbacks.checkpoints import BestCheckpoint as BestCheckpoint
from maze_pl.callbacks.checkpoints import CheckpointConfiguration as CheckpointConfiguration
from maze_pl.callbacks.checkpoints import EarlyStopping as EarlyStopping
from maze_pl.callbacks.checkpoints import LastCheckpoint as LastCheckpoint
from maze_pl.callbacks.checkpoints import StopAtReturn as StopAtReturn
from maze_pl.callbacks.dashboards import Dashboard as Dashboard
from maze_pl.callbacks.dashboards import Distributions as Distributions
from maze_pl.callbacks.dashboards import NetworkPictures as NetworkPictures
from maze_pl.callbacks.epoch_table import EpochTable as EpochTable
from maze_pl.callbacks.epoch_table import RolloutProgressBar as RolloutProgressBar
from maze_pl.callbacks.loggers import MetricsFile as MetricsFile
from maze_pl.callbacks.loggers import TensorBoardLog as TensorBoardLog
from maze_pl.callbacks.loggers import WandbLog as WandbLog
from maze_pl.callbacks.run_log import RunLog as RunLog
from maze_pl.callbacks.run_record import FinalEvaluation as FinalEvaluation
from maze_pl.callbacks.run_record import RunRecord as RunRecord
from maze_pl.callbacks.run_record import RunSummary as RunSummary
from maze_pl.callbacks.signals import StopOnSignal as StopOnSignal
