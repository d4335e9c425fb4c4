"""maze_pl: applied reinforcement learning on PyTorch Lightning.

Importing this package is cheap: torch and Lightning are imported when something needs them.
"""

from typing import Any

from .loading import load as load, load_env as load_env
from .simple_stats import SimpleStatsLoggingSetup as SimpleStatsLoggingSetup
from .simple_stats import tensorboard_to_pandas as tensorboard_to_pandas

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`rollout`, which is imported when it is asked for."""
    if name != "rollout":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from maze_pl.rollouts import rollout

    return rollout
