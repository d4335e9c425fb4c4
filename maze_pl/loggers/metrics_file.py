"""Logger that writes `metrics.csv`."""

import csv
import io
import os
import time
from pathlib import Path
from typing import Any, Final

from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.loggers.logger import Logger

from maze_pl.system.atomic_files import write_file

_WALL_CLOCK: Final = "time_wall_clock"


class MetricsFile(Logger):
    """Writes metrics to one CSV file; the column `step` counts env steps.

    The column `time_wall_clock` has the seconds since this object was made, when a row was written.
    A resumed run continues from the seconds of the last row that it keeps.

    Args:
        save_dir: Folder of the file.
        filename: Its name.
    """

    def __init__(self, save_dir: str, filename: str = "metrics.csv") -> None:
        super().__init__()
        self.save_dir, self._path = save_dir, Path(save_dir, filename)
        self._columns: list[str] = []
        self._row: dict[str, Any] = {}  # the last row, which begins at the offset
        self._offset = 0
        self._began = time.monotonic()
        self._seconds_before = 0.0  # of earlier commands of the run

    name = version = save_dir = ""  # no separate folders for experiments and versions

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Do nothing: the run directory holds the whole configuration."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append a row, or complete the last one if it has the same step.

        Args:
            metrics: Name -> value; a new name becomes a new column.
            step: Env steps so far.
        """
        is_same = step is not None and self._row.get("step") == step
        row: dict[str, Any] = dict(self._row) if is_same else {"step": step}
        for name, value in metrics.items():
            row[name] = value if isinstance(value, int) else float(value)
        row[_WALL_CLOCK] = 0.0  # known once the rows of earlier commands are
        has_new_columns = not row.keys() <= set(self._columns)
        if has_new_columns:
            rows = self._rows_before(step)
            if is_same:
                del rows[-1:]
            if not self._columns and rows:
                self._seconds_before = float(rows[-1].get(_WALL_CLOCK) or 0.0)
            self._columns = list(dict.fromkeys([*self._columns, *(rows[0] if rows else ()), *row]))
            text = io.StringIO()
            writer = csv.DictWriter(text, self._columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
            write_file(self._path, text.getvalue().encode())
        row[_WALL_CLOCK] = round(self._seconds_before + time.monotonic() - self._began, 3)
        if has_new_columns or not is_same:
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

    def _rows_before(self, step: int | None) -> list[dict[str, Any]]:
        """Return the rows of the file; of a resumed run, those before the point of resuming."""
        if not self._path.is_file():
            return []
        rows = list(csv.DictReader(self._path.read_text(encoding="utf-8").splitlines()))
        if self._columns or step is None:
            return rows
        return [row for row in rows if int(row["step"] or -1) < step]
