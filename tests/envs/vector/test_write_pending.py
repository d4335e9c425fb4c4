"""Records and logs are on the disk before a checkpoint is written."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import TrajectoryFiles
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from maze_pl.envs.wrappers import EventLogsWrapper, SpacesRecordingWrapper
from maze_pl.events import EventLogFiles
from maze_pl.system import deferred_files
from tests.envs.stateful_wrappers import make_walk

VECTORS = pytest.mark.parametrize("kind", [SequentialVectorEnv, SubprocVectorEnv])


def logged(folder: Path, env: Any) -> Any:
    """Log events in both formats and in two folders, and record episodes."""
    env = EventLogsWrapper.wrap(env, writer=EventLogFiles(str(folder / "csv")))
    env = EventLogsWrapper.wrap(env, writer=EventLogFiles(str(folder / "parquet"), format="parquet"))
    return SpacesRecordingWrapper.wrap(env, writer=TrajectoryFiles(str(folder / "recorded")))


def vector_of(kind: Any, folder: Path, n_envs: int = 2, **options: Any) -> VectorEnv:
    make = partial(make_wrapped, partial(make_walk, 5), [partial(logged, folder)])
    vector: VectorEnv = kind([make] * n_envs, seed=1, **options)
    return vector


def rewards_in(folder: Path) -> list[int]:
    """Number of logged rewards, as CSV and as Parquet."""
    csv = folder / "csv" / "BaseEnvEvents.reward.csv"
    parquet = folder / "parquet" / "BaseEnvEvents.reward.parquet"
    frames = [pd.read_csv(csv) if csv.exists() else [], pd.read_parquet(parquet) if parquet.exists() else []]
    return [len(frame) for frame in frames]


@VECTORS
def test_the_rows_of_running_episodes_are_written(tmp_path: Path, kind: Any) -> None:
    vector = vector_of(kind, tmp_path)
    vector.reset()
    for n_steps in (3, 6):
        for _ in range(3):
            vector.staging.action[0]["action"][:] = np.ones(2)
            vector.step()
        assert sorted(vector.write_pending()) == [str(tmp_path / "csv"), str(tmp_path / "parquet")]
        assert rewards_in(tmp_path) == [2 * n_steps, 2 * n_steps]
    vector.close()


def test_recorded_episodes_have_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = deferred_files.put_in_place_together

    def slow_rename(files: Any) -> None:
        time.sleep(0.1)
        rename(files)

    monkeypatch.setattr(deferred_files, "put_in_place_together", slow_rename)
    vector = vector_of(SequentialVectorEnv, tmp_path)
    vector.reset()
    for _ in range(6):
        vector.staging.action[0]["action"][:] = np.ones(2)
        vector.step()
    vector.write_pending()
    assert len(list((tmp_path / "recorded").glob("*.spaces"))) == 2
    vector.close()


@pytest.mark.parametrize("engine", [InProcessEngine, partial(ProcessEngine, 2)])
def test_players_of_all_kinds_of_episodes_write(tmp_path: Path, engine: Any) -> None:
    training = [partial(vector_of, SequentialVectorEnv, tmp_path / f"shard_{shard}") for shard in range(2)]
    options: Any = {"n_envs": 1, "autoreset": False, "seed_by_env": False}
    evaluation = {"eval": (partial(vector_of, SequentialVectorEnv, tmp_path / "eval", **options), False)}
    running: Engine = engine()
    assert running.players == []
    sample = training[0]()
    policy = RandomPolicy({key: step.action_space for key, step in sample.spec.steps.items()})
    sample.close()
    running.start(partial(RolloutWorker, 1, evaluation, training=training, n_rollout_steps=3), policy)
    running.map([(shard, "collect", ({}, policy)) for shard in range(2)])
    running.map([(1, "play", ("eval", range(1), {}, policy))])
    assert sorted(running.players) == [0, 1]
    folders = running.map([(player, "write_pending", ()) for player in (0, 1)])
    names = [["shard_0"], ["eval", "shard_1"]]
    expected = [
        [str(tmp_path / name / kind) for name in of_player for kind in ("csv", "parquet")] for of_player in names
    ]
    assert list(map(sorted, folders)) == expected
    assert [rewards_in(tmp_path / name) for name in ("shard_0", "shard_1", "eval")] == [[6, 6], [6, 6], [5, 5]]
    running.close()
    assert running.players == []
