"""Results of runs that differ only in their seed: read from the directories, summarised, and written."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from maze_pl.core.metrics_table import metrics_rows
from maze_pl.runs.intervals import CONFIDENCE, Estimate, estimate
from maze_pl.runs.step_units import step_unit_of
from maze_pl.runs.tables import aligned, interval_text, number_text
from maze_pl.system.atomic_files import write_file

RESULTS_FILE: Final = "seed_results.json"
"""File in the directory of several seeds with their results."""
FINAL_FILE: Final = "final_evaluation.json"
"""File in a run directory with the results of each episode of the final evaluation."""
_RETURN: Final = "_BaseEnvEvents/reward/mean"  # after the source
_KPI: Final = "_BaseEnvEvents/kpi/mean/"
_AMBIGUOUS: Final = re.compile("(?:kpi/)*return")
"""Names of KPIs that have a prefix, so that all names differ."""
_ENDED: Final = re.compile(r"^ended: .*\n.*\nrun directory: ", re.MULTILINE)  # lines of `RunSummary`
_STARTED: Final = re.compile(r"^command: (?s:.*?)\nrun directory: ", re.MULTILINE)  # lines of `RunRecord`

Status = Literal["not started", "running", "finished", "required return missed", "stopped", "failed"]


@dataclass
class SeedResult:
    """The run of one seed.

    Attributes:
        seed: The seed.
        run_dir: Its run directory.
        status: How the run ended, if it has.
        exit_status: Exit status of its process; negative for a signal that killed it, None if it has not ended.
        values: Name of a statistic -> value.
    """

    seed: int
    run_dir: str
    status: Status = "not started"
    exit_status: int | None = None
    values: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """True if training has come to its end, so that the result is comparable with others."""
        return self.status in ("finished", "required return missed")

    def end(self, exit_status: int) -> None:
        """Note that the process has ended, and read the results from the run directory.

        Args:
            exit_status: Exit status of the process.
        """
        self.exit_status = exit_status
        if exit_status == 0:
            self.status = "finished"
        elif exit_status == 1 and has_ended(Path(self.run_dir)):
            self.status = "required return missed"
        elif exit_status in (130, 143):
            self.status = "stopped"
        else:
            self.status = "failed"
        self.values = read_values(Path(self.run_dir, "metrics.csv"))


def has_ended(run_dir: Path) -> bool:
    """Return whether, by its `run.log`, the last command in a run directory has trained to the end.

    The log also holds what an environment prints, which may begin with the same words.
    """
    try:
        text = (run_dir / "run.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    ends = list(_ENDED.finditer(text))
    return bool(ends) and _STARTED.search(text, ends[-1].end()) is None


def read_values(metrics: Path) -> dict[str, float]:
    """Read the statistics that are compared between seeds.

    These are, for each evaluator, the mean return of the last and of the best evaluation, and the
    KPIs of the last one, without those that none of its episodes has; without evaluators, the same of
    training. A KPI called `return` is named `kpi/return`.

    Args:
        metrics: The `metrics.csv` in a run directory.

    Returns:
        Name of the statistic -> value; empty without a file, or if it is damaged.
    """
    try:
        names, rows = metrics_rows(metrics.read_bytes())
        return _values([dict(zip(names, cells, strict=True)) for cells in rows], step_unit_of(metrics.parent))
    except (OSError, ValueError):  # the latter of a damaged file
        return {}


def _values(rows: Sequence[Mapping[str, str]], unit: str) -> dict[str, float]:
    """Return the statistics of `read_values` from the rows of a file, and the steps in a unit."""
    if not rows:
        return {}
    values = {unit: float(rows[-1]["step"])}
    columns = list(rows[0])
    sources = [name.removesuffix(_RETURN) for name in columns if name.endswith(_RETURN)]
    sources = [source for source in sources if source != "train"] or sources
    for source in sources:
        evaluations = [row for row in rows if row[f"{source}{_RETURN}"]]
        if not evaluations:
            continue
        returns = [float(row[f"{source}{_RETURN}"]) for row in evaluations]
        values[f"{source} return, last"] = returns[-1]
        known = [value for value in returns if not math.isnan(value)]
        values[f"{source} return, best"] = max(known, default=math.nan)
        for column, cell in evaluations[-1].items():
            if column.startswith(f"{source}{_KPI}") and cell:
                name = _name_of_kpi(column.removeprefix(f"{source}{_KPI}"))
                values[f"{source} {name}, last"] = float(cell)
    return values


def _name_of_kpi(kpi: str) -> str:
    """Return the name of a KPI among other statistics, with a prefix if it could be the return."""
    return f"kpi/{kpi}" if _AMBIGUOUS.fullmatch(kpi) else kpi


def summarize_seeds(results: Sequence[SeedResult]) -> dict[str, Estimate]:
    """Return, for each statistic, the estimate over the seeds that have trained to the end."""
    by_name: dict[str, list[float]] = {}
    for result in results:
        if result.counts:
            for name, value in result.values.items():
                by_name.setdefault(name, []).append(value)
    return {name: estimate(values) for name, values in by_name.items()}


def write_results(folder: Path, results: Sequence[SeedResult]) -> None:
    """Write the results of all seeds and their summary to `RESULTS_FILE`, atomically."""
    content: dict[str, Any] = {
        "confidence": CONFIDENCE,
        "seeds": [asdict(result) for result in results],
        "summary": {name: asdict(found) for name, found in summarize_seeds(results).items()},
    }
    write_file(folder / RESULTS_FILE, f"{json.dumps(content, indent=1)}\n".encode())


def read_results(folder: Path) -> list[SeedResult]:
    """Read the results of all seeds; an empty list if there are none yet."""
    try:
        content = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [SeedResult(**fields) for fields in content["seeds"]]


def table_of_seeds(results: Sequence[SeedResult]) -> str:
    """Format the results of all seeds and their summary as two tables for the console."""
    names = list(dict.fromkeys(name for result in results for name in result.values))
    head = ["seed", "status", *names]
    rows = []
    for result in results:
        status: str = result.status
        if status == "failed":
            status = f"failed (exit status {result.exit_status})"
        cells = [number_text(result.values[name]) if name in result.values else "" for name in names]
        rows.append([str(result.seed), status, *cells])
    tables = [aligned([head, *rows])]
    summary = summarize_seeds(results)
    if summary:
        percent = f"{CONFIDENCE:.0%}"
        lines = [["statistic", "seeds", "mean", f"{percent} t interval", "IQM", f"{percent} bootstrap interval"]]
        for name, found in summary.items():
            mean = [number_text(found.mean), interval_text(found.mean_interval)]
            lines.append([name, str(found.n), *mean, number_text(found.iqm), interval_text(found.iqm_interval)])
        tables.append(aligned(lines))
    return "\n\n".join(tables)
