"""An environment that replaces another one takes over its arguments, also if the other one cannot be imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.cli.check import check, parsed
from maze_pl.config.assembling import prepare
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import GymMazeEnv
from maze_pl.run_context.commands import assembled_configuration


def make_env(name: str = "CartPole-v1", limit: int = 9) -> GymMazeEnv:
    return GymMazeEnv(name, max_episode_steps=limit)


PATH = f"{__name__}.make_env"
OF_BOTH = {"class_path": PATH, "init_args": {"name": "CartPole-v1", "limit": 5}}
LIMITED = {"name": "CartPole-v1", "limit": 3}
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


OTHERS = {"render_mode": "rgb_array"}


def write_further(*, later: object = None) -> None:
    """Write a file with further arguments of its environment, and one with another part of the environment."""
    arguments = {"env": FURTHER, "evaluators": {"held_out": {"env": "${data.env}"}}}
    content = {"base": "ppo_auto", "data": {"init_args": arguments}}
    Path("further.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    content = {"base": "further.yaml", "data": {"init_args": {"env": later}}}
    Path("later.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def environments(words: list[str]) -> list[dict[str, Any]]:
    """The environments of training and of the evaluator in the configuration of a command."""
    found: Any = assembled_configuration(words, {}, is_silent=True)["data"]["init_args"]
    return [found["env"], found["evaluators"]["held_out"]["env"]]


@pytest.mark.parametrize("name", ["make_env", "make_large_env"])
def test_further_arguments_are_dropped_if_the_later_environment_does_not_take_them(name: str) -> None:
    write_further()
    path = f"{__name__}.{name}"
    words = ["fit", "--config", "further.yaml", "--data.env", path]
    expected: dict[str, Any] = {"class_path": path, "init_args": LIMITED}
    if name == "make_large_env":
        further = {"limit": 3, **OTHERS}
        expected = {"class_path": path, "init_args": {"name": "CartPole-v1"}, "dict_kwargs": further}
    assert environments(words) == [expected] * 2
    assert prepare(words).dropped == ([(FURTHER["class_path"], path, OTHERS)] if name == "make_env" else [])


@pytest.mark.parametrize(
    "later",
    [
        ["--data.env", PATH, "--data.env.limit", "5"],
        ["--data.env.class_path", PATH, "--data.env.init_args.limit", "5"],
        ["--data.env.dict_kwargs", "{limit: 4}", "--data.env", f"{{class_path: {PATH}, init_args: {{limit: 5}}}}"],
        ["--data.env", "a.missing", "--data.env", PATH, "--data.env", "{init_args: {limit: 5}}"],
    ],
)
def test_later_options_take_precedence_over_further_arguments(later: list[str]) -> None:
    write_further()
    assert environments(["fit", "--config", "further.yaml", *later]) == [OF_BOTH] * 2


def test_further_arguments_of_a_file_without_class_path_belong_to_that_of_its_base() -> None:
    write_further(later={"dict_kwargs": {"limit": 5, "render_mode": "human"}})
    words = ["fit", "--config", "later.yaml", "--data.env", PATH]
    assert environments(words) == [OF_BOTH] * 2
    assert prepare(words).dropped == [(FURTHER["class_path"], PATH, {"render_mode": "human"})]
    unchanged = prepare(words[:3]).written["data"]["init_args"]["env"]
    assert unchanged["dict_kwargs"] == {"limit": 5, "render_mode": "human"}


def test_a_file_without_class_path_may_have_arguments_of_an_environment_that_is_missing() -> None:
    content = {"base": "old.yaml", "data": {"init_args": {"env": {"init_args": {"limit": 6, "dropped": 2}}}}}
    Path("later.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    options = ["--data.env", PATH, "--data.evaluators.held_out.env", PATH]
    words = ["fit", "--config", "later.yaml", *options]
    assert [env["init_args"]["limit"] for env in environments(words)] == [6, 5]
    told = [(one.previous, one.arguments) for one in prepare(words).dropped]
    assert told == [(OLD["class_path"], {"dropped": 2}), (OLD["class_path"], {"dropped": 1})]


class Mazes:
    @staticmethod
    def small(limit=9):  # type: ignore[no-untyped-def]
        return make_env(limit=limit)


def test_a_method_may_replace_an_environment_that_is_missing() -> None:
    path = f"{__name__}.Mazes.small"
    words = ["fit", "--config", "old.yaml", "--data.env", path, "--data.evaluators.held_out.env", path]
    assert environments(words) == [{"class_path": path, "init_args": {"limit": 5}}] * 2


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


def test_environments_of_runs_are_replaced_without_trust_if_they_are_of_a_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = {"env": FURTHER, "evaluators": {"held_out": {"env": FURTHER}}}
    content = {"base": "ppo_auto", "data": {"init_args": arguments}}
    Path("run").mkdir()
    Path("run", "config.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    options = ["--data.env", PATH, "--data.evaluators.held_out.env", PATH]
    assert environments(["fit", "--resume", "run", *options]) == [{**OF_BOTH, "init_args": LIMITED}] * 2
    chosen, _ = parsed(check, "check", prepare(["check", "run", "--env", PATH]), description="Check.")
    assert repr(chosen["env"]) == f"{PATH}(name='CartPole-v1', limit=3)"
    assert f"make_env replaces make_gym_maze_env, whose options are dropped: {str(OTHERS)[1:-1]}" in (
        capsys.readouterr().err
    )
