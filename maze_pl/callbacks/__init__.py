"""Callbacks and loggers of a training run: what is kept, what is shown, and when it ends."""

from maze_pl.callbacks.checkpoints import BestCheckpoint, CheckpointConfiguration, LastCheckpoint
from maze_pl.callbacks.dashboards import Dashboard, Distributions
from maze_pl.callbacks.epoch_table import EpochTable
from maze_pl.callbacks.final_evaluation import FinalEvaluation
from maze_pl.callbacks.metrics_file import MetricsFile
from maze_pl.callbacks.progress_bar import ProgressLines, RolloutProgressBar
from maze_pl.callbacks.run_log import RunLog
from maze_pl.callbacks.run_record import RunRecord, RunSummary
from maze_pl.callbacks.signals import StopOnSignal
from maze_pl.callbacks.stopping import EarlyStopping, StopAtReturn
from maze_pl.callbacks.tensorboard import TensorBoardLog
from maze_pl.callbacks.weights_and_biases import WandbLog

__all__ = [
    "BestCheckpoint",
    "CheckpointConfiguration",
    "Dashboard",
    "Distributions",
    "EarlyStopping",
    "EpochTable",
    "FinalEvaluation",
    "LastCheckpoint",
    "MetricsFile",
    "ProgressLines",
    "RolloutProgressBar",
    "RunLog",
    "RunRecord",
    "RunSummary",
    "StopAtReturn",
    "StopOnSignal",
    "TensorBoardLog",
    "WandbLog",
]
