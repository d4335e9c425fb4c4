"""Event logs of a resumed run are those of a run that was not interrupted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch

from maze_pl.datamodules import RolloutDataModule, SelfLabellingDataModule, TrajectoryDataModule
from maze_pl.datasets import InMemoryDataset
from maze_pl.envs.wrappers import EventLogsWrapper
from maze_pl.events import EventLogFiles
from maze_pl.events.event_log_ends import EVENT_LOG_ENDS
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.deferred_files import deferred_files
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift
from tests.datamodules.probe import EVAL, Probe, fit, make_data, make_trainer, validate
from tests.datamodules.replay_learner import recorded_episodes


def logged(format: Any, env: Any) -> Any:
    return EventLogsWrapper.wrap(env, writer=EventLogFiles(format=format))


def data_with_logs(format: str) -> RolloutDataModule:
    data: RolloutDataModule = make_data(wrappers=[partial(logged, format)], evaluators=EVAL)
    return data


def rewards_in(run_dir: Path, format: str) -> list[Any]:
    """Logged rewards in an order that does not depend on that of the environments."""
    deferred_files().flush()
    path = run_dir / "event_logs" / f"BaseEnvEvents.reward.{format}"
    frame = pd.read_parquet(path) if format == "parquet" else pd.read_csv(path)
    return sorted(zip(frame["episode_id"], frame["env_time"], frame["value"], strict=True))


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_each_act_is_logged_once_however_often_a_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path / "whole"))
    fit(data_with_logs(format), max_epochs=3)
    expected = rewards_in(tmp_path / "whole", format)
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path / "run"))
    trainer, data, path = make_trainer(2), data_with_logs(format), tmp_path / "run.ckpt"
    trainer.fit(Probe(), data)
    trainer.save_checkpoint(path)
    n_rows = len(rewards_in(tmp_path / "run", format))
    for _ in range(2):
        fit(data_with_logs(format), max_epochs=3, ckpt_path=path)
        assert rewards_in(tmp_path / "run", format) == expected
    validate(data_with_logs(format), ckpt_path=path, weights_only=True)  # which removes nothing
    assert len(rewards_in(tmp_path / "run", format)) > len(expected) > n_rows


def test_checkpoints_of_earlier_versions_leave_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    data = data_with_logs("csv")
    fit(data)
    before, state = rewards_in(tmp_path, "csv"), data.state_dict()
    del state[EVENT_LOG_ENDS]
    resumed = data_with_logs("csv")
    resumed.trainer = make_trainer()
    resumed.trainer.state.fn = "fit"  # type: ignore[assignment]
    resumed.load_state_dict(state)
    assert rewards_in(tmp_path, "csv") == before


def state_loaded_by(data: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The state of a data module that has continued from another state, and done nothing since."""
    data.trainer = make_trainer()
    data.trainer.state.fn = "fit"
    data.load_state_dict(state)
    return data.state_dict()  # type: ignore[no-any-return]


def test_ends_of_folders_that_no_environment_names_any_more_are_known_after_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    data = data_with_logs("csv")
    fit(data)
    state = data.state_dict()
    ends = state[EVENT_LOG_ENDS]
    assert ends["event_logs"]["BaseEnvEvents.reward.csv"] > 0
    assert state_loaded_by(make_data(evaluators=EVAL), state)[EVENT_LOG_ENDS] == ends


def test_folders_are_known_before_anything_is_played_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    assert data_with_logs("csv").state_dict()[EVENT_LOG_ENDS] == {"event_logs": {}}
    assert make_data(evaluators=EVAL).state_dict()[EVENT_LOG_ENDS] == {}
    assert list(tmp_path.iterdir()) == []


class SavesBeforePlaying(pl.LightningModule):
    """Learns nothing; writes a checkpoint when a fit begins, before the data module has played anything."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.policy, self.path = Counter(), path

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.policy.parameters(), lr=1.0)

    def on_train_start(self) -> None:
        self.trainer.save_checkpoint(self.path)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.optimizers().step()

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """There is nothing to do: the episodes have been played."""


def imitation(**options: Any) -> TrajectoryDataModule:
    dataset = InMemoryDataset(recorded_episodes())
    return TrajectoryDataModule(dataset, Drift, validation_percentage=0, **options)


def self_labelling(**options: Any) -> SelfLabellingDataModule:
    return SelfLabellingDataModule(Drift, n_starts=2, n_samples=2, batch_size=4, epoch_length=2, **options)


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:The number of training batches")
@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("make", [imitation, self_labelling])
def test_rows_of_a_first_evaluation_come_once_although_no_checkpoint_knows_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, format: str
) -> None:
    """A run is killed after its first evaluation, and again after the first one since it was resumed."""
    path, options = tmp_path / "run.ckpt", {"wrappers": [partial(logged, format)], "evaluators": EVAL, "seed": 3}
    for name, ends in {"whole": [3], "run": [1, 2, 3]}.items():
        monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path / name))
        ckpt_path = None
        for max_epochs in ends:
            make_trainer(max_epochs).fit(SavesBeforePlaying(path), make(**options), ckpt_path=ckpt_path)
            assert len(rewards_in(tmp_path / name, format)) > 0
            ckpt_path = path
    assert rewards_in(tmp_path / "run", format) == rewards_in(tmp_path / "whole", format)
