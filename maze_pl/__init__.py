"""maze_pl: applied reinforcement learning on PyTorch Lightning.

Importing this package is cheap: torch and Lightning are imported when something needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .core.version import __version__ as __version__
from .runs.loading import load as load, load_env as load_env
from .runs.simple_stats import SimpleStatsLoggingSetup as SimpleStatsLoggingSetup

__all__ = [
    "AgentDeployment",
    "RunContext",
    "SimpleStatsLoggingSetup",
    "SweepResult",
    "compare",
    "events_table",
    "export",
    "load",
    "load_env",
    "read_metrics",
    "rollout",
    "sweep",
    "tensorboard_to_dataframe",
    "tensorboard_to_pandas",
    "view",
]

if TYPE_CHECKING:
    from .bundle.export import export as export
    from .cli.sweep import sweep as sweep
    from .comparison.compare import compare as compare
    from .deployment.agent_deployment import AgentDeployment as AgentDeployment
    from .run_context.run_context import RunContext as RunContext
    from .runs.metrics import read_metrics as read_metrics
    from .runs.metrics import tensorboard_to_dataframe as tensorboard_to_dataframe
    from .runs.metrics import tensorboard_to_pandas as tensorboard_to_pandas
    from .runs.rollout import rollout as rollout
    from .sweeps.result import SweepResult as SweepResult
    from .viewer.episode_view import view as view
    from .viewer.events import events_table as events_table
else:
    _LATE = {
        "AgentDeployment": "maze_pl.deployment.agent_deployment",
        "RunContext": "maze_pl.run_context.run_context",
        "SweepResult": "maze_pl.sweeps.result",
        "compare": "maze_pl.comparison.compare",
        "events_table": "maze_pl.viewer.events",
        "export": "maze_pl.bundle.export",
        "read_metrics": "maze_pl.runs.metrics",
        "rollout": "maze_pl.runs.rollout",
        "sweep": "maze_pl.cli.sweep",
        "tensorboard_to_dataframe": "maze_pl.runs.metrics",
        "tensorboard_to_pandas": "maze_pl.runs.metrics",
        "view": "maze_pl.viewer.episode_view",
    }

    def __getattr__(name: str) -> object:
        """Return a function or class that is imported when it is asked for."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    facts = {"__all__", "__doc__", "__file__", "__name__", "__package__", "__path__", "__spec__", "__version__"}
    return sorted({*__all__, *facts})
