"""maze_pl: applied reinforcement learning on PyTorch Lightning.

Importing this package is cheap: torch and Lightning are imported when something needs them.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"  # before the imports below, which read it

from .runs.loading import load as load, load_env as load_env
from .runs.simple_stats import SimpleStatsLoggingSetup as SimpleStatsLoggingSetup
from .runs.simple_stats import tensorboard_to_pandas as tensorboard_to_pandas

__all__ = ["SimpleStatsLoggingSetup", "load", "load_env", "rollout", "tensorboard_to_pandas"]

if TYPE_CHECKING:
    from .runs.rollout import rollout as rollout
else:

    def __getattr__(name: str) -> object:
        """`rollout`, which is imported when it is asked for."""
        if name != "rollout":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from maze_pl.runs.rollout import rollout

        return rollout


def __dir__() -> list[str]:
    facts = {"__all__", "__doc__", "__file__", "__name__", "__package__", "__path__", "__spec__", "__version__"}
    return sorted({*__all__, *facts})
