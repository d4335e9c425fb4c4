"""Environments that cannot be imported do not hinder a command that replaces them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.config.assembling import prepare
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import GymMazeEnv
from maze_pl.run_context.commands import assembled_configuration


def make_env(name: str = "CartPole-v1", limit: int = 9) -> GymMazeEnv:
    return GymMazeEnv(name, max_episode_steps=limit)


PATH = f"{__name__}.make_env"
OF_BOTH = {"class_path": PATH, "init_args": {"name": "CartPole-v1", "limit": 5}}
OLD = {"class_path": "renamed.team.make_env", "init_args": {"limit": 5, "dropped": 1}}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"env": OLD, "evaluators": {"held_out": {"env": OLD}}}
    content = {"base": "ppo_auto", "data": {"init_args": arguments}}
    Path("old.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


@pytest.mark.parametrize("option", ["--data.env", "--data.env.class_path", "--data.init_args.env"])
def test_the_environment_of_a_later_option_takes_over_its_arguments(option: str) -> None:
    words = [
        "fit",
        "--config",
        "old.yaml",
        option,
        PATH,
        "--data.evaluators.held_out.env",
        PATH,
        "--data.env.name",
        "a",
    ]
    arguments: Any = assembled_configuration(words, {}, is_silent=True)["data"]["init_args"]
    assert arguments["env"] == {"class_path": PATH, "init_args": {"name": "a", "limit": 5}}
    assert arguments["evaluators"]["held_out"]["env"] == OF_BOTH


def make_large_env(name: str = "CartPole-v1", **further: Any) -> GymMazeEnv:
    return GymMazeEnv(name, **further)


FURTHER = {"class_path": "maze_pl.envs.make_gym_maze_env", "dict_kwargs": {"limit": 3, "render_mode": "rgb_array"}}


@pytest.mark.parametrize("name", ["make_env", "make_large_env"])
def test_further_arguments_are_dropped_if_the_later_environment_does_not_take_them(name: str) -> None:
    path = f"{__name__}.{name}"
    arguments = {"env": FURTHER, "evaluators": {"held_out": {"env": "${data.env}"}}}
    content = {"base": "ppo_auto", "data": {"init_args": arguments}}
    Path("further.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    words = ["fit", "--config", "further.yaml", "--data.env", path]
    found: Any = assembled_configuration(words, {}, is_silent=True)["data"]["init_args"]
    others = {"render_mode": "rgb_array"}
    for env in (found["env"], found["evaluators"]["held_out"]["env"]):
        made_with = {**env["init_args"], **env.get("dict_kwargs", {})}
        assert made_with["limit"] == 3
        assert made_with.get("render_mode") == (None if name == "make_env" else "rgb_array")
    dropped = [(FURTHER["class_path"], path, others)] if name == "make_env" else []
    assert prepare(words).dropped == dropped


def test_short_names_are_not_taken_for_missing_environments() -> None:
    words = prepare(["check", "--env", "{class_path: GymMazeEnv, init_args: {env: CartPole-v1}}", "--env", PATH])
    assert words[1] == "--env={class_path: GymMazeEnv, init_args: {env: CartPole-v1}}"


def test_nothing_is_replaced_if_neither_can_be_imported_or_both_can() -> None:
    words = prepare(["check", "--env", "a.make_env", "--env", "b.make_env"])
    assert words[1:] == ["--env={class_path: a.make_env}", "--env={class_path: b.make_env}"]
    library = "--env={class_path: maze_pl.envs.GymMazeEnv}"
    assert prepare(["check", "--env", "maze_pl.envs.GymMazeEnv", "--env", PATH])[1] == library


def test_runs_need_trust_as_before() -> None:
    Path("run").mkdir()
    Path("run", "config.yaml").write_text(Path("old.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    options = ["--data.env", PATH, "--data.evaluators.held_out.env", PATH]
    with pytest.raises(ConfigurationError, match=r"renamed\.team\.make_env"):
        prepare(["fit", "--resume", "run", *options])
    words = prepare(["fit", "--resume", "run", "--trust", *options])
    assert words.written["data"]["init_args"]["env"] == OF_BOTH
