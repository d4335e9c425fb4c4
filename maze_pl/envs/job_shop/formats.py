"""Readers of the text formats in which instances are published."""

from __future__ import annotations

import math
from pathlib import Path

from maze_pl.envs.job_shop.instance import JobShopInstance

_Row = tuple[int, list[int]]
"""Line number and the numbers of this line."""

_MOST_NUMBERS = 2_000_000
"""Largest number of numbers in a file, so that a wrong file is refused before it fills the memory."""

_LARGEST = 10**12


def read_instance(path: str | Path) -> JobShopInstance:
    """Read an instance from a file; the name is that of the file.

    Files that end in `.fjs` have the flexible format, others the standard one or Taillard's, which
    differ in the number of lines.

    Args:
        path: The file.

    Raises:
        ValueError: There is no such file, it is not text, or it is malformed.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a readable text file ({error}); name a file with an instance") from error
    if path.suffix.lower() == ".fjs":
        return parse_flexible(text, path.stem)
    return parse_job_shop(text, path.stem)


def parse_job_shop(text: str, name: str) -> JobShopInstance:
    """Parse a job shop in the standard or in Taillard's format.

    Both begin with the numbers of jobs and machines. In the standard format, a line per job
    follows, with pairs of a machine, numbered from 0, and a duration. In Taillard's format, a
    matrix of durations and one of machines, numbered from 1, follow, with a line per job each.
    Lines without numbers, such as headings, and lines that begin with `#` are skipped, and so is
    what follows the sizes in their line. Numbers are whole.

    Args:
        text: Content of the file.
        name: Name of the instance.

    Raises:
        ValueError: The text is malformed.

    Example:
        >>> parse_job_shop("2 2 \\n 0 3  1 2 \\n 1 4  0 1", "pair").durations[:, :, 0].tolist()
        [[3, 2], [4, 1]]
        >>> parse_job_shop("2 2 \\n 3 2 \\n 4 1 \\n 1 2 \\n 2 1", "pair").durations[:, :, 0].tolist()
        [[3, 2], [4, 1]]
    """
    rows = _rows(text, name)
    n_jobs, n_machines = _sizes(rows, name)
    body = rows[1:]
    if len(body) == n_jobs:
        jobs = [_pairs(row, name) for row in body]
    elif len(body) == 2 * n_jobs:
        matrices = zip(body[:n_jobs], body[n_jobs:], strict=True)
        jobs = [_matched(durations, machines, n_machines, name) for durations, machines in matrices]
    else:
        expected = f"{n_jobs} (standard format) or {2 * n_jobs} (Taillard's)"
        raise ValueError(f"{name}: {len(body)} lines with numbers follow the sizes; expected {expected}")
    return JobShopInstance.of(name, n_machines, jobs)


def parse_flexible(text: str, name: str) -> JobShopInstance:
    """Parse a flexible job shop in the format of Brandimarte's and Hurink's instances (`.fjs`).

    The first line has the numbers of jobs and machines, and often the mean number of alternatives,
    which is skipped. Each job has a line with its number of operations and, for each operation, the
    number of alternatives and pairs of a machine, numbered from 1, and a duration. Numbers are
    whole, except the one that is skipped.

    Args:
        text: Content of the file.
        name: Name of the instance.

    Raises:
        ValueError: The text is malformed.

    Example:
        >>> parse_flexible("1 2 1.5 \\n 2  2 1 5 2 3  1 2 4", "one").alternatives(0, 0)
        [(0, 5), (1, 3)]
    """
    rows = _rows(text, name)
    n_jobs, n_machines = _sizes(rows, name)
    body = rows[1:]
    if len(body) != n_jobs:
        raise ValueError(f"{name}: {len(body)} lines with numbers follow the sizes; expected one per job, {n_jobs}")
    return JobShopInstance.of(name, n_machines, [_alternatives(row, name) for row in body])


def _rows(text: str, name: str) -> list[_Row]:
    """Numbers of all lines that hold numbers; headings and comments are skipped."""
    rows: list[_Row] = []
    n_numbers = 0
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].split()
        if not words or not any(character.isdigit() for character in "".join(words)):
            continue
        where = f"{name}, line {number}"
        if not rows:  # what follows the sizes is skipped, such as a mean number of alternatives
            for word in words[2:]:
                _number(word, where)
            words = words[:2]
        values = [_whole(word, where) for word in words]
        n_numbers += len(values)
        if n_numbers > _MOST_NUMBERS:
            raise ValueError(f"{name} has more than {_MOST_NUMBERS} numbers; that is not an instance of a job shop")
        rows.append((number, values))
    if not rows:
        raise ValueError(f"{name} contains no numbers; expected the numbers of jobs and machines, then the jobs")
    return rows


def _number(word: str, where: str) -> int | float:
    """Convert a word to a finite number."""
    try:
        number = int(word) if word.lstrip("+-").isdigit() else float(word)
    except ValueError as error:
        raise ValueError(f"{where}: {word[:20]!r} is not a number; expected whole numbers only") from error
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError(f"{where}: {word[:20]!r} is not a number; expected whole numbers only")
    if abs(number) > _LARGEST:
        raise ValueError(f"{where}: {word[:20]!r} is too large; numbers are at most {_LARGEST}")
    return number


def _whole(word: str, where: str) -> int:
    """Convert a word to a whole number."""
    number = _number(word, where)
    if number != int(number):
        expected = "expected whole numbers only, so multiply durations by the same factor"
        raise ValueError(f"{where}: {word[:20]!r} is a fraction; {expected}")
    return int(number)


def _sizes(rows: list[_Row], name: str) -> tuple[int, int]:
    """Numbers of jobs and machines in the first line."""
    number, values = rows[0]
    if len(values) < 2 or min(values[:2]) < 1:
        expected = "the numbers of jobs and machines, at least 1 each"
        raise ValueError(f"{name}, line {number}: got {values[:6]}; expected {expected}")
    return values[0], values[1]


def _pairs(row: _Row, name: str) -> list[list[tuple[int, int]]]:
    """Operations of a job in the standard format."""
    number, values = row
    if len(values) % 2:
        raise ValueError(f"{name}, line {number}: {len(values)} numbers; expected pairs of machine and duration")
    return [[pair] for pair in zip(values[::2], values[1::2], strict=True)]


def _matched(durations: _Row, machines: _Row, n_machines: int, name: str) -> list[list[tuple[int, int]]]:
    """Operations of a job in Taillard's format."""
    for number, values in (durations, machines):
        if len(values) != n_machines:
            fault = f"{name}, line {number}: {len(values)} numbers"
            raise ValueError(f"{fault}; expected one per machine, {n_machines}")
    pairs = zip(machines[1], durations[1], strict=True)
    return [[(machine - 1, duration)] for machine, duration in pairs]


def _alternatives(row: _Row, name: str) -> list[list[tuple[int, int]]]:
    """Operations of a job in the flexible format."""
    number, values = row
    operations = []
    place = 1
    for _ in range(values[0]):
        n_alternatives = values[place] if place < len(values) else 0
        end = place + 1 + 2 * n_alternatives
        if n_alternatives < 1 or end > len(values):
            break
        machines = values[place + 1 : end : 2]
        pairs = zip(machines, values[place + 2 : end : 2], strict=True)
        operations.append([(machine - 1, duration) for machine, duration in pairs])
        place = end
    if len(operations) != values[0] or place != len(values):
        expected = "the number of operations and, for each, its number of alternatives and their machines and durations"
        raise ValueError(f"{name}, line {number}: the numbers do not add up to {expected}")
    return operations
