"""maze_pl: applied reinforcement learning on PyTorch Lightning.

Importing this package is cheap: torch and Lightning are imported when something needs them.
"""

from __future__ import annotations

from maze_pl.loading import load, load_env
from maze_pl.simple_stats import SimpleStatsLoggingSetup
from maze_pl.tensorboard_log import tensorboard_to_pandas

__version__ = "0.1.0"

__all__ = ["SimpleStatsLoggingSetup", "__version__", "load", "load_env", "tensorboard_to_pandas"]
