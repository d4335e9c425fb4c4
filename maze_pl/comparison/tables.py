"""The table of a comparison for the console, and its rows for files and pages."""

import csv
import io

from maze_pl.comparison.results import Comparison, Difference
from maze_pl.runs.intervals import CONFIDENCE
from maze_pl.runs.tables import aligned, interval_text, number_text

_PERCENT = f"{CONFIDENCE:.0%}"
MEAN_HEAD = ("metric", "entry", "runs", "mean", f"{_PERCENT} interval", "IQM", f"{_PERCENT} interval")


def mean_rows(comparison: Comparison) -> list[list[str]]:
    """Return the cells of the means and interquartile means, without the header."""
    rows = []
    for metric in comparison.metrics:
        for entry in comparison.entries:
            found = entry.metrics[metric]
            mean = [number_text(found.mean), interval_text(found.mean_interval)]
            iqm = [number_text(found.iqm), interval_text(found.iqm_interval)]
            rows.append([metric, entry.name, str(entry.n_runs), *mean, *iqm])
    return rows


def probability_name(comparison: Comparison, metric: str) -> str:
    """Return the name of a probability: of an improvement only if the better direction is known."""
    return "P(improvement)" if metric == comparison.metric else "P(higher)"


def difference_tables(comparison: Comparison) -> list[list[list[str]]]:
    """Return the differences by the chosen metric and those by the others, each with a header."""
    differences = shown_differences(comparison)
    chosen = [one for one in differences if one.metric == comparison.metric]
    others = [one for one in differences if one.metric != comparison.metric]
    found = []
    for part in (chosen, others):
        if part:
            interval = f"{_PERCENT} interval"
            head = ["metric", "entry", "baseline", "episodes", "difference", interval]
            head += [probability_name(comparison, part[0].metric), interval, "episodes needed"]
            found.append([head, *_difference_rows(part)])
    return found


def _difference_rows(differences: list[Difference]) -> list[list[str]]:
    """Return the cells of differences from baselines."""
    rows = []
    for one in differences:
        difference = [number_text(one.difference), interval_text(one.interval)]
        improvement = [number_text(one.probability_of_improvement), interval_text(one.probability_interval)]
        names = [one.metric, one.entry, one.baseline, f"{one.n_shared:,}"]
        rows.append([*names, *difference, *improvement, needed_text(one)])
    return rows


def shown_differences(comparison: Comparison) -> list[Difference]:
    """Return the differences from the baselines, those between two baselines in one direction only."""
    kept: list[Difference] = []
    seen: set[tuple[str, str, str]] = set()
    for one in comparison.differences:
        if (one.baseline, one.entry, one.metric) not in seen:
            kept.append(one)
            seen.add((one.entry, one.baseline, one.metric))
    return kept


def verdict_text(comparison: Comparison, difference: Difference) -> str:
    """Return the meaning of a difference in a few words; its direction, if the metric has no better direction."""
    if difference.interval is None:
        return "undecided: there is no interval"
    if difference.interval[0] <= 0.0 <= difference.interval[1]:
        if difference.needs_more_runs:
            return "undecided; only more runs can decide"
        if difference.episodes_needed is None:
            return "no difference" if difference.difference == 0.0 else "undecided"
        return f"undecided; about {difference.episodes_needed:,} episodes would decide"
    if difference.metric != comparison.metric:
        return "higher" if difference.difference > 0.0 else "lower"
    return "better" if comparison.is_on_better_side(difference.interval) else "worse"


def needed_text(difference: Difference) -> str:
    """Return the episodes or runs needed to tell two entries apart; empty if they are told apart."""
    if difference.needs_more_runs:
        return "more runs"
    return "" if difference.episodes_needed is None else f"{difference.episodes_needed:,}"


def winner_text(comparison: Comparison) -> str:
    """Return the sentence about the winner."""
    if len(comparison.entries) == 1:
        return "no winner: there is only one entry"
    direction = " (lower is better)" if comparison.lower_is_better else ""
    if comparison.winner is not None:
        return f"winner by {comparison.metric}{direction}: {comparison.winner}"
    reason = f"no entry is better than all others with intervals that exclude 0 at {_PERCENT}"
    return f"no winner by {comparison.metric}{direction}: {reason}"


def title_text(comparison: Comparison) -> str:
    """Return the line above the tables."""
    n_entries = len(comparison.entries)
    parts = ["1 entry" if n_entries == 1 else f"{n_entries} entries"]
    n_episodes = "1 episode" if comparison.n_episodes == 1 else f"{comparison.n_episodes:,} episodes"
    parts.append(f"{n_episodes} of each run")
    parts.append(f"seed {comparison.seed}")
    if comparison.episode_seeds is not None:
        parts.append(_seeds_text(comparison.episode_seeds))
    if comparison.max_steps:
        parts.append(f"at most {comparison.max_steps:,} env steps")
    if comparison.deterministic:
        parts.append("most likely actions")
    return " | ".join(("comparison", *parts))


def _seeds_text(seeds: list[int]) -> str:
    """Return the given seeds of episodes if they are consecutive, else their number."""
    if len(seeds) == 1:
        return f"episode seed {seeds[0]}"
    if seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"episode seeds {seeds[0]}-{seeds[-1]}"
    return f"{len(seeds):,} given episode seeds"


def precision_text(comparison: Comparison) -> str:
    """Return the sentence about the requested precision; empty without one."""
    if comparison.precision is None:
        return ""
    wanted = f"{comparison.metric} to a precision of {number_text(comparison.precision)}"
    n = f"{comparison.n_episodes:,} episodes"
    if comparison.is_precise:
        return f"{wanted}: reached after {n}"
    return f"{wanted}: not reached after {n}, the largest number; more runs or a larger --max_episodes may help"


def console_text(comparison: Comparison) -> str:
    """Return the tables and sentences for the console."""
    parts = [title_text(comparison), aligned([MEAN_HEAD, *mean_rows(comparison)], n_left=2)]
    parts += [aligned(table, n_left=3) for table in difference_tables(comparison)]
    sentences = [text for text in (precision_text(comparison), winner_text(comparison)) if text]
    return "\n\n".join([*parts, "\n".join(sentences)])


def csv_text(rows: list[dict[str, object]]) -> str:
    """Return rows as CSV; the first one has all columns."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
