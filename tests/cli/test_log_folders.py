"""Folders of loggers: each run has separate ones, wherever the configuration puts them."""

from __future__ import annotations

import csv
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonargparse import Namespace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from maze_pl.__main__ import main
from maze_pl.callbacks import MetricsFile, TensorBoardLog
from maze_pl.cli.log_folders import move_log_folders, run_loggers, separate_log_folders
from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.provenance import append_provenance, collect_provenance
from maze_pl.runs.run_move import Move

RETURN = "train_BaseEnvEvents/reward/mean"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAZE_PL_RUN_DIR", "")
    return tmp_path


def configuration(*save_dirs: str | None, name: str = "maze_pl.loggers.MetricsFile") -> Namespace:
    loggers = [Namespace(class_path=name, init_args=Namespace(save_dir=save_dir)) for save_dir in save_dirs]
    return Namespace(trainer=Namespace(logger=loggers))


def save_dirs(configured: Namespace) -> list[str | None]:
    return [logger.init_args.save_dir for logger in configured.trainer.logger]


def test_seeds_and_trials_have_subfolders_of_a_folder_outside_of_their_run_directories() -> None:
    Path("sweep/trial_0001/seed_0").mkdir(parents=True)
    Path("sweep/sweep.yaml").touch()
    Path("sweep/trial_0001/seeds.json").touch()
    Path("alone").mkdir()
    for run_dir, names in (("sweep/trial_0001/seed_0", ["trial_0001", "seed_0"]), ("alone", [])):
        configured = configuration("logs", None, f"{run_dir}/mine")
        separate_log_folders(configured, run_dir)
        assert save_dirs(configured) == [str(Path("logs", *names)), None, f"{run_dir}/mine"]
    others = configuration("logs", name="pytorch_lightning.loggers.CSVLogger")  # it numbers its folders
    separate_log_folders(others, "sweep/trial_0001/seed_0")
    assert save_dirs(others) == ["logs"]


def test_the_directory_of_another_run_is_refused() -> None:
    for name in ("first", "second"):
        Path(name).mkdir()
        Path(name, "config.yaml").touch()
    separate_log_folders(configuration("second", "second/mine", "first/mine"), "second")
    with pytest.raises(ConfigurationError, match=r"save_dir=first is the directory of another run: omit it"):
        separate_log_folders(configuration("first"), "second")


@pytest.mark.parametrize("is_moved", [True, False])
def test_folders_in_the_directory_of_a_run_go_where_it_continues(folder: Path, is_moved: bool) -> None:
    Path("old").mkdir()
    append_provenance(Path("old"), collect_provenance(["maze-pl", "fit", "--run_dir", "old"], 0))
    source = "old"
    if is_moved:
        shutil.move("old", "new")
        source = "new"
    both = [configuration("old", f"{folder}/old/mine", "older", None), configuration("old")]
    move_log_folders(both, Move(source, "new"))
    assert [save_dirs(one) for one in both] == [["new", "new/mine", "older", None], ["new"]]


def test_commands_given_in_a_folder_above_move_nothing(folder: Path) -> None:
    Path("run").mkdir()
    append_provenance(Path("run"), collect_provenance(["maze-pl", "fit", "--resume", "."], 0))
    configured = configuration("logs")
    move_log_folders([configured], Move("run", "next"))
    assert save_dirs(configured) == ["logs"]


def test_a_run_without_loggers_in_its_configuration_has_tensorboard_and_the_metrics_file() -> None:
    for configured in (None, True):
        loggers: Any = run_loggers(configured, "run", has_wandb=False)
        assert [type(logger) for logger in loggers] == [TensorBoardLog, MetricsFile]
    mine = MetricsFile("elsewhere")
    assert run_loggers(mine, "run", has_wandb=False) == [mine]
    assert run_loggers([mine], None, has_wandb=False) is False


def test_other_loggers_take_the_place_of_tensorboard_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    run_loggers(None, "run", has_wandb=False)
    run_loggers([MetricsFile("elsewhere"), TensorBoardLog("run")], "run", has_wandb=False)
    run_loggers([MetricsFile("elsewhere")], None, has_wandb=False)
    assert capsys.readouterr().err == ""
    run_loggers([MetricsFile("elsewhere")], "run", has_wandb=False)
    message = "trainer.logger takes the place of TensorBoard: to keep it, add --trainer.logger+ "
    assert f"maze-pl: {message}maze_pl.callbacks.TensorBoardLog\n" == capsys.readouterr().err


def test_without_a_folder_a_logger_writes_to_the_run_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", "run")
    MetricsFile().log_metrics({"a": 1}, step=1)
    board = TensorBoardLog()
    assert Path("run/metrics.csv").is_file()
    assert board.log_dir == str(Path("run/tensorboard").absolute())
    assert board.view_command == "tensorboard --logdir run/tensorboard"


LOGGERS = [{"class_path": f"maze_pl.loggers.{name}"} for name in ("TensorBoardLog", "MetricsFile")]
SHORT = (
    "ppo_cartpole_arrays --data.n_envs 8 --data.env.max_episode_steps 9 --data.epoch_length 1 "
    "--data.evaluators.eval.n_episodes 2 --data.n_rollout_steps 20 --model.batch_size 160 --trainer.max_epochs 1"
)


def fit(*options: str) -> int:
    return main(["fit", *options])


def loggers(save_dir: str) -> list[str]:
    nodes = [{**logger, "init_args": {"save_dir": save_dir}} for logger in LOGGERS]
    return ["--config", *shlex.split(SHORT), "--trainer.logger", yaml.safe_dump(nodes, default_flow_style=True)]


def steps_of(folder: str) -> tuple[list[int], list[int]]:
    """Env steps with a training return in `metrics.csv` and in TensorBoard."""
    with Path(folder, "metrics.csv").open(encoding="utf-8") as file:
        rows = [int(row["step"]) for row in csv.DictReader(file) if row[RETURN]]
    events = EventAccumulator(str(Path(folder, "tensorboard"))).Reload()
    return rows, [point.step for point in events.Scalars(RETURN)]


@pytest.mark.slow
def test_runs_that_start_from_a_run_leave_its_logs_alone_and_a_moved_run_continues_its_own() -> None:
    assert fit("--run_dir", "base", *loggers("base")) == 0
    before = {path: path.read_bytes() for path in Path("base").rglob("*") if path.suffix == ".csv"}
    first = steps_of("base")
    assert first[0] == first[1] == [160]
    assert fit("--warm-start", "base", "--run_dir", "warm") == 0
    assert fit("--run_dir", "again", *loggers("base")) == 2
    assert steps_of("warm") == steps_of("base") == first
    assert all(path.read_bytes() == content for path, content in before.items())
    shutil.move("base", "moved")
    assert fit("--resume", "moved", "--trainer.max_epochs", "2") == 0
    assert steps_of("moved") == ([160, 320], [160, 320])
    assert not os.path.exists("base")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_seeds_with_one_folder_for_their_logs_all_keep_them() -> None:
    assert fit("--run_dir", "runs", "--seeds", "2", *loggers("logs")) == 0
    for seed in (0, 1):
        assert steps_of(f"logs/seed_{seed}") == ([160], [160])
    assert sorted(path.name for path in Path("logs").iterdir()) == ["seed_0", "seed_1"]
