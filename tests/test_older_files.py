"""Files of all released versions since 0.2.0 are read by the current code, and mean the same.

`tests/data/VERSION` holds them; `tests/data/make.py` has written them with that version.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maze_pl
from maze_pl.__main__ import main
from maze_pl.envs import read_trajectories
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.checkpoint_files import read_checkpoint
from tests.older_files import decisions_of_bundle, decisions_on

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

FOLDER = Path(__file__).parent / "data"
VERSIONS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and path.name[0].isdigit())
RUNS = sorted((path.parts[-3], path.name) for path in FOLDER.glob("*/runs/*"))


def expected(version: str, name: str) -> dict[str, Any]:
    """Decisions that a version wrote."""
    decisions: dict[str, Any] = json.loads((FOLDER / version / "decisions.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = decisions[name]
    return found


def require_equal(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys() and wanted
    for name, numbers in wanted.items():
        np.testing.assert_allclose(found[name], numbers, rtol=1e-4, atol=1e-5, err_msg=name)


def copied(version: str, run: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the folder of a version, as commands write to run directories, and change to it."""
    shutil.copytree(FOLDER / version / "runs" / run, folder / "runs" / run)
    shutil.copytree(FOLDER / version / "played", folder / "played")
    monkeypatch.chdir(folder)
    return Path("runs", run)


def test_the_current_format_is_that_of_a_kept_version() -> None:
    assert VERSIONS and VERSIONS[0] == "0.2.0"


@pytest.mark.parametrize(("version", "run"), RUNS)
def test_agents_decide_as_they_did(version: str, run: str) -> None:
    folder = FOLDER / version / "runs" / run
    agent, record = maze_pl.load(folder), SpacesTrajectoryRecord.load(folder / "episode.spaces")
    require_equal(decisions_on(agent, record), expected(version, run))


@pytest.mark.parametrize("version", VERSIONS)
def test_wrapper_statistics_are_those_of_the_run(version: str) -> None:
    """Episodes begin with the recorded observations, which are normalised with the statistics of the run."""
    folder = FOLDER / version / "runs" / "ppo_structured"
    record = SpacesTrajectoryRecord.load(folder / "episode.spaces")
    env = maze_pl.load_env(folder)
    observation, _ = env.reset(seed=0)
    for name, values in record.observation[record.spec.step_keys[0]].items():
        np.testing.assert_allclose(observation[name], values[0], rtol=1e-5, err_msg=name)
    env.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bundle_decides_as_it_did(version: str) -> None:
    require_equal(decisions_of_bundle(FOLDER / version / "agent.bundle"), expected(version, "agent.bundle"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("run", ["ppo_flat", "ppo_structured"])
def test_recorded_episodes_are_read(version: str, run: str) -> None:
    played = FOLDER / version / "played" / run
    files = sorted((played / "trajectories").rglob("*.s*s"))
    records = [record for path in files for record in read_trajectories(path, trust=True)]
    spaces = {one.episode_id: one for one in records if isinstance(one, SpacesTrajectoryRecord)}
    states = {one.episode_id: one for one in records if not isinstance(one, SpacesTrajectoryRecord)}
    assert len(spaces) == 2 and spaces.keys() == states.keys()
    for name, record in spaces.items():
        rewards = [step.reward for step in states[name].steps]
        assert sum(rewards) == pytest.approx(record.reward.sum())
        assert record.truncated and record.last_env_time == 15


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", ["runs/ppo_structured", "runs/sac_replay/checkpoints/last.ckpt", "agent.bundle"])
def test_origins_are_shown(version: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(FOLDER / version / path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert f"maze_pl {version}, " in facts["versions"]
    command = facts.get("command") or facts["commands"][0]
    assert command.startswith("maze-pl fit")


@pytest.mark.slow
@pytest.mark.parametrize(("version", "run"), RUNS)
def test_runs_are_resumed(version: str, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training continues from the checkpoint, with the buffer and the statistics that belong to it."""
    folder = copied(version, run, tmp_path, monkeypatch)
    before = read_checkpoint(folder / "checkpoints" / "last.ckpt")
    assert main(["fit", "--resume", str(folder), "--trainer.max_epochs", "2"]) == 0
    after = read_checkpoint(folder / "checkpoints" / "last.ckpt")
    assert (before["epoch"], after["epoch"]) == (0, 1)
    assert after["global_step"] > before["global_step"]
    weights = before["state_dict"]
    assert not all(torch.equal(value, weights[name]) for name, value in after["state_dict"].items())
    assert len(maze_pl.read_metrics(folder)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_runs_are_played_viewed_reported_and_exported(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(copied(version, "ppo_structured", tmp_path, monkeypatch))
    play = ["rollout", folder, "--n_episodes", "2", "--max_steps", "5", "--runner", "sequential"]
    assert main([*play, "--output_dir", "again"]) == 0
    assert main(["view", "played/ppo_structured", "--trust", "--to", "view.html"]) == 0
    assert main(["report", folder]) == 0
    assert main(["plot", folder]) == 0
    assert main(["validate", folder]) == 0
    assert Path("view.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_sweep_is_shown(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FOLDER / version / "sweep", tmp_path / "sweep")
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "--show", "sweep"]) == 0
    assert "best trial" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_a_sweep_is_continued(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER / version / "sweep", tmp_path / "sweep")
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "--resume", "sweep", "--n_trials", "3"]) == 0
    assert (tmp_path / "sweep" / "trial_0002" / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_bundle_is_served(version: str) -> None:
    from starlette.testclient import TestClient

    from maze_pl.serving.app import DecisionServer, ServerOptions
    from maze_pl.serving.served_policy import ServedPolicy
    from tests.older_files import POLES

    server = DecisionServer(lambda: ServedPolicy(FOLDER / version / "agent.bundle", 8), ServerOptions())
    with TestClient(server.app) as client:
        answer = client.post("/act", json={"observation": {"observation": POLES[0]}, "with_parameters": True})
    assert answer.status_code == 200
    wanted = expected(version, "agent.bundle")
    assert answer.json()["action"] == {"action": wanted["action"][0]}
    np.testing.assert_allclose(answer.json()["parameters"]["action"], wanted["parameters"][0], atol=1e-5)
