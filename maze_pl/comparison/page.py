"""The page of a comparison: one HTML file without scripts, which loads nothing."""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from maze_pl import __version__
from maze_pl.comparison import tables
from maze_pl.comparison.results import Comparison
from maze_pl.runs.intervals import CONFIDENCE, Interval
from maze_pl.runs.tables import number_text

_STYLE = """
:root { color-scheme: light dark; --line: #c8ccd2; --mean: #1f5fa8; --iqm: #b4540a; }
@media (prefers-color-scheme: dark) { :root { --line: #4a4f57; --mean: #7db4f5; --iqm: #f0a35e; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { border-bottom: 1px solid var(--line); padding: 0.3rem 0.7rem; text-align: right; white-space: nowrap; }
th.text, td.text { text-align: left; }
.winner { font-size: 1.1rem; font-weight: 600; }
svg { width: 100%; max-width: 44rem; height: auto; } svg text { fill: currentColor; font-size: 12px; }
.mean { stroke: var(--mean); fill: var(--mean); } .iqm { stroke: var(--iqm); fill: var(--iqm); }
.axis { stroke: var(--line); } code { overflow-wrap: anywhere; } a { color: var(--mean); }
"""
_LEFT, _WIDTH, _RIGHT = 190, 440, 70
_ROW = 34


@dataclass(frozen=True)
class Link:
    """A link to episodes in the viewer.

    Attributes:
        title: Text of the link.
        file: File relative to the page.
    """

    title: str
    file: str


def page_text(comparison: Comparison, command: str | None, links: Sequence[Link] = ()) -> str:
    """Return the page.

    Args:
        comparison: The table.
        command: The command line, if any.
        links: Links to episodes.
    """
    winner = f'<p class="winner">{_escaped(tables.winner_text(comparison))}</p>'
    sentence = tables.precision_text(comparison)
    parts = [
        f"<h1>{_escaped(' against '.join(entry.name for entry in comparison.entries[:3]))}</h1>",
        f"<p>{_escaped(tables.title_text(comparison))}</p>",
        winner,
        f"<p>{_escaped(sentence)}</p>" if sentence else "",
        f"<h2>{_escaped(comparison.metric)}</h2>",
        _plot(comparison, comparison.metric),
        "<h2>Means and interquartile means</h2>",
        _table(tables.MEAN_HEAD, tables.mean_rows(comparison), 2),
    ]
    if comparison.differences:
        parts.append("<h2>Differences on the same episodes</h2>")
        parts.append(_table(tables.DIFFERENCE_HEAD, tables.difference_rows(comparison), 3))
    if links:
        items = [f'<li><a href="{_escaped(link.file)}">{_escaped(link.title)}</a></li>' for link in links]
        parts.append(f"<h2>Episodes</h2>\n<ul>{''.join(items)}</ul>")
    rest = [name for name in comparison.metrics if name != comparison.metric]
    for metric in rest:
        parts.append(f"<h2>{_escaped(metric)}</h2>\n{_plot(comparison, metric)}")
    parts.append(_reading(comparison))
    if command is not None:
        parts.append(f"<p><code>{_escaped(command)}</code></p>")
    return _document("\n".join(parts))


