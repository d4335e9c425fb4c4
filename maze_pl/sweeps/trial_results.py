"""Results of trials, read from their run directories."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maze_pl.config.assembling import SEEDS_FILE
from maze_pl.config.search_path import ConfigurationError
from maze_pl.reports.curves import full_name
from maze_pl.runs.intervals import interquartile_mean
from maze_pl.runs.metrics import METRICS_FILE, Column, read_columns
from maze_pl.runs.run_lock import lock_holder
from maze_pl.runs.seed_results import has_ended
from maze_pl.runs.seed_runs import seed_directory
from maze_pl.sweeps.sweep_file import Objective
from maze_pl.system.atomic_files import LOCK_FILE


def trial_directory(folder: Path, number: int) -> Path:
    """Return the run directory of a trial below the folder of the sweep."""
    return folder / f"trial_{number:04d}"


def runs_of(trial_dir: Path) -> list[Path]:
    """Return the run directories of a trial: itself, or those of its seeds, in the order in which they train."""
    try:
        seeds = json.loads((trial_dir / SEEDS_FILE).read_text(encoding="utf-8"))["seeds"]
    except FileNotFoundError:
        return [trial_dir]
    return [seed_directory(trial_dir, seed) for seed in seeds]


def has_finished(trial_dir: Path) -> bool:
    """True if all runs of a trial have trained to the end."""
    return all(has_ended(run) for run in runs_of(trial_dir))


def in_use(trial_dir: Path) -> bool:
    """True if a process still trains in a run directory of a trial."""
    return any(lock_holder(path.parent) is not None for path in trial_dir.rglob(LOCK_FILE))


@dataclass(frozen=True)
class Evaluations:
    """Values of an objective at the evaluations of a run.

    Attributes:
        objective: The objective.
        values: Its values, in order; NaN for an evaluation without one.
    """

    objective: Objective
    values: tuple[float, ...]

    def until(self, n: int) -> float:
        """Return the value of the run after `n` of its evaluations."""
        if self.objective.which == "last":
            return self.values[n - 1]
        finite = [value for value in self.values[:n] if not math.isnan(value)]
        if not finite:
            return math.nan
        return max(finite) if self.objective.direction == "maximize" else min(finite)


def read_evaluations(run: Path, objective: Objective) -> Evaluations | None:
    """Read the evaluations of a run that may be in progress.

    Args:
        run: The run directory.
        objective: The objective.

    Returns:
        The values; None if the run has not logged any.
    """
    if not (run / METRICS_FILE).is_file():
        return None
    try:
        columns = read_columns(run)
        name = full_name(objective.metric, {run: columns})
    except ConfigurationError:  # it is being written, or has no evaluation yet
        return None
    if np.isnan(columns[name]).all():
        return None
    return Evaluations(objective, tuple(map(float, columns[name][_is_evaluated(name, columns)])))


def _is_evaluated(name: str, columns: Mapping[str, Column]) -> NDArray[np.bool_]:
    """Return the rows of an evaluator's statistics; of training, those with the statistic.

    Args:
        name: The statistic, such as `eval_BaseEnvEvents/kpi/mean/cost`.
        columns: All columns of the run, [n] each.

    Returns:
        [n] True for a row in which any statistic of the evaluator has a value.
    """
    source = _source(name)
    names = [name]
    if source not in ("", "train"):
        names = [other for other in columns if _source(other) == source]
    has_value: NDArray[np.bool_] = np.any([~np.isnan(columns[other]) for other in names], axis=0)
    return has_value


def _source(name: str) -> str:
    """Return the evaluator of a statistic, such as `eval`, or `train`; "" for other columns."""
    topic, slash, _ = name.partition("/")
    return topic.rpartition("_")[0] if slash else ""


def steps(trial_dir: Path, objective: Objective) -> Iterator[tuple[int, float]]:
    """Yield number and value of each step of a trial so far, for pruning.

    A step is an evaluation of the run. With several seeds, which train one after another, the
    evaluations of each seed follow those of the seed before. The value is then the interquartile
    mean over the values of the seeds that were trained, and that of the current one so far.

    Args:
        trial_dir: The run directory of the trial.
        objective: The objective.
    """
    number = 0
    finished: list[float] = []
    for run in runs_of(trial_dir):
        evaluations = read_evaluations(run, objective)
        if evaluations is None:
            return
        n_evaluations = len(evaluations.values)
        for n in range(1, n_evaluations + 1):
            value = evaluations.until(n)
            if not math.isnan(value):
                yield number, interquartile_mean([*finished, value])
            number += 1
        finished.append(evaluations.until(n_evaluations))
        if math.isnan(finished[-1]):
            return


def final_values(trial_dir: Path, objectives: Sequence[Objective]) -> list[float]:
    """Return the values of a trial that has trained to the end: interquartile means over its seeds.

    Raises:
        ValueError: A value is missing or is not a number.
        ConfigurationError: No run has the metric; the message names similar ones.
    """
    runs = runs_of(trial_dir)
    values: list[float] = []
    for objective in objectives:
        of_seeds = []
        for run in runs:
            evaluations = read_evaluations(run, objective)
            if evaluations is None:
                full_name(objective.metric, {run: read_columns(run)})  # raises
                raise ValueError(f"{objective.metric} has no value")
            of_seeds.append(evaluations.until(len(evaluations.values)))
        value = interquartile_mean(of_seeds)
        if not math.isfinite(value):
            raise ValueError(f"{objective.metric} is {value}")
        values.append(value)
    return values
