"""metrics.csv: a row for each epoch, in a file that a resumed run goes on with.

Lightning's own CSV logger starts the file anew on resuming and keeps what was not flushed in memory.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.loggers.logger import Logger


class MetricsFile(Logger):
    """Writes metrics to one CSV file; the column `step` counts env steps.

    Args:
        save_dir: Folder of the file.
        filename: Its name.
    """

    def __init__(self, save_dir: str, filename: str = "metrics.csv") -> None:
        super().__init__()
        self._path = Path(save_dir, filename)
        self._columns: list[str] = []
        self._row: dict[str, Any] = {}  # the last one, which stands at the offset
        self._offset = 0

    @property
    def name(self) -> str:
        """Empty: files lie in the folder itself."""
        return ""

    @property
    def version(self) -> str:
        """Empty, as the name."""
        return ""

    @property
    def save_dir(self) -> str:
        """Folder of the file."""
        return str(self._path.parent)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Nothing: the run directory holds the whole configuration."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append a row, or complete the last one if it is of the same step; what is no number is left out.

        Args:
            metrics: Name -> value; a new name becomes a new column.
            step: Env steps so far.
        """
        row: dict[str, Any] = {"step": step} | {name: _number(value) for name, value in metrics.items()}
        row = {name: value for name, value in row.items() if value is not None}
        same = step is not None and self._row.get("step") == step
        row = {**self._row, **row} if same else row
        rows = None  # those before this one, if the file is written anew
        if not self._columns:  # rows of a former run that lie beyond where this one goes on are dropped
            self._path.parent.mkdir(parents=True, exist_ok=True)
            rows = [one for one in self._read() if step is None or int(one["step"] or -1) < step]
            self._columns = list(rows[0]) if rows else []
        added = [name for name in row if name not in self._columns]
        if added and rows is None:
            rows = self._read()[: -1 if same else None]
        self._columns += added
        if rows is not None:
            self._write_anew(rows)
        if rows is not None or not same:
            self._offset = self._path.stat().st_size
        try:
            with self._path.open("r+", newline="", encoding="utf-8") as file:
                file.seek(self._offset)
                csv.DictWriter(file, self._columns, restval="").writerow(row)
                file.truncate()
        except OSError as error:  # the disk is full, for example
            os.truncate(self._path, self._offset)  # no half row
            raise OSError(error.errno, f"{self._path} cannot be written: {error.strerror}") from error
        self._row = row

    def _read(self) -> list[dict[str, str]]:
        if not self._path.is_file():
            return []
        with self._path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def _write_anew(self, rows: list[dict[str, str]]) -> None:
        temporary = self._path.with_suffix(".part")
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(temporary, self._path)


def _number(value: Any) -> float | None:
    """The value if it is a number or holds just one."""
    if isinstance(value, bool | int | float):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
