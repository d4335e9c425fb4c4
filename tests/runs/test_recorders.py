"""Recording wrappers of a run take no part in what is played with its environment afterwards."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config.factories import Factory
from maze_pl.envs import GymMazeEnv, TrajectoryFiles
from maze_pl.envs.wrappers import (
    EventLogsWrapper,
    MazeEnvMonitoringWrapper,
    SpacesRecordingWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.runs.recorders import without_recorders
from maze_pl.runs.rollout import rollout
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from tests.bad_input.project import SMALL, tree

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

OURS = "maze_pl.envs.wrappers."
FILES = {"writer": {"class_path": "maze_pl.envs.TrajectoryFiles", "init_args": {"folder": "trajectories"}}}
WRAPPERS = [
    {"class_path": f"{OURS}TimeLimitWrapper", "init_args": {"max_episode_steps": 9}},
    {"class_path": f"{OURS}EventLogsWrapper"},
    {"class_path": f"{OURS}TrajectoryRecordingWrapper", "init_args": FILES},
    {"class_path": f"{OURS}SpacesRecordingWrapper", "init_args": FILES},
]


class CustomRecorder(SpacesRecordingWrapper):
    """Subclass of a recording wrapper."""

    @classmethod
    def limited(cls, env: Any) -> Any:
        """Return a wrapper that records nothing."""
        return TimeLimitWrapper(env, max_episode_steps=3)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that has recorded its training."""
    path = tmp_path_factory.mktemp("trained")
    wrappers = path / "wrappers.yaml"
    wrappers.write_text(yaml.safe_dump({"data": {"wrappers": WRAPPERS}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAZE_PL_RUN_DIR", "")
        command = ["fit", "--config", "ppo_cartpole", "--config", str(wrappers), *SMALL]
        assert main([*command, "--run_dir", str(path / "run")]) == 0
    assert {name.split("/")[0] for name in tree(path / "run")} >= {"event_logs", "trajectories"}
    yield path / "run"


def test_recorders_are_recognised_in_all_forms() -> None:
    kept: list[Any] = [
        TimeLimitWrapper,
        partial(TimeLimitWrapper, max_episode_steps=3),
        Factory(f"{OURS}MazeEnvMonitoringWrapper"),
        MazeEnvMonitoringWrapper.wrap,
        lambda env: EventLogsWrapper(env),  # nothing tells what it makes
        CustomRecorder.limited,
    ]
    recorders: list[Any] = [
        EventLogsWrapper,
        CustomRecorder,
        partial(partial(TrajectoryRecordingWrapper, n_episodes=2), writer=None),
        Factory(f"{OURS}SpacesRecordingWrapper", {"n_episodes": 3}),
        EventLogsWrapper.wrap,
        partial(SpacesRecordingWrapper.wrap, n_episodes=1),
    ]
    mixed = [one for pair in zip(kept, recorders, strict=False) for one in pair]
    assert without_recorders([*mixed, *recorders]) == kept
    assert without_recorders(None) == []


def test_recorders_that_are_given_to_a_rollout_in_python_record(folder: Path) -> None:
    recorder = partial(SpacesRecordingWrapper, writer=TrajectoryFiles("given"))
    rollout(lambda: GymMazeEnv("CartPole-v1"), "random", wrappers=[recorder], max_steps=3)
    assert len(list((folder / "given").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("runner", [["sequential"], ["parallel", "--runner.n_workers", "1"]])
def test_a_rollout_of_a_run_writes_each_event_once(run: Path, folder: Path, runner: list[str]) -> None:
    before = tree(run)
    command = ["rollout", str(run), "--n_episodes", "3", "--max_steps", "5", "--runner", *runner]
    assert main([*command, "--output_dir", "out"]) == 0
    with (folder / "out" / "event_logs" / "BaseEnvEvents.reward.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["episode_id"], row["env_time"]) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows)) == 15
    written = [path.relative_to(folder / "out").parts for path in folder.glob("out/trajectories/**/*.s*")]
    assert sorted(parts[1] for parts in written) == ["spaces"] * 3 + ["states"] * 3
    assert sorted(path.name for path in folder.iterdir()) == ["out"]
    assert tree(run) == before


@pytest.mark.slow
def test_a_rollout_with_the_configuration_of_a_run_writes_each_event_once(run: Path, folder: Path) -> None:
    command = ["rollout", "--config", str(run / "config.yaml"), "--runner", "sequential", "--max_steps", "5"]
    assert main([*command, "--n_episodes", "2", "--trajectories", "none", "--output_dir", "out"]) == 0
    text = (folder / "out" / "event_logs" / "BaseEnvEvents.reward.csv").read_text()
    assert len(text.splitlines()) == 1 + 2 * 5
    assert not (folder / "out" / "trajectories").exists()


@pytest.mark.slow
def test_an_export_records_nothing(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(run)
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(run))  # as in the process that trains
    manifest = maze_pl.export(run, "agent.bundle", episodes=2, max_steps=5)
    assert manifest["parity"]["decisions"] == 10
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    assert main(["export", str(run), "--to", "other.bundle", "--episodes", "2"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["agent.bundle", "other.bundle"]
    assert tree(run) == before


@pytest.mark.slow
def test_nothing_is_left_in_the_current_folder_by_other_plays(run: Path, folder: Path) -> None:
    before = tree(run)
    maze_pl.compare(run, "random", n_episodes=2, max_steps=5)
    assert main(["view", str(run), "--max_steps", "5", "--to", "view.html"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["view.html"]
    assert tree(run) == before
