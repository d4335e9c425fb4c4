"""Callbacks and loggers of a training run: what is kept, what is shown, and when it ends."""

from .checkpoints import BestCheckpoint as BestCheckpoint, EarlyStopping as EarlyStopping
from .checkpoints import FinalEvaluation as FinalEvaluation, LastCheckpoint as LastCheckpoint, RunSummary as RunSummary
from .checkpoints import StopAtReturn as StopAtReturn, StopOnSignal as StopOnSignal
from .console import EpochTable as EpochTable, NetworkPictures as NetworkPictures
from .console import RolloutProgressBar as RolloutProgressBar, RunRecord as RunRecord
from .loggers import Dashboard as Dashboard, MetricsFile as MetricsFile
from .loggers import TensorBoardLog as TensorBoardLog, WandbLog as WandbLog
