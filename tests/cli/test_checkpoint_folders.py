"""Folders of checkpoints: they follow a run that continues elsewhere, and belong to one run."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from jsonargparse import Namespace

from maze_pl.__main__ import main
from maze_pl.cli.checkpoint_folders import folders_below, move_checkpoint_folders, refuse_folders_of_other_runs
from maze_pl.cli.fit_options import default_checkpoint
from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.provenance import append_provenance, collect_provenance
from maze_pl.runs.run_move import Move

KEEPER = "pytorch_lightning.callbacks.ModelCheckpoint"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAZE_PL_RUN_DIR", "")
    return tmp_path


def configuration(best: str | None, last: str | None, mine: str | None, root: str | None) -> Namespace:
    keeper = Namespace(class_path=KEEPER, init_args=Namespace(dirpath=mine, monitor="eval/return"))
    return Namespace(
        best_checkpoint=Namespace(monitor="eval/return", dirpath=best),
        last_checkpoint=Namespace(every_n_epochs=1, dirpath=last),
        trainer=Namespace(callbacks=[Namespace(class_path="mine.Other"), keeper], default_root_dir=root),
    )


def folders(configured: Namespace) -> dict[str, str]:
    parts = ("best_checkpoint", "last_checkpoint", "trainer")
    return {one.option: one.path for name in parts for one in folders_below(configured[name], name)}


def test_folders_in_a_parsed_configuration_and_in_a_file_are_found() -> None:
    names = ["best_checkpoint.dirpath", "last_checkpoint.dirpath", "trainer.callbacks.dirpath"]
    found = folders(configuration("a", "b", "c", "d"))
    assert found == dict(zip([*names, "trainer.default_root_dir"], "abcd", strict=True))
    assert folders(configuration(None, None, None, None)) == {}
    text = f"callbacks: [{{class_path: {KEEPER}, init_args: {{dirpath: c}}}}]\ndefault_root_dir: d"
    assert [(one.option, one.path) for one in folders_below(yaml.safe_load(text), "trainer")] == list(found.items())[2:]


@pytest.mark.parametrize("is_moved", [True, False])
def test_folders_in_the_directory_of_a_run_go_where_it_continues(folder: Path, is_moved: bool) -> None:
    Path("old").mkdir()
    append_provenance(Path("old"), collect_provenance(["maze-pl", "fit", "--run_dir", "old"], 0))
    source = "old"
    if is_moved:
        shutil.move("old", "new")
        source = "new"
    both = [configuration("old/best", f"{folder}/old", "old/mine", "old"), configuration("older", "new/x", None, "..")]
    move_checkpoint_folders(both, Move(source, "new"))
    assert list(folders(both[0]).values()) == ["new/best", "new", "new/mine", "new"]
    assert list(folders(both[1]).values()) == ["older", "new/x", ".."]


def test_a_run_in_the_directory_of_the_run_that_it_starts_from_keeps_its_folders() -> None:
    configured = configuration("old/second/best", None, None, None)
    move_checkpoint_folders([configured], Move("old", "old/second"))
    assert list(folders(configured).values()) == ["old/second/best"]


def test_folders_in_the_directory_of_another_run_are_refused() -> None:
    for name in ("first", "second", "first/inner"):
        Path(name).mkdir()
        Path(name, "config.yaml").touch()
        Path(name, "run.log").touch()
    refuse_folders_of_other_runs(configuration("second", "second/mine", "elsewhere", "."), "second")
    refuse_folders_of_other_runs(configuration("first/shared", None, None, None), "first/inner")
    message = r"last_checkpoint\.dirpath=first/mine is in the directory of another run, .*/first: choose another folder"
    with pytest.raises(ConfigurationError, match=message):
        refuse_folders_of_other_runs(configuration(None, "first/mine", None, None), "second")


@pytest.mark.parametrize(
    "configured", [(None, "root", "root/checkpoints"), ("kept", "root", "kept"), (None, None, None)]
)
def test_a_run_continues_from_the_folder_that_its_options_name(configured: tuple[str | None, ...]) -> None:
    last, root, expected = configured
    options = configuration(None, last, None, root)
    options.update(Namespace(resume="run", print_model=None))
    Path("run").mkdir()
    if expected is None:
        assert default_checkpoint(options, is_training=True) is None  # it has not written any
    else:
        with pytest.raises(
            ConfigurationError, match=f"{expected} of the run run does not exist: resume in the directory"
        ):
            default_checkpoint(options, is_training=True)
    folder = Path(expected or "run/checkpoints")
    folder.mkdir(parents=True)
    (folder / "last.ckpt").touch()
    assert default_checkpoint(options, is_training=True) == str(folder / "last.ckpt")


SHORT = shlex.split(
    "--config ppo_cartpole_arrays --data.n_envs 8 --data.env.max_episode_steps 9 --data.epoch_length 1 "
    "--data.evaluators.eval.n_episodes 2 --data.n_rollout_steps 20 --model.batch_size 160 --trainer.max_epochs 1"
)


def fit(*options: str) -> int:
    return main(["fit", *options])


def env_steps(file: str) -> int:
    steps: int = torch.load(file, weights_only=True)["maze_pl"]["env_steps"]
    return steps


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The dirpath has changed")  # of the callback of Lightning in the moved run
@pytest.mark.filterwarnings("ignore:Checkpoint directory")  # which is not empty
def test_runs_that_start_from_a_run_leave_its_checkpoints_alone_and_a_moved_run_continues_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = ["best/best.ckpt", "kept/last.ckpt", "mine/epoch=0.ckpt"]
    keeper = f"{{class_path: {KEEPER}, init_args: {{dirpath: '${{run_dir}}/mine', filename: '{{epoch}}'}}}}"
    mine = ["--best_checkpoint.dirpath", "${run_dir}/best", "--last_checkpoint.dirpath", "${run_dir}/kept"]
    assert fit("--run_dir", "base", *SHORT, *mine, f"--trainer.callbacks=[{keeper}]") == 0
    assert sorted(str(path) for path in Path("base").rglob("*.ckpt")) == [f"base/{name}" for name in files]
    assert main(["validate", "base", "--trust"]) == 0
    assert "has no best.ckpt" not in capsys.readouterr().err
    before = {path: path.read_bytes() for path in Path("base").rglob("*") if path.is_file()}
    assert fit("--warm-start", "base/mine/epoch=0.ckpt", "--run_dir", "refused", "--config", "base/config.yaml") == 2
    assert "is in the directory of another run" in capsys.readouterr().err
    assert fit("--warm-start", "base", "--run_dir", "warm", "--trust") == 0
    assert sorted(str(path) for path in Path("warm").rglob("*.ckpt")) == [f"warm/{name}" for name in files]
    assert all(path.read_bytes() == content for path, content in before.items())
    shutil.move("base", "moved")
    assert fit("--resume", "moved", "--trainer.max_epochs", "2", "--trust") == 0
    assert env_steps("moved/kept/last.ckpt") == 320
    assert Path("moved/mine/epoch=1.ckpt").is_file()
    assert not Path("base").exists()
