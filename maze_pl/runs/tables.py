"""Tables for the console: numbers, intervals and aligned columns."""

import math
from collections.abc import Iterable, Sequence

from maze_pl.runs.intervals import Interval

_LARGEST_IN_FULL = 1e7


def number_text(value: float) -> str:
    """Format a number with four significant digits, but all digits before the point; NaN is empty.

    Numbers from ten million on are in e-notation unless they are whole.
    """
    if math.isnan(value):
        return ""
    is_short = abs(value) < _LARGEST_IN_FULL or float(value).is_integer()
    return f"{value:,.0f}" if abs(value) >= 1000 and is_short else f"{value:,.4g}"


def interval_text(interval: Interval | None) -> str:
    """Format an interval; empty without one."""
    return "" if interval is None else f"{number_text(interval[0])} to {number_text(interval[1])}"


def merged_names(orders: Iterable[Iterable[str]]) -> list[str]:
    """Return all names of several lists, in an order that agrees with each of them if there is one.

    A name that is new is placed after the one that precedes it in its list.

    Args:
        orders: The lists.
    """
    merged: list[str] = []
    for order in orders:
        place = 0
        for name in order:
            if name in merged:
                place = max(place, merged.index(name) + 1)
            else:
                merged.insert(place, name)
                place += 1
    return merged


def aligned(rows: Sequence[Sequence[str]], n_left: int = 1) -> str:
    """Align rows of cells, the first columns to the left and the others to the right.

    Args:
        rows: Cells of each row.
        n_left: Number of columns that are aligned to the left.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(cell.ljust(width) if place < n_left else cell.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
