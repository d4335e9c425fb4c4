"""Result of a sweep: its trials, the best one, importances, and tables of them."""

import csv
import io
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from maze_pl.config.search_path import ConfigurationError, dump, read
from maze_pl.runs.tables import aligned, number_text
from maze_pl.sweeps.importances import FEWEST_TRIALS, importances_of
from maze_pl.sweeps.progress import duration_text, value_text
from maze_pl.sweeps.search_space import StoredValues, suggested
from maze_pl.sweeps.storage import open_study, plan_of
from maze_pl.sweeps.sweep_file import SWEEP_FILE, SweepPlan, parse_sweep
from maze_pl.sweeps.trial_results import trial_directory
from maze_pl.system.atomic_files import write_file

TABLE_FILE: Final = "trials.csv"
"""File in the folder of a sweep with all trials."""
_STATES: Final = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "under way"}


@dataclass(frozen=True)
class Trial:
    """A trial of a sweep.

    Attributes:
        number: Its number, from 0.
        status: "finished", "pruned", "failed" or "under way".
        assignment: Searched option -> value.
        values: Values of the objectives; empty if it has not finished.
        steps: Evaluation -> value, as far as they were reported for pruning.
        run_dir: Its run directory.
        seconds: Duration of its processes in seconds; NaN while it is under way, and if one was killed.
        reason: Reason of its failure; "" if it has not failed.
    """

    number: int
    status: str
    assignment: Mapping[str, Any]
    values: tuple[float, ...]
    steps: Mapping[int, float]
    run_dir: Path
    seconds: float
    reason: str


class SweepResult:
    """The trials of a sweep, which may be in progress.

    Args:
        folder: Folder of the sweep.

    Attributes:
        folder: The folder.
        plan: What was searched.
        study: The study of Optuna.

    Raises:
        ConfigurationError: The folder does not hold a sweep, or it is damaged.

    Example:
        >>> import maze_pl
        >>> maze_pl.SweepResult("outputs/none")
        Traceback (most recent call last):
        maze_pl.config.search_path.ConfigurationError: outputs/none is not the folder of a sweep: it has no sweep.yaml
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        plan = read_plan(self.folder)
        self.study = open_study(self.folder, plan, is_writer=False)
        self.plan = plan_of(self.study, plan)

    @property
    def trials(self) -> list[Trial]:
        """All trials so far."""
        return [self._trial(frozen) for frozen in self.study.get_trials(deepcopy=False)]

    @property
    def best_trials(self) -> list[Trial]:
        """The best trial, or with several objectives the Pareto front; empty if no trial has finished."""
        if not any(trial.status == "finished" for trial in self.trials):
            return []
        best = [self._trial(frozen) for frozen in self.study.best_trials]
        return best[:1] if len(self.plan.objectives) == 1 else best

    @property
    def importances(self) -> dict[str, float]:
        """Searched option -> its share of the differences between trials, the largest first.

        For the first objective, by ranks; see `importances_of`. Those that may be chance are 0. Empty
        with fewer than 10 finished trials.
        """
        finished = [trial for trial in self.trials if trial.status == "finished"]
        if len(finished) < FEWEST_TRIALS:
            return {}
        assignments = [trial.assignment for trial in finished]
        return importances_of(self.plan.parameters, assignments, [trial.values[0] for trial in finished])

    def command(self, trial: Trial) -> str:
        """Return the command line that trains with the values of a trial."""
        return shlex.join(["maze-pl", *self.plan.fit(trial.assignment)])

    def _trial(self, frozen: Any) -> Trial:
        """Return a trial of the storage."""
        options = {parameter.option for parameter in self.plan.parameters} & set(frozen.params)
        known = [parameter for parameter in self.plan.parameters if parameter.option in options]
        return Trial(
            number=frozen.number,
            status=_STATES.get(frozen.state.name, "under way"),
            assignment=suggested(known, StoredValues(frozen.params)),
            values=tuple(frozen.values) if frozen.state.name == "COMPLETE" else (),
            steps=dict(frozen.intermediate_values),
            run_dir=trial_directory(self.folder, frozen.number),
            seconds=float(frozen.user_attrs.get("seconds", math.nan)),
            reason=str(frozen.user_attrs.get("reason", "")),
        )

    # ---------------------------------------------------------------------------------------------------------- tables

    def _rows(self) -> list[list[str]]:
        """Return the table of all trials, with a header row."""
        options = [parameter.option for parameter in self.plan.parameters]
        head = ["trial", "status", *[objective.metric for objective in self.plan.objectives], *options, "time"]
        rows = [head]
        for trial in self.trials:
            values = [number_text(value) for value in trial.values] or [""] * len(self.plan.objectives)
            cells = [value_text(trial.assignment[option]) if option in trial.assignment else "" for option in options]
            duration = "" if math.isnan(trial.seconds) else duration_text(trial.seconds)
            rows.append([str(trial.number), trial.status, *values, *cells, duration])
        return rows

    def table(self) -> str:
        """Return all trials, importances and the command of the best trial, as text for the console."""
        parts = [aligned(self._rows())]
        failures = [f"trial {trial.number} failed: {trial.reason}" for trial in self.trials if trial.status == "failed"]
        if failures:
            parts.append("\n".join(failures))
        if importances := self.importances:
            lines = [["option", "importance"], *([name, f"{share:.2f}"] for name, share in importances.items())]
            parts.append(aligned(lines))
        for trial in self.best_trials:
            pairs = zip(self.plan.objectives, trial.values, strict=True)
            values = ", ".join(f"{objective.metric} {number_text(value)}" for objective, value in pairs)
            which = "best trial" if len(self.plan.objectives) == 1 else "on the Pareto front: trial"
            parts.append(f"{which} {trial.number}: {values} ({trial.run_dir})\n  {self.command(trial)}")
        return "\n\n".join(parts)

    def write_table(self) -> None:
        """Write all trials to `TABLE_FILE`, with all digits."""
        options = [parameter.option for parameter in self.plan.parameters]
        text = io.StringIO()
        writer = csv.writer(text)
        metrics = [objective.metric for objective in self.plan.objectives]
        writer.writerow(["trial", "status", *metrics, *options, "seconds", "run_dir", "reason"])
        for trial in self.trials:
            values: list[Any] = list(trial.values) or [""] * len(metrics)
            cells = [_cell(trial.assignment[option]) if option in trial.assignment else "" for option in options]
            seconds = "" if math.isnan(trial.seconds) else trial.seconds
            writer.writerow([trial.number, trial.status, *values, *cells, seconds, trial.run_dir.name, trial.reason])
        write_file(self.folder / TABLE_FILE, text.getvalue().encode())


def _cell(value: Any) -> Any:
    """Return a number as it is, and another value as in YAML: an empty cell is an option that was not searched."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else dump(value)


def read_plan(folder: Path) -> SweepPlan:
    """Read the plan of a sweep that was started earlier.

    Raises:
        ConfigurationError: The folder does not hold a sweep, or the file is damaged.
    """
    path = folder / SWEEP_FILE
    if not path.is_file():
        raise ConfigurationError(f"{folder} is not the folder of a sweep: it has no {SWEEP_FILE}")
    content = read(path)
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} is damaged: expected a mapping with `search`")
    return parse_sweep(content)
