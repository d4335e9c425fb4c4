"""Analysis of the results of episodes, which gives the table of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from maze_pl.comparison.effects import (
    Effects,
    Values,
    difference_effects,
    improvement_effects,
    iqm_effects,
    mean_effects,
)
from maze_pl.comparison.entries import Entry
from maze_pl.comparison.results import Comparison, Difference, EntrySummary, MetricSummary
from maze_pl.comparison.sequential import confidence_sequence, episodes_needed
from maze_pl.comparison.two_level import two_level_intervals
from maze_pl.runs.intervals import CONFIDENCE, Interval


@dataclass(frozen=True)
class Question:
    """The question that a comparison answers.

    Attributes:
        metric: The metric by which the winner is chosen.
        lower_is_better: Whether lower values of this metric are better.
        n_planned: Number of episodes to begin with.
        precision: Width of intervals down to which episodes are added; None adds none.
    """

    metric: str = "return"
    lower_is_better: bool = False
    n_planned: int = 100
    precision: float | None = None

    def intervals(self, estimates: Sequence[Effects], confidence: float = CONFIDENCE) -> list[Interval | None]:
        """Return the interval of each estimate.

        If episodes are added until intervals are narrow, each interval also covers that of the
        confidence sequence, which stays valid however their number was chosen.

        Args:
            estimates: Estimates from the same number of episodes.
            confidence: Confidence level.
        """
        intervals = two_level_intervals(estimates, confidence)
        if self.precision is None:
            return intervals
        joined: list[Interval | None] = []
        for effects, interval in zip(estimates, intervals, strict=True):
            sequence = confidence_sequence(effects, self.n_planned, confidence)
            if interval is None or sequence is None:
                joined.append(None)
            else:
                joined.append((min(interval[0], sequence[0]), max(interval[1], sequence[1])))
        return joined


def is_precise(entries: Sequence[Entry], values: Sequence[Values], question: Question) -> bool:
    """True if intervals are narrower than the requested precision.

    These are the intervals of the mean of each entry, and of its differences from the baselines.

    Args:
        entries: The entries.
        values: [R, E] values of the metric for each entry.
        question: The metric and the precision.
    """
    assert question.precision is not None
    estimates = [mean_effects(table) for table in values]
    for place, other in _pairs(entries):
        estimates.append(difference_effects(values[place], values[other]))
    for interval in question.intervals(estimates):
        if interval is None or not interval[1] - interval[0] < question.precision:
            return False
    return True


def analyze(
    entries: Sequence[Entry], values: Mapping[str, Sequence[Values]], question: Question
) -> tuple[list[EntrySummary], list[Difference], str | None]:
    """Return the summaries of all entries, their differences from the baselines, and the winner.

    Args:
        entries: The entries.
        values: Metric -> [R, E] values for each entry.
        question: The metric by which the winner is chosen, and its better direction.
    """
    summaries = _summaries(entries, values, question)
    differences = _differences(entries, values, question)
    return summaries, differences, _winner(entries, values[question.metric], question)


def _pairs(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Return the places of each entry and of each baseline that it is compared with."""
    pairs = []
    for place in range(len(entries)):
        for other, baseline in enumerate(entries):
            if baseline.is_baseline and other != place:
                pairs.append((place, other))
    return pairs


def _summaries(
    entries: Sequence[Entry], values: Mapping[str, Sequence[Values]], question: Question
) -> list[EntrySummary]:
    """Return the means and interquartile means of all entries."""
    tables = [(metric, place) for metric in values for place in range(len(entries))]
    estimates = []
    for metric, place in tables:
        results = values[metric][place]
        estimates.append((mean_effects(results), iqm_effects(results)))
    intervals = _intervals_of_pairs(estimates, question)
    metrics: list[dict[str, MetricSummary]] = [{} for _ in entries]
    for number, (metric, place) in enumerate(tables):
        mean, iqm = estimates[number]
        mean_interval, iqm_interval = intervals[number]
        metrics[place][metric] = MetricSummary(
            n_values=mean.n_values,
            mean=mean.estimate,
            mean_interval=mean_interval,
            iqm=iqm.estimate,
            iqm_interval=iqm_interval,
        )
    summaries = []
    for entry, summary in zip(entries, metrics, strict=True):
        summaries.append(
            EntrySummary(
                name=entry.name,
                sources=entry.sources,
                given=entry.given,
                n_runs=len(entry.players),
                is_baseline=entry.is_baseline,
                metrics=summary,
                checkpoints=[player.checkpoint for player in entry.players if player.checkpoint is not None],
            )
        )
    return summaries


