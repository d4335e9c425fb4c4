"""Loggers: metrics.csv, TensorBoard and Weights & Biases.

What is logged, and when, belongs to `maze_pl.callbacks` and the algorithms.
"""

from .dashboard import Bins as Bins, Dashboard as Dashboard
from .metrics_file import MetricsFile as MetricsFile
from .tensorboard_log import TensorBoardLog as TensorBoardLog
from .wandb_log import WandbLog as WandbLog
