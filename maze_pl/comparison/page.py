"""The page of a comparison: one HTML file without scripts, which loads nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from maze_pl.comparison import tables
from maze_pl.comparison.interval_plots import STYLE, Mark, Row, interval_plot, legend
from maze_pl.comparison.results import Comparison, Difference, EntrySummary
from maze_pl.core.version import __version__
from maze_pl.reports.html_parts import Content, Markup, code, document, element, folded, joined, section, table
from maze_pl.runs.intervals import CONFIDENCE
from maze_pl.runs.tables import interval_text, number_text

_PERCENT = f"{CONFIDENCE:.0%}"


@dataclass(frozen=True)
class Link:
    """A link to a page of episodes in the viewer.

    Attributes:
        title: What the page shows.
        file: File relative to the page of the comparison.
        episodes: Names of the episodes in it that are linked one by one; none links all together.
    """

    title: str
    file: str
    episodes: tuple[str, ...] = ()


def page_text(comparison: Comparison, command: str | None, links: Sequence[Link] = ()) -> str:
    """Return the page.

    Args:
        comparison: The table.
        command: The command line, if any.
        links: Links to episodes.
    """
    names = [entry.name for entry in comparison.entries]
    title = f"Comparison of {names[0]}" if len(names) == 1 else f"Comparison of {len(names)} entries"
    head = element("header", joined([element("h1", title), element("p", tables.title_text(comparison))]))
    parts = [head, _answer(comparison)]
    rest = [name for name in comparison.metrics if name != comparison.metric]
    parts += [_metric(comparison, name) for name in (comparison.metric, *rest)]
    if links:
        parts.append(section("Episodes", element("ul", joined([_item(link) for link in links]))))
    parts += [_numbers(comparison), _reading(comparison)]
    if command is not None:
        parts.append(section("Command", code(command)))
    foot = element("footer", element("p", f"maze_pl {__version__}", class_="muted"))
    body = joined([element("main", joined(parts)), foot])
    return document("Comparison", body, style=STYLE, with_scripts=False)


def _answer(comparison: Comparison) -> Markup:
    """Return the sentences about the winner and the precision."""
    parts = [element("p", tables.winner_text(comparison), class_="winner")]
    sentence = tables.precision_text(comparison)
    if sentence:
        parts.append(element("p", sentence))
    return element("section", joined(parts))


def _metric(comparison: Comparison, metric: str) -> Markup:
    """Return the plots of one metric: the entries, and their differences from each baseline."""
    is_chosen = metric == comparison.metric
    title = f"{metric} (lower is better)" if is_chosen and comparison.lower_is_better else metric
    parts: list[Content] = [legend()]
    parts.append(interval_plot([_entry_row(entry, metric) for entry in comparison.entries]))
    for baseline in comparison.baselines:
        rows = []
        for one in tables.shown_differences(comparison):
            if one.metric == metric and one.baseline == baseline:
                rows.append(_difference_row(comparison, one))
        if rows:
            parts.append(element("h3", f"Difference from {baseline} on the same episodes"))
            parts.append(interval_plot(rows, with_zero=True))
    return section(title, *parts)


def _entry_row(entry: EntrySummary, metric: str) -> Row:
    """Return the row of an entry."""
    found = entry.metrics[metric]
    marks = [Mark("mean", found.mean, found.mean_interval), Mark("iqm", found.iqm, found.iqm_interval)]
    lines = [element("p", _value_text("mean", found.mean, interval_text(found.mean_interval)))]
    lines.append(element("p", _value_text("IQM", found.iqm, interval_text(found.iqm_interval))))
    name = f"{entry.name} ({entry.n_runs} runs)" if entry.n_runs > 1 else entry.name
    return Row(name, marks, joined(lines))


def _difference_row(comparison: Comparison, one: Difference) -> Row:
    """Return the row of a difference."""
    verdict = tables.verdict_text(comparison, one)
    kind = verdict if verdict in ("better", "worse") else "muted"
    name = tables.probability_name(comparison, one.metric)
    probability = f"{name} {number_text(one.probability_of_improvement)}"
    interval = interval_text(one.probability_interval)
    lines = [
        element("p", verdict, class_=kind),
        element("p", _value_text("", one.difference, interval_text(one.interval))),
        element("p", f"{probability} ({interval})" if interval else probability, class_="muted"),
    ]
    if one.n_shared < comparison.n_episodes:
        shared = f"{one.n_shared:,} of {comparison.n_episodes:,} episodes have the metric with both"
        lines.append(element("p", shared, class_="muted"))
    return Row(one.entry, [Mark("mean", one.difference, one.interval)], joined(lines))


def _value_text(name: str, value: float, interval: str) -> str:
    """Return a number with its name and interval."""
    text = f"{name} {number_text(value) or 'unknown'}".lstrip()
    return f"{text} ({interval})" if interval else text


def _item(link: Link) -> Markup:
    """Return a link to a page, or links to its episodes."""
    if not link.episodes:
        return element("li", element("a", link.title, href=link.file))
    parts: list[Content] = [f"{link.title}: "]
    for number, name in enumerate(link.episodes):
        separator = " · " if number else ""
        parts.append(joined([separator, element("a", name, href=f"{link.file}#episode={number}")]))
    return element("li", joined(parts))


def _numbers(comparison: Comparison) -> Markup:
    """Return the tables of all numbers."""
    parts = [
        element("h3", "Means and interquartile means"),
        table(tables.MEAN_HEAD, tables.mean_rows(comparison), 2),
    ]
    if comparison.differences:
        parts.append(element("h3", "Differences on the same episodes"))
        for head, *rows in tables.difference_tables(comparison):
            parts.append(table(head, rows, 3))
    return section("Numbers", folded("all tables", joined(parts)))


def _reading(comparison: Comparison) -> Markup:
    """Return the explanation of the page."""
    n = comparison.n_comparisons
    corrected = f", corrected for {n} comparisons (Bonferroni)" if n > 1 else ""
    text = f"""Intervals are {_PERCENT} confidence intervals.
    IQM is the mean without the lowest and the highest quarter.
    A difference is that of the means on the same episodes, in which both have the metric;
    if its interval contains 0, it may be due to chance.
    P(improvement) is the probability of a better result in an episode; 0.5 means no difference.
    Better means higher, or lower if this was requested for the metric of the winner.
    P(higher) is the probability of a higher value of another metric, which may be better or worse.
    A winner has intervals of its differences from all others that exclude 0{corrected}."""
    return section("Reading", element("p", " ".join(text.split())))
