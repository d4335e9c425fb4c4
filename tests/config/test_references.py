"""References between values, and the merging of configurations that they are looked up in."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from maze_pl import RunContext
from maze_pl.config.assembling import prepare
from maze_pl.config.references import merge
from maze_pl.config.search_path import ConfigurationError

COMPONENT = {"class_path": "a.B", "init_args": {"x": 1}}


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
