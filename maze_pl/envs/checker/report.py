"""Findings of the doctor, and their table."""

import textwrap
from dataclasses import dataclass
from typing import NamedTuple

OK = "ok"
WARNING = "warning"
ERROR = "error"
SKIPPED = "skipped"
_MOST_COLUMNS = 100

Finding = tuple[str, str]
"""Verdict and explanation."""


class CheckLine(NamedTuple):
    """One result of a check.

    Attributes:
        name: Name of the check.
        verdict: `ok`, `warning`, `error`, or `skipped` if there is nothing to check.
        explanation: The finding and its remedy.
    """

    name: str
    verdict: str
    explanation: str


@dataclass(frozen=True, repr=False)
class CheckReport:
    """Findings of the doctor; as text and in notebooks, a table of at most 100 columns.

    Attributes:
        title: Name of the environment, with the number of acts and episodes.
        lines: One or more for each check.
    """

    title: str
    lines: tuple[CheckLine, ...]

    @property
    def ok(self) -> bool:
        """True if there are no errors; there may be warnings."""
        return all(line.verdict != ERROR for line in self.lines)

    def __repr__(self) -> str:
        return str(self)  # so that notebooks show the table

    def __str__(self) -> str:
        rows = [("check", "verdict", "explanation"), *self.lines]
        name_width = max(len(name) for name, _, _ in rows)
        verdict_width = max(len(verdict) for _, verdict, _ in rows)
        text = [self.title]
        for name, verdict, explanation in rows:
            parts = textwrap.wrap(explanation, _MOST_COLUMNS - name_width - verdict_width - 6)
            for number, part in enumerate(parts or [""]):
                head = f"{name:{name_width}} | {verdict:{verdict_width}}"
                if number > 0:
                    head = f"{'':{name_width}} | {'':{verdict_width}}"
                text.append(f"{head} | {part}".rstrip())
        n_errors = sum(line.verdict == ERROR for line in self.lines)
        n_warnings = sum(line.verdict == WARNING for line in self.lines)
        return "\n".join([*text, f"errors: {n_errors}, warnings: {n_warnings}"])
