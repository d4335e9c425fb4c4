"""Event logs of a resumed run are those of a run that was not interrupted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs.wrappers import EventLogsWrapper
from maze_pl.events import EventLogFiles
from maze_pl.events.event_log_ends import EVENT_LOG_ENDS
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.deferred_files import deferred_files
from tests.datamodules.probe import EVAL, Probe, fit, make_data, make_trainer, validate


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
