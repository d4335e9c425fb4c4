"""Progress of a sweep on the console."""

import math
import time
from collections.abc import Sequence
from typing import Any, Final

from maze_pl.config.search_path import dump
from maze_pl.runs.run_output import say
from maze_pl.runs.tables import number_text
from maze_pl.sweeps.methods import optuna_module
from maze_pl.sweeps.sweep_file import SweepPlan

_SECONDS_BETWEEN_LINES: Final = 30.0


def value_text(value: Any) -> str:
    """Format a value of a searched option."""
    return f"{value:.4g}" if isinstance(value, float) else dump(value)


def duration_text(seconds: float) -> str:
    """Format a duration in its largest unit that fits, such as `2.5 h`.

    Example:
        >>> duration_text(90.0)
        '2 min'
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Progress:
    """Prints how many trials have ended and how, the best so far, and the time left.

    Args:
        plan: The sweep.
        study: Its storage.
    """

    def __init__(self, plan: SweepPlan, study: Any) -> None:
        self._plan = plan
        self._study = study
        self._said: set[str] = set()
        self._began: dict[int, float] = {}  # trial -> time at which it was first seen here
        self._is_due = False
        self._last_line = time.monotonic()

    def say_once(self, text: str) -> None:
        """Print a line, unless it was printed before."""
        if text not in self._said:
            self._said.add(text)
            say(text)

    def stopped(self, number: int) -> None:
        """Print that a trial was stopped."""
        say(f"trial {number} was stopped; it continues when the sweep is resumed")
        self._is_due = True

    def ended(self, number: int) -> None:
        """Print how a trial has ended."""
        trial = self._study.get_trials(deepcopy=False)[number]
        states: Any = optuna_module().trial.TrialState
        if trial.state == states.COMPLETE:
            pairs = zip(self._plan.objectives, trial.values, strict=True)
            result = ", ".join(f"{objective.metric} {number_text(value)}" for objective, value in pairs)
        elif trial.state == states.PRUNED:
            n_steps = len(trial.intermediate_values)
            result = f"pruned after {n_steps} evaluation{'s' if n_steps > 1 else ''}"
        else:
            result = f"failed: {trial.user_attrs.get('reason', '')}"
        say(f"trial {number}: {result}")
        self._is_due = True

    def show(self, running: Sequence[int]) -> None:
        """Print a line if a trial has ended since the last one, or after half a minute.

        Args:
            running: Numbers of the trials that run.
        """
        now = time.monotonic()
        for number in running:
            self._began.setdefault(number, now)
        if self._is_due or now - self._last_line > _SECONDS_BETWEEN_LINES:
            say(self.line(running))
            self._is_due = False
            self._last_line = now

    def line(self, running: Sequence[int]) -> str:
        """Return the state of the sweep in a line.

        Args:
            running: Numbers of the trials that run.
        """
        states: Any = optuna_module().trial.TrialState
        trials = self._study.get_trials(deepcopy=False)
        counts = {state: sum(trial.state == state for trial in trials) for state in states}
        ended = counts[states.COMPLETE] + counts[states.PRUNED] + counts[states.FAIL]
        parts = [
            f"{ended} of {self._plan.n_trials} trials done",
            f"{len(running)} running",
            f"{counts[states.PRUNED]} pruned",
            f"{counts[states.FAIL]} failed",
        ]
        if counts[states.COMPLETE]:
            best = self._study.best_trials
            if len(self._plan.objectives) == 1:
                parts.append(f"best {number_text(best[0].values[0])} (trial {best[0].number})")
            else:
                parts.append(f"{len(best)} on the Pareto front")
        left = self.seconds_left(running)
        if ended < self._plan.n_trials and not math.isnan(left):
            parts.append(f"about {duration_text(left)} left")
        return f"sweep: {', '.join(parts)}"

    def seconds_left(self, running: Sequence[int]) -> float:
        """Estimate the time left from the mean duration of the trials so far; NaN if there is none.

        Args:
            running: Numbers of the trials that run; they have been running for some time.
        """
        trials = self._study.get_trials(deepcopy=False)
        durations = [trial.user_attrs["seconds"] for trial in trials if "seconds" in trial.user_attrs]
        if not durations:
            return math.nan
        mean = math.fsum(durations) / len(durations)
        ended = sum(trial.state.is_finished() for trial in trials)
        now = time.monotonic()
        spent = math.fsum(min(mean, now - self._began.get(number, now)) for number in running)
        work = max(0.0, (self._plan.n_trials - ended) * mean - spent)
        return float(work / self._plan.n_parallel)
