"""Options in the wrong section of a file or of a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.cli.option_check import check_options
from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.section_messages import component_options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: ppo_cartpole\nlr: 1.0e-3\n", "train.yaml: there is no option 'lr'; did you mean model.lr?"),
        ("base: ppo_cartpole\nmodel:\nlr: 1.0e-3\n", "train.yaml: there is no option 'lr'; did you mean model.lr?"),
        ("bases: ppo_cartpole\nmodel: {lr: 1.0e-3}\n", "train.yaml: there is no option 'bases'; did you mean base?"),
        (
            "model: algorithm/ppo\ndata: {n_envs: 2}\n",
            "data has an option 'n_envs', but no class_path: name one, "
            "or begin with a complete configuration (`base: ppo_cartpole`)",
        ),
    ],
    ids=["top level", "not indented", "bases", "no class path"],
)
def test_an_option_in_the_wrong_place_of_a_file_is_named_with_the_file(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as error:
        check_options([["fit", "--config", "train.yaml"]])
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("option", "meant"), [("lr", "model.lr"), ("n_episodes", "data.evaluators.eval.n_episodes"), ("env", "data.env")]
)
def test_an_option_without_its_section_leads_to_that_of_the_configured_class(option: str, meant: str) -> None:
    evaluators = "{eval: {class_path: maze_pl.datamodules.RolloutEvaluator}}"
    words = ["fit", "--config", "ppo_cartpole", "--data.evaluators", evaluators, f"--{option}", "1"]
    with pytest.raises(ConfigurationError, match=rf"unrecognized arguments: --{option}=1; did you mean --{meant}\?$"):
        check_options([words])


def test_options_of_a_class_that_cannot_be_imported_are_left_out() -> None:
    unknown = {"class_path": "no_such_package.Model", "init_args": {"part": {"class_path": f"{__name__}.Part"}}}
    assert list(component_options(unknown, "model")) == ["model.part.size"]
    assert list(component_options([{}, {"class_path": f"{__name__}.Part"}], "parts")) == ["parts.size"]
    assert list(component_options(None, "model")) == list(component_options([], "model")) == []


class Part:
    def __init__(self, size: int) -> None:
        self.size = size
