"""Statistics as a table for the console, for training, rollouts and loops that somebody writes by hand alike."""

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

WIDTH = 100
_STEP_WIDTH = 5


def render(title: str, step: int, statistics: Mapping[str, Mapping[str, Any]]) -> str:
    """Statistics as a table `step|path|value`, at most 100 columns wide; names that are too long are shortened.

    Args:
        title: What they are of.
        step: Epoch that they are of.
        statistics: Stage, such as `train` or `eval` -> `<Topic>/<event>/<statistic>` -> value.
    """
    rows = []
    for stage, values in statistics.items():
        for key in sorted(values):
            topic, _, name = key.partition("/")
            event, _, rest = name.partition("/")
            is_count = rest in ("episode_count", "total_step_count", "total_episode_count")
            value = format_value(int(values[key]) if is_count else values[key])
            rows.append(([f"{stage} {topic}", event, rest], value))
    if not rows:
        return f"\n{title}"
    wide = max(len("value"), *(len(value) for _, value in rows))
    paths = _fit([names for names, _ in rows], WIDTH - _STEP_WIDTH - wide - 3)
    head = f"{'step':>{_STEP_WIDTH}}|{'path':{len(paths[0])}}| {'value':>{wide}}"
    ruler = f"{'=' * _STEP_WIDTH}|{'=' * len(paths[0])}|{'=' * (wide + 1)}"
    lines = (f"{step:>{_STEP_WIDTH}}|{path}| {value:>{wide}}" for path, (_, value) in zip(paths, rows, strict=True))
    return "\n".join(["", title, head, ruler, *lines])


def _fit(rows: list[list[str]], width: int) -> list[str]:
    """Rows of three names as aligned lines of at most a width; they stay different from each other."""
    columns = list(zip(*rows, strict=True))
    widths = [max(len(name) for name in column) for column in columns]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        widths[widths.index(max(widths))] -= 1
    short = [shortened(column, limit) for column, limit in zip(columns, widths, strict=True)]
    return ["  ".join(f"{short[i][name]:{widths[i]}}" for i, name in enumerate(row)) for row in rows]


def shortened(names: Iterable[str], width: int) -> dict[str, str]:
    """Each name in at most so many characters, with `..` for what is left out; different names stay different."""
    result = {name: name for name in names if len(name) <= width}
    for name in dict.fromkeys(name for name in names if len(name) > width):
        tails = [*range(width // 2, width - 3), *range(width // 2)]
        cuts = (f"{name[: width - 2 - tail]}..{name[len(name) - tail :]}" for tail in tails)
        numbered = (f"{name[: width - 2 - len(str(n))]}..{n}" for n in range(2, len(result) + 3))
        result[name] = next(cut for cut in chain(cuts, numbered) if cut not in result.values())
    return result


def format_value(value: Any) -> str:
    """A value for reading: integers in groups of three digits, small numbers with enough digits not to be zero."""
    if isinstance(value, bool | int):
        return f"{value:,}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number) or abs(number) >= 1e12 or 0 < abs(number) < 0.1:
        return f"{number:.3g}"
    return f"{number:,.0f}" if number.is_integer() and abs(number) >= 1000 else f"{number:,.3f}"
