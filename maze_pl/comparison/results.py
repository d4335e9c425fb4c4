"""Results of a comparison: a table of entries and metrics, and the differences between entries."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.version import __version__
from maze_pl.runs.intervals import CONFIDENCE, Interval

if TYPE_CHECKING:
    import pandas

FORMAT: Final = "maze_pl comparison"
VERSION: Final = 1


@dataclass(frozen=True)
class MetricSummary:
    """A metric of an entry.

    Attributes:
        n_values: Number of episodes with a value in any run.
        mean: Mean over all episodes of all runs; NaN without values.
        mean_interval: Its confidence interval; None if the data does not determine one.
        iqm: Interquartile mean over all episodes of all runs.
        iqm_interval: Its confidence interval.
    """

    n_values: int
    mean: float
    mean_interval: Interval | None
    iqm: float
    iqm_interval: Interval | None


@dataclass(frozen=True)
class ComparedCheckpoint:
    """The checkpoint of a run that played.

    Attributes:
        file: Its path, as it was found.
        sha256: Digest of the file, in hexadecimal.
        env_steps: Number of env steps that the agent was trained with.
    """

    file: str
    sha256: str
    env_steps: int


@dataclass(frozen=True)
class EntrySummary:
    """The results of an entry.

    Attributes:
        name: Its name.
        sources: Its run directories, or the name of its policy.
        given: What the user named: run directories, a folder of several seeds, or a policy.
        n_runs: Number of runs; 1 for a policy.
        is_baseline: Whether other entries are compared with it.
        metrics: Metric -> summary.
        checkpoints: The checkpoint that played of each run; empty for a policy.
    """

    name: str
    sources: list[str]
    given: list[str]
    n_runs: int
    is_baseline: bool
    metrics: dict[str, MetricSummary]
    checkpoints: list[ComparedCheckpoint] = field(default_factory=list)


@dataclass(frozen=True)
class Difference:
    """A comparison of an entry with a baseline by one metric.

    Attributes:
        entry: Name of the entry.
        baseline: Name of the baseline.
        metric: The metric.
        difference: Mean of the entry minus mean of the baseline, on the same episodes; those in which
            one of them lacks the metric are left out.
        interval: Its confidence interval; None if the data does not determine one.
        probability_of_improvement: Probability that the entry is better than the baseline in an
            episode; ties count half. Better is lower if so chosen for the metric of the winner, and
            higher for all others.
        probability_interval: Its confidence interval.
        episodes_needed: Number of episodes that would tell both apart with a probability of 80%, if
            the difference is as estimated; None if they are told apart, or if no number suffices.
        needs_more_runs: Whether only more runs can tell them apart.
        n_shared: Number of episodes in which both have the metric.
    """

    entry: str
    baseline: str
    metric: str
    difference: float
    interval: Interval | None
    probability_of_improvement: float
    probability_interval: Interval | None
    episodes_needed: int | None = None
    needs_more_runs: bool = False
    n_shared: int = 0


@dataclass(frozen=True)
class Comparison:
    """The table of a comparison: a sequence of rows, one for each entry and metric.

    `pandas.DataFrame(comparison)` and other libraries of data frames accept it; `to_pandas` has the
    entry and the metric as index.

    Attributes:
        metric: The metric by which the winner is chosen.
        lower_is_better: Whether lower values of this metric are better.
        n_episodes: Number of episodes of each run and policy.
        seed: Seed of the policies' random numbers, and of the episodes unless seeds are given for them.
        max_steps: Env steps after which an episode was truncated; 0 means no limit.
        deterministic: Whether policies took their most likely actions.
        entries: The entries.
        differences: Each entry compared with each baseline.
        winner: Name of the entry that is better than all others; None while no entry is.
        n_comparisons: Number of comparisons that the winner's intervals are corrected for.
        precision: Requested width of intervals, if any.
        is_precise: Whether they have reached it; None without precision.
        confidence: Confidence level of all intervals.
        episode_seeds: Given seeds of the episodes; None if they follow from `seed`.
    """

    metric: str
    lower_is_better: bool
    n_episodes: int
    seed: int
    max_steps: int
    deterministic: bool
    entries: list[EntrySummary]
    differences: list[Difference]
    winner: str | None
    n_comparisons: int
    precision: float | None = None
    is_precise: bool | None = None
    confidence: float = CONFIDENCE
    episode_seeds: list[int] | None = None

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics: `return`, and `kpi/<name>` for each KPI."""
        return list(self.entries[0].metrics)

    @property
    def baselines(self) -> list[str]:
        """Names of the baselines."""
        return [entry.name for entry in self.entries if entry.is_baseline]

    def entry(self, name: str) -> EntrySummary:
        """Return an entry by its name, else by what the user named, else by one of its runs.

        Raises:
            ConfigurationError: There is no such entry.
        """
        path = os.path.normpath(name)
        for entry in self.entries:
            if name == entry.name:
                return entry
        for entry in self.entries:
            if path in map(os.path.normpath, entry.given):
                return entry
        for entry in self.entries:
            if path in map(os.path.normpath, entry.sources):
                return entry
        known = ", ".join(entry.name for entry in self.entries)
        raise ConfigurationError(f"there is no entry {name!r}: use one of {known}")

    def difference(self, entry: str, baseline: str, metric: str | None = None) -> Difference:
        """Return the comparison of an entry with a baseline.

        Args:
            entry: Name of the entry.
            baseline: Name of the baseline.
            metric: The metric; None means the one that the winner is chosen by.

        Raises:
            ConfigurationError: They were not compared.
        """
        wanted = (self.entry(entry).name, self.entry(baseline).name, metric or self.metric)
        for found in self.differences:
            if (found.entry, found.baseline, found.metric) == wanted:
                return found
        raise ConfigurationError(f"{entry} was not compared with {baseline} by {wanted[2]}: name it as a baseline")

    def is_better(self, entry: str, baseline: str) -> bool:
        """True if the interval of the difference lies on the better side of 0."""
        return self.is_on_better_side(self.difference(entry, baseline).interval)

    def is_on_better_side(self, interval: Interval | None) -> bool:
        """True if an interval of differences excludes 0 and lies on the better side of it."""
        if interval is None:
            return False
        return interval[1] < 0.0 if self.lower_is_better else interval[0] > 0.0

    # ----------------------------------------------------------------------------------------------------- tables

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table, one for each entry and metric: column -> value, None where there is none."""
        rows = []
        for metric in self.metrics:
            for entry in self.entries:
                rows.append(self._row(entry, metric))
        return rows

    def _row(self, entry: EntrySummary, metric: str) -> dict[str, Any]:
        summary = entry.metrics[metric]
        row: dict[str, Any] = {"entry": entry.name, "metric": metric, "runs": entry.n_runs}
        row["values"] = summary.n_values
        row.update(_columns("mean", summary.mean, summary.mean_interval))
        row.update(_columns("iqm", summary.iqm, summary.iqm_interval))
        for baseline in self.baselines:
            row.update(self._difference_columns(entry.name, baseline, metric))
        return row

    def _difference_columns(self, entry: str, baseline: str, metric: str) -> dict[str, Any]:
        """Return the columns of the comparison with a baseline, without values for the baseline itself."""
        wanted = (entry, baseline, metric)
        none = Difference(*wanted, math.nan, None, math.nan, None)
        found = [one for one in self.differences if (one.entry, one.baseline, one.metric) == wanted]
        one = found[0] if found else none
        probability = f"probability of improvement over {baseline}"
        return {
            f"values shared with {baseline}": one.n_shared if found else None,
            **_columns(f"difference to {baseline}", one.difference, one.interval),
            **_columns(probability, one.probability_of_improvement, one.probability_interval),
            f"episodes needed to tell from {baseline}": one.episodes_needed,
        }

    def __len__(self) -> int:
        return len(self.entries) * len(self.metrics)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the table as a data frame with the index `metric`, `entry`.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            remedy = "pip install 'maze-pl[pandas]'"
            raise ConfigurationError(f"to_pandas needs pandas: {remedy}") from error
        return pandas.DataFrame(self.rows).set_index(["metric", "entry"])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; NaN becomes None."""
        content = {"format": FORMAT, "version": VERSION, "created_by": f"maze_pl {__version__}", **asdict(self)}
        return {key: _plain(value) for key, value in content.items()}

    def _repr_html_(self) -> str:
        """Return the tables of the console as HTML, for notebooks."""
        from maze_pl.comparison.notebook import notebook_html  # which needs this class

        return notebook_html(self)


def _columns(name: str, value: float, interval: Interval | None) -> dict[str, float | None]:
    """Return the columns of an estimate and the ends of its interval."""
    low, high = interval or (None, None)
    return {name: None if math.isnan(value) else value, f"{name}, low": low, f"{name}, high": high}


def _plain(value: Any) -> Any:
    """Convert nested dataclass content to values that JSON has."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
