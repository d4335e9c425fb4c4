"""A TensorBoard log as a table, for notebooks and plots of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from maze_pl.search_path import ConfigurationError

if TYPE_CHECKING:
    import pandas


def tensorboard_to_pandas(path: str | Path) -> pandas.DataFrame:
    """The numbers of a TensorBoard log: a column for each name, a row for each number of env steps.

    Points that a resumed run has replaced are left out, as TensorBoard does. TensorBoard keeps numbers in single
    precision; `metrics.csv` has all digits.

    Example:
        >>> frame = maze_pl.tensorboard_to_pandas("outputs/ppo_cartpole/2026-11-20_12-00-00")  # doctest: +SKIP
        >>> frame["eval_BaseEnvEvents/reward/mean"].dropna().plot()  # doctest: +SKIP

    Args:
        path: A run directory, a folder of event files, or an event file.

    Raises:
        ConfigurationError: There are no event files, or pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigurationError("tensorboard_to_pandas needs pandas: pip install 'maze-pl[pandas]'") from error
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = Path(path)
    folder = path / "tensorboard" if (path / "tensorboard").is_dir() else path
    if not folder.is_file() and not any(folder.glob("events.out.tfevents.*")):
        raise ConfigurationError(f"there is no TensorBoard log in {path}")
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    columns = {}
    for tag in sorted(events.Tags()["scalars"]):
        points = events.Scalars(tag)
        column = pandas.Series([point.value for point in points], [point.step for point in points], dtype=float)
        columns[tag] = column[~column.index.duplicated(keep="last")]
    return pandas.DataFrame(columns).sort_index().rename_axis("env_steps")