def _differences(
    entries: Sequence[Entry], values: Mapping[str, Sequence[Values]], question: Question
) -> list[Difference]:
    """Return the comparisons of all entries with all baselines, by all metrics."""
    compared = [(metric, place, other) for metric in values for place, other in _pairs(entries)]
    estimates = []
    for metric, place, other in compared:
        is_lower_better = question.lower_is_better and metric == question.metric
        sign = -1.0 if is_lower_better else 1.0
        ours, theirs = values[metric][place], values[metric][other]
        estimates.append((difference_effects(ours, theirs), improvement_effects(sign * ours, sign * theirs)))
    intervals = _intervals_of_pairs(estimates, question)
    differences = []
    for number, (metric, place, other) in enumerate(compared):
        difference, improvement = estimates[number]
        interval, improvement_interval = intervals[number]
        holds_0 = interval is not None and interval[0] <= 0.0 <= interval[1]
        needed = episodes_needed(difference) if holds_0 else None
        if needed is not None:
            needed = max(needed, difference.n_episodes + 1)  # as these do not suffice
        differences.append(
            Difference(
                entry=entries[place].name,
                baseline=entries[other].name,
                metric=metric,
                difference=difference.estimate,
                interval=interval,
                probability_of_improvement=improvement.estimate,
                probability_interval=_within(improvement_interval, 0.0, 1.0),
                episodes_needed=needed,
                needs_more_runs=holds_0 and needed is None and difference.estimate != 0.0,
                n_shared=difference.n_values,
            )
        )
    return differences


def _intervals_of_pairs(
    estimates: Sequence[tuple[Effects, Effects]], question: Question
) -> list[tuple[Interval | None, Interval | None]]:
    """Return the intervals of pairs of estimates, all from the same resamples."""
    both: list[Effects] = []
    for pair in estimates:
        both += pair
    intervals = question.intervals(both)
    return list(zip(intervals[::2], intervals[1::2], strict=True))


def _within(interval: Interval | None, low: float, high: float) -> Interval | None:
    """Cut an interval off at the bounds of its quantity."""
    if interval is None:
        return None
    return max(low, min(high, interval[0])), max(low, min(high, interval[1]))


def _winner(entries: Sequence[Entry], values: Sequence[Values], question: Question) -> str | None:
    """Return the name of the entry that is better than all others; None while there is none.

    The intervals of its differences from the K - 1 others must exclude 0 at a confidence level of 1
    - alpha / (K - 1). A wrong winner would have to be better than the best entry by such an
    interval, and there are K - 1 entries that could: by Bonferroni's inequality the probability of
    that is at most alpha / 2, as the interval has to miss on one side. Differences are those of the
    same episodes, also where KPIs are missing in others, so that means do not tell the best entry.
    """
    n_others = len(entries) - 1
    if n_others == 0:
        return None
    sign = -1.0 if question.lower_is_better else 1.0
    best = 0  # in the end the only entry that may be better than all others
    for place in range(1, len(entries)):
        if sign * difference_effects(values[place], values[best]).estimate > 0.0:
            best = place
    pairs = [_shown_order(entries, best, place) for place in range(len(entries)) if place != best]
    estimates = [difference_effects(values[place], values[other]) for place, other in pairs]
    intervals = question.intervals(estimates, 1.0 - (1.0 - CONFIDENCE) / n_others)
    for (place, _), interval in zip(pairs, intervals, strict=True):
        sign_of_best = sign if place == best else -sign
        if interval is None or not min(sign_of_best * end for end in interval) > 0.0:
            return None
    return entries[best].name


def _shown_order(entries: Sequence[Entry], place: int, other: int) -> tuple[int, int]:
    """Return two places in the order of the difference that the table shows.

    The other order has other random numbers for the effects of runs, and so a slightly different interval.
    """
    is_baseline, is_other_baseline = entries[place].is_baseline, entries[other].is_baseline
    is_swapped = other < place if is_baseline == is_other_baseline else is_baseline
    return (other, place) if is_swapped else (place, other)


def make_comparison(
    entries: Sequence[Entry],
    values: Mapping[str, Sequence[Values]],
    question: Question,
    *,
    seed: int,
    max_steps: int,
    deterministic: bool,
    episode_seeds: list[int] | None = None,
) -> Comparison:
    """Return the table of a comparison.

    Args:
        entries: The entries.
        values: Metric -> [R, E] values for each entry.
        question: The metric by which the winner is chosen, and its better direction.
        seed: Seed of the policies' random numbers, and of the episodes unless seeds are given for them.
        max_steps: Env steps after which an episode was truncated; 0 means no limit.
        deterministic: Whether policies took their most likely actions.
        episode_seeds: Given seeds of the episodes, if any.
    """
    summaries, differences, winner = analyze(entries, values, question)
    reached = None if question.precision is None else is_precise(entries, values[question.metric], question)
    return Comparison(
        metric=question.metric,
        lower_is_better=question.lower_is_better,
        n_episodes=values[question.metric][0].shape[1],
        seed=seed,
        max_steps=max_steps,
        deterministic=deterministic,
        entries=summaries,
        differences=differences,
        winner=winner,
        n_comparisons=len(entries) - 1,
        precision=question.precision,
        is_precise=reached,
        episode_seeds=episode_seeds,
    )
