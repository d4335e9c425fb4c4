"""The tables of a comparison in a notebook, which are those of the console."""

from maze_pl.comparison import tables
from maze_pl.comparison.results import Comparison
from maze_pl.reports.html_parts import element, joined, table


def notebook_html(comparison: Comparison) -> str:
    """Return the tables and sentences as HTML.

    Args:
        comparison: The comparison.
    """
    parts = [element("p", tables.title_text(comparison))]
    parts.append(table(tables.MEAN_HEAD, tables.mean_rows(comparison), 2))
    for head, *rows in tables.difference_tables(comparison):
        parts.append(table(head, rows, 3))
    for sentence in (tables.precision_text(comparison), tables.winner_text(comparison)):
        if sentence:
            parts.append(element("p", sentence))
    return joined(parts).html
