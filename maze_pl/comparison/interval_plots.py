"""Plots of estimates with their intervals as HTML: rows with a common scale, at any width and without scripts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from maze_pl.reports.html_parts import Content, Markup, element, joined
from maze_pl.runs.intervals import CONFIDENCE, Interval
from maze_pl.runs.tables import interval_text, number_text

_MARGIN = 0.06
"""Share of the scale that is left free at both of its ends."""
_MOST_TICKS = 6

STYLE = """
:root { --mean: light-dark(#1d5fc2, #86b4ff); --iqm: light-dark(#b4500b, #f0a35a); }
a { color: var(--accent); } .winner { font-size: 17px; font-weight: 650; } .plot { margin: 0 0 12px; }
.plot > div { display: grid; grid-template-columns: minmax(90px, 22%) minmax(0, 1fr) minmax(200px, 30%); gap: 0 14px;
  align-items: center; border-top: 1px solid var(--line); }
.plot > div:first-child { border-top: 0; }
.plot p { margin: 0; } .name { font-weight: 600; } .values { padding: 7px 0; font-size: 14px; line-height: 1.35; }
.track { position: relative; min-height: 44px; align-self: stretch; } .track > * { position: absolute; }
.tick { top: 0; bottom: 0; border-left: 1px solid var(--line); } .zero { border-left: 2px solid var(--muted); }
.line { height: 2px; margin-top: -1px; min-width: 1px; } .dot { width: 10px; height: 10px; margin: -5px 0 0 -5px; }
.of-mean { top: 50%; background: var(--mean); } .of-iqm { top: 68%; background: var(--iqm); }
.several .of-mean { top: 34%; } .dot.of-mean { border-radius: 5px; } .axis { min-height: 22px; font-size: 12px; }
.axis span { transform: translateX(-50%); color: var(--muted); white-space: nowrap; }
.key { display: inline-block; width: 10px; height: 10px; margin-right: 5px; } .key.of-mean { border-radius: 5px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; color: var(--muted); font-size: 13px; margin: 0 0 6px; }
.better { color: light-dark(#166a4f, #5fd0a4); font-weight: 600; }
.worse { color: light-dark(#b02f1d, #f0836f); font-weight: 600; }
@media (max-width: 640px) { .plot > div { grid-template-columns: minmax(0, 1fr); padding: 6px 0; }
  .values { padding: 2px 0; } .track { min-height: 36px; margin: 0 6px; }
  .axis { min-height: 22px; } }
"""


@dataclass(frozen=True)
class Mark:
    """An estimate that a row shows.

    Attributes:
        kind: `mean` or `iqm`, which decides about colour and shape.
        value: The estimate; NaN if there is none.
        interval: Its confidence interval, if there is one.
    """

    kind: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Row:
    """A row of a plot.

    Attributes:
        name: Name on the left.
        marks: Estimates.
        values: Content on the right.
    """

    name: str
    marks: Sequence[Mark]
    values: Content


def interval_plot(rows: Sequence[Row], with_zero: bool = False) -> Markup:
    """Draw rows with a common scale.

    Args:
        rows: The rows.
        with_zero: Whether the scale contains 0, which is marked.

    Returns:
        Nothing if no row has a value.
    """
    ends = [0.0] if with_zero else []
    for row in rows:
        for mark in row.marks:
            ends += [mark.value, *(mark.interval or ())]
    known = [end for end in ends if math.isfinite(end)]
    if not known:
        return element("p", "no values", class_="muted")
    low, high = _range(min(known), max(known))
    marked = ticks(low, high)

    def place(value: float) -> str:
        return f"{100.0 * (value - low) / (high - low):.2f}%"

    lines: list[Content] = []
    for row in rows:
        parts: list[Content] = []
        for value in marked:
            kind = "tick zero" if with_zero and value == 0.0 else "tick"
            parts.append(element("i", "", class_=kind, style=f"left: {place(value)}"))
        for mark in row.marks:
            parts += _drawn(mark, place)
        label = "; ".join(_description(mark) for mark in row.marks)
        classes = "track several" if len(row.marks) > 1 else "track"
        track = element("div", joined(parts), class_=classes, role="img", aria_label=label)
        cells = [element("p", row.name, class_="name"), track, element("div", row.values, class_="values")]
        lines.append(element("div", joined(cells)))
    texts = [element("span", number_text(value), style=f"left: {place(value)}") for value in marked]
    axis = element("div", joined(texts), class_="track axis", aria_hidden="true")
    lines.append(element("div", joined([element("span", ""), axis, element("span", "")])))
    return element("div", joined(lines), class_="plot")


def legend() -> Markup:
    """Explain the marks of means and interquartile means."""
    keys: list[Content] = []
    for kind, text in (("mean", "mean"), ("iqm", "interquartile mean (IQM)")):
        key = element("i", "", class_=f"key of-{kind}")
        keys.append(element("span", joined([key, text])))
    keys.append(element("span", f"lines: {CONFIDENCE:.0%} confidence intervals"))
    return element("p", joined(keys), class_="legend")


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers in a range, at most 6: multiples of 1, 2 or 5 times a power of 10.

    Args:
        low: Lower end.
        high: Upper end, above it.

    Example:
        >>> ticks(-3.0, 17.0)
        [0.0, 5.0, 10.0, 15.0]
    """
    unit = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step = next(factor * unit for factor in (1.0, 2.0, 5.0, 10.0) if (high - low) / (factor * unit) <= _MOST_TICKS)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _range(low: float, high: float) -> tuple[float, float]:
    """Return a scale that holds a range with a margin."""
    margin = _MARGIN * (high - low) or max(1.0, 0.05 * abs(low))
    return low - margin, high + margin


def _drawn(mark: Mark, place: Callable[[float], str]) -> list[Content]:
    """Draw a value and its interval."""
    if not math.isfinite(mark.value):
        return []
    parts: list[Content] = []
    if mark.interval is not None:
        left, right = place(mark.interval[0]), place(mark.interval[1])
        style = f"left: {left}; right: calc(100% - {right})"
        parts.append(element("i", "", class_=f"line of-{mark.kind}", style=style))
    parts.append(element("i", "", class_=f"dot of-{mark.kind}", style=f"left: {place(mark.value)}"))
    return parts


def _description(mark: Mark) -> str:
    """Describe a mark for screen readers."""
    name = {"mean": "mean", "iqm": "IQM"}[mark.kind]
    interval = f", {CONFIDENCE:.0%} interval {interval_text(mark.interval)}" if mark.interval is not None else ""
    return f"{name} {number_text(mark.value)}{interval}"
