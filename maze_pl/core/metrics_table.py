"""The format of `metrics.csv`: a table in CSV with a row for each env step count.

Loggers write it while a run trains, and reports read it at any time. A process that is killed, or a
power failure, may leave the last row incomplete.
"""

import csv
import io
from typing import Final

STEP_COLUMN: Final = "step"
"""Column with the env steps of a row."""
WALL_CLOCK_COLUMN: Final = "time_wall_clock"
"""Column with the seconds that the run has taken up to a row, over all its commands."""


def metrics_rows(content: bytes) -> tuple[list[str], list[list[str]]]:
    """Split the content of a file into the names of its columns, and rows of numbers as texts.

    Args:
        content: The whole file, with or without a byte order mark.

    Returns:
        The names, and for each row a number or an empty text for each name; no names if the file is
        empty. A last row without a line break is left out, as part of a number may be missing.

    Raises:
        ValueError: The file is damaged, or is another table; the message completes its path.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is damaged: {error}") from error
    complete = text[: text.rfind("\n") + 1]
    if text and not complete:
        raise ValueError("is damaged: its first line is incomplete")
    reader = csv.reader(io.StringIO(complete, newline=""), strict=True)
    try:
        names = next(reader, [])
        if complete and (STEP_COLUMN not in names or len(set(names)) < len(names)):
            fault = f"its first line must name different columns, one of them {STEP_COLUMN!r}"
            raise ValueError(f"has no metrics of maze_pl: {fault}")
        rows = []
        for cells in reader:
            if cells:  # not a blank line
                _require_numbers(names, cells, f"line {reader.line_num}")
                rows.append(cells)
    except csv.Error as error:
        raise ValueError(f"is damaged: {error}") from error
    return names, rows


def _require_numbers(names: list[str], cells: list[str], line: str) -> None:
    """Refuse a row that does not have a number, or nothing, for each column."""
    if len(cells) != len(names):
        raise ValueError(f"is damaged: {line} has {len(cells)} values for {len(names)} columns")
    for name, cell in zip(names, cells, strict=True):
        try:
            if cell:
                float(cell)
        except ValueError:
            raise ValueError(f"is damaged: {line} has {cell[:40]!r} for {name}, which is not a number") from None
