"""Commands say if the environment in `config.yaml` of a run is not that of its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import maze_pl
from maze_pl.core.checkpoint_content import CHECKPOINT_FORMAT, CHECKPOINT_KEY
from maze_pl.runs.checkpoint_files import read_checkpoint
from maze_pl.runs.other_environment import tell_other_environment

LIMIT = {"class_path": "maze_pl.envs.wrappers.TimeLimitWrapper", "init_args": {"max_episode_steps": 9}}
ENV = {
    "class_path": "maze_pl.envs.GymMazeEnv",
    "init_args": {"env": "CartPole-v1"},
    "dict_kwargs": {"max_episode_steps": 4},
}
UNLIMITED = {**ENV, "dict_kwargs": {"least": float("nan")}}


def config(**changes: Any) -> dict[str, Any]:
    arguments = {"env": ENV, "wrappers": [LIMIT], "n_envs": 2} | changes
    return {"data": {"class_path": "maze_pl.datamodules.RolloutDataModule", "init_args": arguments}}


def run(folder: Path, written: dict[str, Any], **changes: Any) -> Path:
    """Return the checkpoint of a run that was written with changed options, with another configuration file."""
    (folder / "run" / "checkpoints").mkdir(parents=True)
    (folder / "run" / "config.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    entry = {"format": CHECKPOINT_FORMAT, "version": maze_pl.__version__, "config": config(**changes)}
    file = folder / "run" / "checkpoints" / "best.ckpt"
    torch.save({"state_dict": {}, CHECKPOINT_KEY: entry}, file)
    return file


def test_the_first_difference_is_named_and_the_configuration_that_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = {**LIMIT, "init_args": {"max_episode_steps": 7}}
    file = run(tmp_path, config(wrappers=[longer, longer]))
    tell_other_environment(file, read_checkpoint(file), "configuration")
    option = "data.wrappers.0.max_episode_steps and 2 more options"
    both = f"{tmp_path / 'run' / 'config.yaml'} and {file}"
    which = "config.yaml and the options of the command count here"
    assert capsys.readouterr().err == f"maze-pl: {both} differ in {option}: 7 and 9; {which}\n"


def test_environments_are_loaded_as_the_checkpoint_describes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run(tmp_path, config(env={**ENV, "dict_kwargs": {}}))
    env = maze_pl.load_env(file.parents[1])
    env.reset(seed=0)
    assert [env.step({"action": 0})[3] for _ in range(4)] == [False, False, False, True]
    assert "differ in data.env.max_episode_steps: no value and 4; best.ckpt counts here\n" in capsys.readouterr().err


@pytest.mark.parametrize("changes", [{}, {"n_envs": 5}, {"env": "a.make_env"}])
def test_other_options_and_other_forms_of_a_path_make_no_difference(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {**changes, "env": {"class_path": "a.make_env", "init_args": {}}} if "env" in changes else changes
    file = run(tmp_path, config(**written), **({"env": changes["env"]} if "env" in changes else {}))
    tell_other_environment(file, read_checkpoint(file), "checkpoint")
    assert capsys.readouterr().err == ""


def test_checkpoints_without_a_run_or_with_a_damaged_one_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run(tmp_path, config(wrappers=[]))
    (tmp_path / "run" / "config.yaml").write_text("data: [", encoding="utf-8")
    tell_other_environment(file, read_checkpoint(file), "checkpoint")
    (tmp_path / "run" / "config.yaml").unlink()
    tell_other_environment(file, read_checkpoint(file), "checkpoint")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("written", [{"service": {"port": 8080}}, {"data": {"path": "a.csv"}}, {"data": None}, {}])
def test_the_configuration_of_another_program_is_not_compared(
    written: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run(tmp_path, written)
    tell_other_environment(file, read_checkpoint(file), "checkpoint")
    assert capsys.readouterr().err == ""


def test_numbers_that_are_not_a_number_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run(tmp_path, config(env=UNLIMITED), env=UNLIMITED)
    tell_other_environment(file, read_checkpoint(file), "configuration")
    assert capsys.readouterr().err == ""
