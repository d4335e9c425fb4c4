"""Logged statistics of runs: `metrics.csv` and TensorBoard logs as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.metrics_table import STEP_COLUMN, WALL_CLOCK_COLUMN, metrics_rows

if TYPE_CHECKING:
    import pandas

METRICS_FILE: Final = "metrics.csv"

Column = np.ndarray[Any, np.dtype[np.float64]]
"""Values of a statistic, NaN where a row has none."""


class NoMetricsError(ConfigurationError):
    """A run has not logged any statistics yet."""


def read_columns(run: str | Path) -> dict[str, Column]:
    """Read the `metrics.csv` of a run, which may be in progress.

    Args:
        run: A run directory, or the file.

    Returns:
        Name of a statistic -> [n] values; the column `step` counts env steps. A last row that is
        being written is left out.

    Raises:
        NoMetricsError: There is no such file, or it is empty.
        ConfigurationError: It is damaged.
    """
    path = Path(run, METRICS_FILE) if Path(run).is_dir() else Path(run)
    try:
        names, rows = metrics_rows(path.read_bytes())
    except FileNotFoundError:
        remedy = "it appears after the first epoch of `maze-pl fit`"
        raise NoMetricsError(f"{path} does not exist: {remedy}") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} {error}") from error
    if not names:
        raise NoMetricsError(f"{path} is empty: it has no statistics yet")
    table = np.full((len(rows), len(names)), np.nan)
    for index, cells in enumerate(rows):
        table[index] = [float(cell) if cell else np.nan for cell in cells]
    return {name: table[:, column] for column, name in enumerate(names)}


def wall_clock(columns: dict[str, Column]) -> Column | None:
    """Return the seconds that a run has taken up to each row, over all its commands.

    Runs of earlier versions have no such column; for them the times of epochs are summed, which
    leaves out the start of commands.

    Args:
        columns: Result of `read_columns`.

    Returns:
        [n] seconds; None if the run has logged no times.
    """
    if WALL_CLOCK_COLUMN in columns:
        return columns[WALL_CLOCK_COLUMN]
    for name, values in columns.items():
        if name.startswith("train_") and name.endswith("/time_epoch"):
            return np.nancumsum(values)
    return None


def read_metrics(run: str | Path) -> pandas.DataFrame:
    """Read the statistics that a run has logged: a column for each name, a row for each env step count.

    Example:
        >>> frame = maze_pl.read_metrics("outputs/ppo_cartpole/2026-11-20_12-00-00")  # doctest: +SKIP
        >>> frame["eval_BaseEnvEvents/reward/mean"].dropna().plot()  # doctest: +SKIP

    Args:
        run: A run directory, or its `metrics.csv`.

    Returns:
        The statistics in double precision, with `env_steps` as index; NaN where a row has no value.

    Raises:
        ConfigurationError: There is no such file, it is damaged, or pandas is not installed.
    """
    pandas = _pandas("read_metrics")
    columns = read_columns(run)
    steps = columns.pop(STEP_COLUMN)
    has_steps = np.isfinite(steps)
    index = pandas.Index(steps[has_steps].astype(np.int64), name="env_steps")
    kept = {name: values[has_steps] for name, values in columns.items()}
    return pandas.DataFrame(kept, index=index)


def tensorboard_to_dataframe(path: str | Path) -> pandas.DataFrame:
    """Read the numbers of a TensorBoard log: a column for each name, a row for each env step count.

    Points that a resumed run has replaced are left out, as in TensorBoard; so is a last point that
    is incomplete, as while a run writes it. TensorBoard keeps numbers in single precision;
    `metrics.csv` has all digits, see `read_metrics`.
    `maze_pl.tensorboard_to_pandas` is another name of this function.

    Example:
        >>> frame = maze_pl.tensorboard_to_dataframe("outputs/ppo_cartpole/2026-11-20_12-00-00")  # doctest: +SKIP
        >>> frame["eval_BaseEnvEvents/reward/mean"].dropna().plot()  # doctest: +SKIP

    Args:
        path: A run directory, a folder of event files, or an event file.

    Raises:
        ConfigurationError: There are no event files, one is damaged, or pandas is not installed.
    """
    pandas = _pandas("tensorboard_to_dataframe")
    from maze_pl.runs.event_files import read_scalars

    path = Path(path)
    folder = path / "tensorboard" if (path / "tensorboard").is_dir() else path
    files = [folder] if folder.is_file() else list(folder.glob("events.out.tfevents.*"))
    if not files:
        raise ConfigurationError(f"there is no TensorBoard log in {path}")
    columns = {}
    for tag, points in sorted(read_scalars(files).items()):
        values = [value for _, value in points]
        column = pandas.Series(values, [step for step, _ in points], dtype=float)
        columns[tag] = column[~column.index.duplicated(keep="last")]
    return pandas.DataFrame(columns).sort_index().rename_axis("env_steps")


def tensorboard_to_pandas(path: str | Path) -> pandas.DataFrame:
    """Read the numbers of a TensorBoard log; the name of `tensorboard_to_dataframe` in Maze.

    Args:
        path: A run directory, a folder of event files, or an event file.

    Raises:
        ConfigurationError: There are no event files, one is damaged, or pandas is not installed.
    """
    return tensorboard_to_dataframe(path)


def _pandas(feature: str) -> Any:
    """Import pandas for a function of this name."""
    try:
        import pandas
    except ImportError as error:
        remedy = "pip install 'maze-pl[pandas]'"
        raise ConfigurationError(f"{feature} needs pandas: {remedy}") from error
    return pandas
