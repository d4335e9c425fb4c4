"""Sweeps of real runs: killed and continued, with seeds, on Ray, and in TensorBoard, W&B and Optuna."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import maze_pl
from maze_pl.sweeps.result import SweepResult
from tests.run_directory import wandb_file

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "config": "ppo_cartpole",
    "options": {
        "data.epoch_length": 2,
        "data.n_envs": 2,
        "data.n_rollout_steps": 50,
        "data.evaluators": {"eval": {"n_episodes": 2}},
        "model.batch_size": 50,
        "wandb": True,
    },
    "search": {
        "model.lr": {"low": 1e-4, "high": 1e-2, "log": True},
        "trainer.max_epochs": {"low": 8, "high": 10},
    },
    "sampler": {"name": "tpe", "n_startup_trials": 1},
    "n_trials": 2,
}


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAZE_PL", "PL_"))}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}
    words = [sys.executable, "-m", "maze_pl", "sweep", *options]
    return subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)


def until(condition: Callable[[], Any], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


def processes_in(folder: Path) -> list[str]:
    """Processes whose working directory is a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_there = entry.name.isdigit() and os.readlink(entry / "cwd") == str(folder)
        except OSError:
            continue
        if is_there and int(entry.name) != os.getpid():
            found.append(entry.name)
    return found


def n_epochs(run: Path) -> int:
    path = run / "metrics.csv"
    return len(path.read_text(encoding="utf-8").splitlines()) - 1 if path.is_file() else 0


def checkpoint(trial: Any) -> dict[str, Any]:
    return torch.load(trial.run_dir / "checkpoints" / "last.ckpt", weights_only=True)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SweepResult]:
    """A sweep that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "search.yaml").write_text(yaml.safe_dump(SMALL, sort_keys=False), encoding="utf-8")
    assert start(folder, "search.yaml", "--run_dir", "sweep").wait(600) == 0
    yield SweepResult(folder / "sweep")


@pytest.mark.long
def test_a_sweep_whose_processes_were_all_killed_continues_bit_for_bit(whole: SweepResult, tmp_path: Path) -> None:
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(SMALL, sort_keys=False), encoding="utf-8")
    process = start(tmp_path, "search.yaml", "--run_dir", "sweep")
    until(lambda: n_epochs(tmp_path / "sweep" / "trial_0001") >= 3 or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    until(lambda: not processes_in(tmp_path))
    assert [trial.status for trial in SweepResult(tmp_path / "sweep").trials] == ["finished", "under way"]
    assert n_epochs(tmp_path / "sweep" / "trial_0001") < 8
    assert start(tmp_path, "--resume", "sweep").wait(600) == 0
    again = SweepResult(tmp_path / "sweep")
    for one, other in zip(whole.trials, again.trials, strict=True):
        assert (one.status, one.assignment, one.values) == ("finished", other.assignment, other.values)
        ours, theirs = checkpoint(one), checkpoint(other)
        for name, value in ours["state_dict"].items():
            assert not isinstance(value, torch.Tensor) or torch.equal(value, theirs["state_dict"][name])
        assert ours["epoch"] == theirs["epoch"]
    command = (tmp_path / "sweep" / "trial_0001" / "command.txt").read_text(encoding="utf-8").splitlines()
    assert command[1:] == ["maze-pl fit --resume sweep/trial_0001"]


@pytest.mark.long
def test_nothing_survives_a_killed_sweep_and_its_seeds_are_continued(tmp_path: Path) -> None:
    content = {**SMALL, "n_trials": 1, "n_seeds": 2, "options": {**SMALL["options"], "wandb": False}}
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    process = start(tmp_path, "search.yaml", "--run_dir", "sweep")
    until(lambda: n_epochs(tmp_path / "sweep" / "trial_0000" / "seed_0") >= 2 or process.poll() is not None)
    assert process.poll() is None
    process.kill()  # of its trial and seed, nobody tells the processes
    process.wait()
    assert start(tmp_path, "--resume", "sweep").wait(600) == 0  # waits for them to end
    until(lambda: not processes_in(tmp_path))
    (trial,) = SweepResult(tmp_path / "sweep").trials
    assert trial.status == "finished"
    for seed in (0, 1):
        assert n_epochs(trial.run_dir / f"seed_{seed}") == trial.assignment["trainer.max_epochs"]


def test_trials_are_ordinary_runs(whole: SweepResult) -> None:
    trial = whole.best_trials[0]
    algorithm = maze_pl.load(trial.run_dir)
    assert algorithm.lr == trial.assignment["model.lr"]
    returns = maze_pl.read_metrics(trial.run_dir)["eval_BaseEnvEvents/reward/mean"]
    assert returns.max() == trial.values[0]


def test_tensorboard_compares_trials_by_searched_options(whole: SweepResult) -> None:
    from tensorboard import context
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(whole.folder))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(whole.folder))
    backend = backend_context.Context(base_plugin.TBContext(data_provider=provider, logdir=str(whole.folder)))
    request = context.RequestContext()
    experiment = get_experiment.Handler(request, backend, "", api_pb2.GetExperimentRequest()).run()
    assert [column.name for column in experiment.hparam_infos] == ["model.lr", "trainer.max_epochs"]
    assert [column.name.tag for column in experiment.metric_infos] == ["eval_BaseEnvEvents/reward/mean"]
    everything = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=9, allowed_statuses=[0, 1, 2, 3])
    groups = list_session_groups.Handler(request, backend, "", everything).run().session_groups
    found = [{name: value.number_value for name, value in group.hparams.items()} for group in groups]
    assert found == [dict(trial.assignment) for trial in whole.trials]
    last = [maze_pl.read_metrics(trial.run_dir)["eval_BaseEnvEvents/reward/mean"].iloc[-1] for trial in whole.trials]
    assert [group.metric_values[0].value for group in groups] == pytest.approx(last)


def test_wandb_groups_trials_with_their_searched_options(whole: SweepResult) -> None:
    for trial in whole.trials:
        (path,) = trial.run_dir.glob("wandb/offline-run-*/*.wandb")
        run = wandb_file.read(path)
        assert (run.group, run.name) == ("sweep", trial.run_dir.name)
        assert run.config["hyperparameters"] == dict(trial.assignment)


@pytest.mark.long
def test_trials_run_on_ray_at_the_same_time(tmp_path: Path) -> None:
    content = {**SMALL, "n_parallel": 2, "runner": "ray", "options": {**SMALL["options"], "wandb": False}}
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    assert start(tmp_path, "search.yaml", "--run_dir", "sweep").wait(600) == 0
    until(lambda: not processes_in(tmp_path))
    trials = SweepResult(tmp_path / "sweep").trials
    assert [trial.status for trial in trials] == ["finished"] * 2
    began = [(trial.run_dir / "config.yaml").stat().st_mtime for trial in trials]
    ended = [(trial.run_dir / "final_evaluation.json").stat().st_mtime for trial in trials]
    assert max(began) < min(ended)
