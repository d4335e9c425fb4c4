"""Message on episodes that may never end, as waiting for their end looks like a standstill."""

import sys
from typing import Final

MANY_ACTS: Final = 10_000
"""Acts of an episode after which it may be one that never ends."""
TIME_LIMIT: Final = "TimeLimitWrapper (--data.wrappers+ TimeLimitWrapper --data.wrappers.max_episode_steps 1000)"
"""Remedy in a data module."""
MAX_STEPS: Final = "max_steps (--max_steps 1000)"
"""Remedy in a rollout."""


def addition_for(evaluator: str) -> str:
    """Return the remedy for an evaluator that has other wrappers than training.

    Args:
        evaluator: Its name.
    """
    limit = "{class_path: TimeLimitWrapper, init_args: {max_episode_steps: 1000}}"
    return f"; if this evaluator has other wrappers, by --data.evaluators.{evaluator}.wrappers+ '{limit}'"


class EndlessEpisodes:
    """Tells once per worker, on standard error, that episodes do not end.

    Each process that plays episodes is a worker.

    Args:
        remedy: Option that limits episodes.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._has_told = False

    def tell(self, where: str, n_running: int, addition: str = "") -> None:
        """Say that episodes have not ended after `MANY_ACTS` acts, unless the worker has said so.

        Args:
            where: Part of the run in which they are played; empty if there is only one.
            n_running: Number of these episodes.
            addition: Text after the remedy.
        """
        if self._has_told or sys.stderr is None:  # None in a process without a console
            return
        from tqdm import tqdm

        self._has_told = True
        they = "1 episode has" if n_running == 1 else f"{n_running} episodes have"
        fact = f"{where}{': ' if where else ''}{they} not ended after {MANY_ACTS:,} acts"
        text = f"maze-pl: {fact}; if episodes may never end, limit them by {self._remedy}{addition}"
        tqdm.write(text, file=sys.stderr)  # above a progress bar of this process