def _document(body: str) -> str:
    """Return an HTML document that loads and runs nothing."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>Comparison</title><style>{_STYLE}</style>",
    ]
    foot = f"<footer><p>maze_pl {_escaped(__version__)}</p></footer>"
    page = f'<html lang="en"><head>{"".join(head)}</head>\n<body><main>{body}</main>{foot}</body></html>'
    return f"<!doctype html>\n{page}\n"


def _reading(comparison: Comparison) -> str:
    """Return the explanation of the tables."""
    percent = f"{CONFIDENCE:.0%}"
    n = comparison.n_comparisons
    corrected = f", corrected for {n} comparisons (Bonferroni)" if n > 1 else ""
    text = f"""Plots show means as circles and interquartile means as squares. Intervals are {percent} confidence
    intervals. IQM is the mean without the lowest and the highest quarter.
    A difference is that of the means on the same episodes; if its interval contains 0, it may be due to chance.
    P(improvement) is the probability of a better result in an episode; 0.5 means no difference.
    Better means higher, or lower for the metric of the winner if this was requested.
    A winner has intervals of its differences from all others that exclude 0{corrected}."""
    return f"<h2>Reading</h2>\n<p>{_escaped(' '.join(text.split()))}</p>"


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], n_text: int) -> str:
    """Return a table whose first columns are text."""
    lines = [_row("th", head, n_text), *(_row("td", row, n_text) for row in rows)]
    return f'<div class="wide" tabindex="0"><table>{"".join(lines)}</table></div>'


def _row(tag: str, cells: Sequence[str], n_text: int) -> str:
    parts = []
    for place, cell in enumerate(cells):
        kind = ' class="text"' if place < n_text else ""
        scope = ' scope="col"' if tag == "th" else ""
        parts.append(f"<{tag}{kind}{scope}>{_escaped(cell)}</{tag}>")
    return f"<tr>{''.join(parts)}</tr>"


def _plot(comparison: Comparison, metric: str) -> str:
    """Draw the means and interquartile means of a metric, with intervals, as SVG."""
    summaries = [entry.metrics[metric] for entry in comparison.entries]
    ends: list[float] = []
    for summary in summaries:
        for value, interval in ((summary.mean, summary.mean_interval), (summary.iqm, summary.iqm_interval)):
            ends += [value, *(interval or ())]
    known = [end for end in ends if not math.isnan(end)]
    if not known:
        return "<p>no values</p>"
    low, high = min(known), max(known)
    margin = 0.05 * (high - low) or max(1.0, abs(low) * 0.05)
    low, high = low - margin, high + margin
    height = _ROW * len(summaries) + 30

    def place_of(value: float) -> float:
        return _LEFT + _WIDTH * (value - low) / (high - low)

    marks = []
    for place, (entry, summary) in enumerate(zip(comparison.entries, summaries, strict=True)):
        middle = _ROW * place + _ROW / 2
        marks.append(
            f'<text x="{_LEFT - 8}" y="{middle + 4:.0f}" text-anchor="end">{_escaped(entry.name[-28:])}</text>'
        )
        estimates = (
            ("mean", -6.0, summary.mean, summary.mean_interval),
            ("iqm", 6.0, summary.iqm, summary.iqm_interval),
        )
        for kind, shift, value, interval in estimates:
            if not math.isnan(value):
                ends_of = None if interval is None else (place_of(interval[0]), place_of(interval[1]))
                marks.append(_mark(kind, middle + shift, place_of(value), ends_of))
    axis = _ROW * len(summaries) + 4
    marks.append(f'<line class="axis" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{axis}" y2="{axis}"/>')
    for value in (low + margin, high - margin):
        text = number_text(value)
        marks.append(f'<text x="{place_of(value):.1f}" y="{axis + 16}" text-anchor="middle">{text}</text>')
    label = _escaped(f"means (blue circles) and interquartile means (orange squares) of {metric}, numbers in the table")
    box = f"0 0 {_LEFT + _WIDTH + _RIGHT} {height}"
    return f'<svg viewBox="{box}" role="img" aria-label="{label}">{"".join(marks)}</svg>'


def _mark(kind: str, height: float, place: float, interval: Interval | None) -> str:
    """Draw a value and its interval."""
    line = ""
    if interval is not None:
        ends = f'x1="{interval[0]:.1f}" x2="{interval[1]:.1f}" y1="{height:.1f}" y2="{height:.1f}"'
        line = f'<line class="{kind}" {ends} stroke-width="2"/>'
    if kind == "mean":
        return f'{line}<circle class="{kind}" cx="{place:.1f}" cy="{height:.1f}" r="4"/>'
    return f'{line}<rect class="{kind}" x="{place - 4:.1f}" y="{height - 4:.1f}" width="8" height="8"/>'
