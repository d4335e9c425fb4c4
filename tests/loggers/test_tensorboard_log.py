from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from maze_pl import tensorboard_to_pandas
from maze_pl.callbacks import TensorBoardLog
from maze_pl.config.search_path import ConfigurationError

FAR = 2**24 + 1


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has logged three points, and was resumed from the second one."""
    first = TensorBoardLog(str(tmp_path))
    first.begin("seed_everything: 0", "maze-pl fit", 0)
    for step in (10, FAR, FAR + 2):
        first.log_metrics({"train_A/x": step / 7, "eval_A/x": 1.0} if step != 10 else {"train_A/x": 0.5}, step)
    first.finalize("success")
    second = TensorBoardLog(str(tmp_path))
    second.begin("seed_everything: 0", "maze-pl fit --resume", FAR)
    second.log_metrics({"train_A/x": -1.0}, FAR + 2)
    second.finalize("success")
    return tmp_path


def test_a_log_is_a_table_of_a_column_for_each_name_over_env_steps(run: Path) -> None:
    frame = tensorboard_to_pandas(run)
    assert frame.index.tolist() == [10, FAR, FAR + 2]
    assert frame.columns.tolist() == ["eval_A/x", "train_A/x"]
    np.testing.assert_allclose(frame["train_A/x"], [0.5, FAR / 7, -1.0], rtol=1e-6)
    np.testing.assert_array_equal(frame["eval_A/x"], [np.nan, 1.0, np.nan])


def test_the_folder_of_the_events_and_one_of_its_files_do_as_well(run: Path) -> None:
    folder = run / "tensorboard"
    assert tensorboard_to_pandas(folder).equals(tensorboard_to_pandas(str(run)))
    first = min(folder.glob("events.*"), key=lambda path: path.stat().st_mtime_ns)
    assert tensorboard_to_pandas(first)["eval_A/x"].tolist()[1:] == [1.0, 1.0]


def test_a_folder_without_events_and_a_missing_package_are_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no TensorBoard log in .*nowhere"):
        tensorboard_to_pandas(run / "nowhere")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'maze-pl\[pandas\]'"):
        tensorboard_to_pandas(run)
