"""maze_pl: applied reinforcement learning on PyTorch Lightning.

Importing this package is cheap: torch and Lightning are imported when something needs them.
"""

from maze_pl.loading import load as load
from maze_pl.loading import load_env as load_env
from maze_pl.simple_stats import SimpleStatsLoggingSetup as SimpleStatsLoggingSetup
from maze_pl.tensorboard_log import tensorboard_to_pandas as tensorboard_to_pandas

__version__ = "0.1.0"
