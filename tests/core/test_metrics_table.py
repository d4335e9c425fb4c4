"""The table of logged statistics as text: whole, cut off, and damaged."""

from __future__ import annotations

import csv
import io

import pytest

from maze_pl.core.metrics_table import metrics_rows

NAMES = ["step", "a", 'two\nlines, "quoted"', "\u00e4\u2028b"]
ROWS = [["10", "1.5", "", "-inf"], ["20", "", "1e-300", "nan"], ["", "17325.0", "3", ""]]


def content_of(lines: list[list[str]], mark: str = "") -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    return f"{mark}{text.getvalue()}".encode()


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_names_and_numbers_are_read_as_they_were_written(mark: str) -> None:
    assert metrics_rows(content_of([NAMES, *ROWS], mark)) == (NAMES, ROWS)
    assert metrics_rows(content_of([NAMES], mark)) == (NAMES, [])
    assert metrics_rows(mark.encode()) == ([], [])


@pytest.mark.parametrize("tail", [b"", b"\0", bytes(5000)])
def test_wherever_a_table_ends_its_rows_are_whole(tail: bytes) -> None:
    content = content_of([NAMES, *ROWS])
    n_header = len(content_of([NAMES]))
    counts = set()
    for n_bytes in range(n_header, len(content) + 1):
        names, rows = metrics_rows(content[:n_bytes] + tail)
        assert names == NAMES and rows == ROWS[: len(rows)]
        counts.add(len(rows))
    assert counts == {0, 1, 2, 3}
    for n_bytes in range(1, n_header):
        with pytest.raises(ValueError, match=r"^(is damaged|has no metrics of maze_pl): "):
            metrics_rows(content[:n_bytes])
