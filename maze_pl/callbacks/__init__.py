"""Callbacks and loggers of a training run: what is kept, what is shown, and when it ends."""

from maze_pl.callbacks.checkpoints import BestCheckpoint, CheckpointConfiguration, LastCheckpoint
from maze_pl.callbacks.epoch_table import EpochTable
from maze_pl.callbacks.final_evaluation import FinalEvaluation
from maze_pl.callbacks.metrics_file import MetricsFile
from maze_pl.callbacks.progress_bar import RolloutProgressBar
from maze_pl.callbacks.run_record import RunRecord
from maze_pl.callbacks.stopping import EarlyStopping, StopAtReturn

__all__ = [
    "BestCheckpoint",
    "CheckpointConfiguration",
    "EarlyStopping",
    "EpochTable",
    "FinalEvaluation",
    "LastCheckpoint",
    "MetricsFile",
    "RolloutProgressBar",
    "RunRecord",
    "StopAtReturn",
]
