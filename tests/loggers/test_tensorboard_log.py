from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import metadata

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


def test_the_first_point_of_a_described_statistic_carries_its_description(tmp_path: Path) -> None:
    log = TensorBoardLog(str(tmp_path))
    log.begin("seed_everything: 0", "maze-pl fit", 0)
    log.describe_statistics({"A/loss": "mean loss", "B/loss": "another one"})
    for step in (1, 2):
        metrics = {"train_A/loss/substep_0": step / 2, "night_eval_A/loss": 1.0, "train_C/loss": 3.0}
        log.log_metrics(metrics, step)
    log.finalize("success")
    accumulator = EventAccumulator(str(tmp_path / "tensorboard"))
    accumulator.Reload()
    described = {}
    for name in ("train_A/loss/substep_0", "night_eval_A/loss"):
        described[name] = accumulator.SummaryMetadata(name).summary_description
    assert described == {"train_A/loss/substep_0": "mean loss", "night_eval_A/loss": "mean loss"}
    assert [point.value for point in accumulator.Scalars("train_C/loss")] == [3.0, 3.0]
    assert [point.value for point in accumulator.Scalars("train_A/loss/substep_0")] == [0.5, 1.0]
    assert tensorboard_to_pandas(tmp_path)["train_A/loss/substep_0"].tolist() == [0.5, 1.0]


CONFIG = """
seed_everything: 3
model: {class_path: maze_pl.modules.PPO, init_args: {lr: 0.001}}
data: {class_path: maze_pl.datamodules.RolloutDataModule, init_args: {evaluators: {eval: {}, night: {}}}}
"""


def test_hyper_parameters_and_final_results_are_in_the_view_of_hyper_parameters(tmp_path: Path) -> None:
    for env_steps in (0, 20):  # the second one is resumed
        log = TensorBoardLog(str(tmp_path))
        log.begin(CONFIG, "maze-pl fit", env_steps)
        results = {"final_eval/best/return": 1.0 + env_steps, "final_eval/last/kpi/waste": 0.5}
        log.conclude(results, env_steps + 20)
        log.finalize("success")
    accumulator = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    content = {name: data.plugin_data.content for name, data in accumulator.summary_metadata.items()}
    start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG])
    assert start.hparams["model.lr"].number_value == 0.001
    assert start.hparams["seed_everything"].number_value == 3
    experiment = metadata.parse_experiment_plugin_data(content[metadata.EXPERIMENT_TAG])
    compared = {info.name.tag for info in experiment.metric_infos}
    assert {f"final_{name}/{which}/return" for name in ("eval", "night") for which in ("best", "last")} <= compared
    assert metadata.parse_session_end_info_plugin_data(content[metadata.SESSION_END_INFO_TAG]).status == 1
    points = accumulator.Scalars("final_eval/best/return")  # files of the same second are read in any order
    assert sorted((point.step, point.value) for point in points) == [(20, 1.0), (40, 21.0)]
    found = []
    for path in (tmp_path / "tensorboard").iterdir():
        for event in LegacyEventFileLoader(str(path)).Load():
            found += [value.tag for value in event.summary.value]
    assert found.count(metadata.SESSION_START_INFO_TAG) == found.count(metadata.EXPERIMENT_TAG) == 1


def test_a_described_statistic_is_read_without_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = TensorBoardLog(str(tmp_path))
    log.begin("seed_everything: 0", "maze-pl fit", 0)
    log.describe_statistics({"A/loss": "mean loss"})
    log.log_metrics({"train_A/loss": 0.5}, 3)
    log.log_metrics({"train_A/loss": 0.25}, 4)
    log.finalize("success")
    assert tensorboard_to_pandas(tmp_path)["train_A/loss"].tolist() == [0.5, 0.25]
    assert caplog.messages == []


@pytest.mark.parametrize("is_run", [True, False])
def test_a_run_that_begins_hides_points_in_its_run_directory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_run: bool
) -> None:
    if is_run:
        monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    for step in (20, 10):
        log = TensorBoardLog(str(tmp_path))
        log.begin("seed_everything: 0", "maze-pl fit", 0)
        log.log_metrics({"train_A/x": 1.0}, step)
        log.finalize("success")
    points = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("train_A/x")
    assert {point.step for point in points} == ({10} if is_run else {10, 20})
