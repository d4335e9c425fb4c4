"""Logger that writes `metrics.csv`."""

import csv
import io
import math
import os
import time
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import pytorch_lightning as pl
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn

from maze_pl.core.metrics_table import STEP_COLUMN, WALL_CLOCK_COLUMN, metrics_rows
from maze_pl.loggers.log_folder import is_in_run_directory, log_folder, set_aside
from maze_pl.system.atomic_files import require_replaceable, write_file


@runtime_checkable
class _CountsEnvSteps(Protocol):
    env_steps: int


class MetricsFile(Logger):
    """Writes metrics to one CSV file; the column `step` counts env steps.

    Values that callbacks of Lightning log under a number of batches are in the row of the current env steps.
    A resumed run drops rows beyond the env steps of its checkpoint. Modules that do not count env steps
    determine the steps themselves, and a resumed run of theirs drops rows from its first step on.

    If a run begins and finds the file of another run, which is possible outside of the run directory, that
    file gets a number, as in `metrics.1.csv`; so does a damaged file, and the run goes on with a new one.
    A last row that is incomplete, as after a power failure, is dropped.

    The column `time_wall_clock` has the seconds since this object was made, when a row was written.
    A resumed run continues from the seconds of the last row that it keeps.

    Args:
        save_dir: Folder of the file; None means the run directory.
        filename: Its name.
    """

    def __init__(self, save_dir: str | None = None, filename: str = "metrics.csv") -> None:
        super().__init__()
        self._path = log_folder(save_dir) / filename
        self._columns: list[str] = []
        self._module: _CountsEnvSteps | None = None
        self._kept_until: float | None = None  # env steps of rows of earlier commands; None: before the first step
        self._row: dict[str, Any] = {}  # the last row, which begins at the offset
        self._offset = 0
        self._began = time.monotonic()
        self._seconds_before = 0.0  # of earlier commands of the run

    name = version = save_dir = ""  # no separate folders for experiments and versions

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Do nothing: the run directory holds the whole configuration."""

    def log_graph(self, model: nn.Module, input_array: Tensor | None = None) -> None:
        """Count the env steps of a module from now on; a trainer calls this once it has restored a checkpoint.

        Raises:
            OSError: The file cannot be read, or is a folder.
        """
        self._check_file()
        self._module, self._kept_until = None, None
        if not isinstance(model, pl.LightningModule) or not isinstance(model, _CountsEnvSteps):
            return
        self._module = model
        trainer = model.trainer
        if trainer.state.fn != TrainerFn.FITTING:
            self._kept_until = math.inf
        elif not trainer.strategy.restore_checkpoint_after_setup:
            self._kept_until = model.env_steps
            if self._columns:  # of an earlier run by the same object
                self._columns, self._row, self._began = [], {}, time.monotonic()

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append a row, or complete the last one if it has the same step.

        Args:
            metrics: Name -> value; a new name becomes a new column.
            step: Env steps so far; ignored if a module that counts them is trained or evaluated.
        """
        if self._module is not None:
            step = self._module.env_steps
        earlier_rows = None if self._columns else self._rows_of_earlier_commands(step)
        is_same = step is not None and self._row.get("step") == step
        row: dict[str, Any] = dict(self._row) if is_same else {"step": step}
        for name, value in metrics.items():
            row[name] = int(value) if isinstance(value, int) else float(value)
        row[WALL_CLOCK_COLUMN] = round(self._seconds_before + time.monotonic() - self._began, 3)
        has_new_columns = not row.keys() <= set(self._columns)
        if has_new_columns:
            rows = self._rows() if earlier_rows is None else earlier_rows
            if is_same:
                del rows[-1:]  # it is written again below, with the new values
            self._rewrite(rows, new_columns=row)
        if has_new_columns or not is_same:
            self._offset = self._path.stat().st_size
        self._write_last(row)
        self._row = row

    def _rewrite(self, rows: list[dict[str, Any]], new_columns: Iterable[str]) -> None:
        """Write the whole file again, with further columns.

        Args:
            rows: Rows that the file has then.
            new_columns: Names of columns, also of those that it has already.
        """
        names_in_rows = rows[0] if rows else ()
        self._columns = list(dict.fromkeys([*self._columns, *names_in_rows, *new_columns]))
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
        write_file(self._path, text.getvalue().encode())

    def _write_last(self, row: dict[str, Any]) -> None:
        """Write the last row, which begins at the offset, in place of what is there.

        Raises:
            OSError: It cannot be written, for example because the disk is full.
        """
        try:
            with self._path.open("r+", newline="", encoding="utf-8") as file:
                file.seek(self._offset)
                csv.DictWriter(file, self._columns, restval="").writerow(row)
                file.truncate()
        except OSError as error:
            os.truncate(self._path, self._offset)  # no half row
            raise OSError(error.errno, f"{self._path} cannot be written: {error.strerror}") from error

    @rank_zero_only
    def _check_file(self) -> None:
        """Rename a damaged file before anything is trained."""
        require_replaceable(self._path)
        self._rows()

    def _rows(self) -> list[dict[str, Any]]:
        """Return the complete rows of the file; a damaged one is renamed, and has none."""
        if not self._path.is_file():
            return []
        try:
            names, rows = metrics_rows(self._path.read_bytes())
        except ValueError as error:
            set_aside(self._path, f"{error};")
            return []
        return [dict(zip(names, cells, strict=True)) for cells in rows]

    def _rows_of_earlier_commands(self, step: int | None) -> list[dict[str, Any]]:
        """Return the rows up to the point of resuming, and continue with the last of them.

        Args:
            step: Step of the first values that are logged.
        """
        rows = self._rows()
        limit = self._kept_until
        if limit is None and step is not None:
            limit = step - 1
        is_new_run = self._kept_until == 0 and any(_step_of(row) > 0 for row in rows)
        if is_new_run and not is_in_run_directory(self._path):
            set_aside(self._path, "is of another run:")
            return []
        if limit is not None:
            rows = [row for row in rows if _step_of(row) <= limit]
        if rows:
            self._seconds_before = float(rows[-1].get(WALL_CLOCK_COLUMN) or 0.0)
            if _step_of(rows[-1]) == step:
                self._row = {**rows[-1], "step": step}
        return rows


def _step_of(row: dict[str, Any]) -> float:
    """Return the env steps of a row of the file, -1 if it has none."""
    text = row[STEP_COLUMN] or "-1"
    try:
        return int(text)
    except ValueError:  # another program has written 10.0, for example
        return float(text)
