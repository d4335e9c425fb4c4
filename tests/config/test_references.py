"""References between values, and the merging of configurations that they are looked up in."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from maze_pl import RunContext
from maze_pl.config.assembling import prepare
from maze_pl.config.references import merge
from maze_pl.config.search_path import ConfigurationError, parse

COMPONENT = {"class_path": "a.B", "init_args": {"x": 1}}


def make_env(name: str = "a", size: int = 3) -> None:
    """Return nothing, and have two options."""


def make_unnamed_env(size: int = 3) -> None:
    """Return nothing, and have one option."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("before", "option", "value", "after"),
    [
        ([COMPONENT, COMPONENT], "x", 2, [COMPONENT, {"class_path": "a.B", "init_args": {"x": 2}}]),
        (["a.B"], "x", 2, [{"class_path": "a.B", "x": 2}]),
        ([COMPONENT], "init_args", {"y": 2}, [{"class_path": "a.B", "init_args": {"x": 1, "y": 2}}]),
        ([], "x", 2, {"x": 2}),
        (COMPONENT, None, "a.C", {"class_path": "a.C", "init_args": {"x": 1}}),
        (COMPONENT, None, "C", {"class_path": "C", "init_args": {"x": 1}}),
        (COMPONENT, None, "text", "text"),
        (COMPONENT, None, [1], [1]),
    ],
)
def test_options_are_merged_into_components_and_last_items(
    before: Any, option: str | None, value: Any, after: Any
) -> None:
    whole = {"data": {"class_path": "a.Data", "init_args": {"wrappers": copy.deepcopy(before)}}}
    content = value if option is None else {option: value}
    merge(whole, {"data": {"wrappers": content}}, 1 if option is None else 2)
    assert whole["data"]["init_args"] == {"wrappers": after}  # type: ignore[index]


@pytest.mark.parametrize("name", ["2026-11-29", "007", "1e3", "run"])
def test_the_run_directory_is_a_text_whatever_it_looks_like(name: str) -> None:
    Path(name).mkdir()
    Path(name, "config.yaml").write_text("trainer: {max_epochs: 1}\n", encoding="utf-8")
    for option in ("--run_dir", "--resume"):
        words = prepare(["fit", option, name, "--best_checkpoint.dirpath", "${run_dir}/b"])
        assert words[-1] == f"--best_checkpoint.dirpath={name}/b"


def test_a_configuration_with_the_run_directory_can_be_used_without_one() -> None:
    Path("mine.yaml").write_text(
        "base: ppo_cartpole\n"
        "variables: {name: CartPole-v0}\n"
        "best_checkpoint: {dirpath: '${run_dir}/best'}\n"
        "data: {init_args: {env: {init_args: {name: '${variables.name}'}}}}\n",
        encoding="utf-8",
    )
    for command in ("check", "rollout", "compare"):
        written = prepare([command, "--config", "mine.yaml"]).written
        assert written["env"]["init_args"]["name"] == "CartPole-v0"
        assert "best_checkpoint" not in written
    with pytest.raises(ConfigurationError, match=r"mine\.yaml refers to run_dir, which is not set"):
        prepare(["fit", "--config", "mine.yaml"])
    command_line = RunContext(configuration="mine.yaml", run_dir="run", silent=True).command
    assert prepare(command_line).written["best_checkpoint"]["dirpath"] == "run/best"


def referring(*words: str, value: str, option: str = "--data.n_envs") -> Any:
    """Value of an option that refers to others, in a command that changes `ppo_cartpole`."""
    last = prepare(["fit", "--config", "ppo_cartpole", *words, option, value])[-1]
    return parse(last.removeprefix(f"{option}="))


def test_references_see_items_that_options_append() -> None:
    added = ("--data.wrappers+", "c.D")
    assert referring(*added, value="${data.wrappers}") == ["c.D"]
    options = (*added, "--data.wrappers.size", "5")
    assert referring(*options, value="${data.wrappers}") == [{"class_path": "c.D", "size": 5}]
    assert referring("--data.wrappers", "[a.B]", *options, value="${data.wrappers.0}") == "a.B"
    held = ("--data.evaluators.held.wrappers", "${data.wrappers}", "--data.evaluators.held.wrappers+", "e.F")
    assert referring(*held, *added, value="${data.evaluators.held.wrappers}") == ["c.D", "e.F"]
    more = ("--data.wrappers+", "[e.F, g.H]")
    assert referring(*added, *more, value="${data.wrappers}") == ["c.D", "e.F", "g.H"]


@pytest.mark.parametrize("form", ["{}", "{{class_path: {}}}"])
def test_references_see_arguments_of_a_replaced_class_that_the_new_one_has(form: str) -> None:
    same, other = (("--data.env", form.format(f"{__name__}.{name}")) for name in ("make_env", "make_unnamed_env"))
    assert referring(*same, value="${data.env.name}") == "CartPole-v1"
    evaluators = referring(*other, value="{held: {env: '${data.env}'}}", option="--data.evaluators")
    assert evaluators["held"]["env"] == {"class_path": other[1].strip("{}").split()[-1], "init_args": {}}
    assert referring(*other, "--data.env.size", "5", value="${data.env}")["init_args"] == {"size": 5}
    with pytest.raises(ConfigurationError, match=r"refers to data\.env\.name, which is not set"):
        referring(*other, value="${data.env.name}")
    assert referring("--data.env", form.format("missing.make_env"), value="${data.env.name}") == "CartPole-v1"


def test_the_name_of_a_class_keeps_arguments_for_references_and_that_of_a_file_does_not() -> None:
    assert referring("--model", "A2C", value="${model.lr}") == 0.00025
    Path("demos.pt").touch()
    assert referring("--data.env", "demos.pt", value="${data.env}") == "demos.pt"


def test_classes_of_an_untrusted_run_are_not_imported_for_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("harmful.py").write_text("raise SystemExit('run')\n", encoding="utf-8")
    known = "{class_path: maze_pl.envs.make_gym_maze_env, init_args: {name: a}}"
    Path("first.yaml").write_text(f"data: {{init_args: {{env: {known}}}}}\n", encoding="utf-8")
    content = "data: {init_args: {env: {class_path: harmful.Env}, evaluators: {eval: {env: '${data.env}'}}}}\n"
    Path("config.yaml").write_text(f"base: first.yaml\n{content}", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"may execute any code: harmful\.Env"):
        prepare(["fit", "--resume", str(tmp_path)])


@pytest.mark.parametrize(
    "text",
    [
        "variables: {data: {class_path: a.B, init_args: {env: {class_path: c.D}}}}\ndata: '${variables.data}'\n",
        "variables: {options: {env: {class_path: c.D}}}\ndata: {class_path: a.B, init_args: '${variables.options}'}\n",
        "base: base.yaml\ndata: a.B\n",
        "base: base.yaml\nwandb: true\n",
        "base: base.yaml\nrun_dir: run\nwarm_start: other\n",
    ],
)
@pytest.mark.parametrize("command", ["check", "rollout", "compare"])
def test_other_commands_take_the_environment_of_any_training_configuration(command: str, text: str) -> None:
    Path("base.yaml").write_text("data: {class_path: a.B, init_args: {env: {class_path: c.D}}}\n", encoding="utf-8")
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert prepare([command, "--config", "mine.yaml"]).written == {"env": {"class_path": "c.D"}}
