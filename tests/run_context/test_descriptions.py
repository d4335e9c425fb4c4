"""Descriptions of Python values as YAML."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import maze_pl
from maze_pl import RunContext
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import RewardScalingWrapper
from maze_pl.modules import A2C
from maze_pl.run_context.descriptions import Descriptions
from tests.run_context.small_run import SMALL


class OfScript(A2C):
    """Algorithm that a script or a notebook defines.

    Args:
        bonus: A further argument.
    """

    def __init__(self, bonus: float = 0.0, lr: float = 1e-3, **options: Any) -> None:
        super().__init__(lr=lr, **options)
        self.bonus = bonus


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the running script, which has defined the algorithm."""
    module = sys.modules["__main__"]
    monkeypatch.setattr(OfScript, "__module__", "__main__")
    monkeypatch.setattr(module, "OfScript", OfScript, raising=False)
    return module


def test_stand_ins_say_what_they_stand_for() -> None:
    class Local(RewardScalingWrapper):
        """A class that cannot be imported."""

    described = [Descriptions().of("env", value) for value in (Local, lambda: None, object())]
    texts = [node["init_args"]["description"] for node in described]
    assert texts == ["the class Local", "the function <lambda>", "a object"]


def test_a_wrapper_around_an_environment_is_refused_with_a_remedy() -> None:
    wrapped: Any = RewardScalingWrapper(GymMazeEnv("CartPole-v1"), 0.5)
    with pytest.raises(TypeError, match=r"^wrappers=.*: give its class, a functools.partial of it, or a function"):
        RunContext(algorithm="ppo", wrappers=[wrapped])


def test_a_run_that_needs_trust_names_the_argument(tmp_path: Any) -> None:
    configuration = "{model: {class_path: subprocess.getoutput}, data: {class_path: a.b}}\n"
    (tmp_path / "config.yaml").write_text(configuration, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"if you trust the origin of this run, pass trust=True$"):
        RunContext(run_dir=tmp_path, silent=True).train(1)


def test_algorithms_of_the_running_script_have_a_class_path(script: Any) -> None:
    path = "__main__.OfScript"
    assert Descriptions().algorithm(OfScript) == {"class_path": path}
    assert Descriptions().algorithm(partial(OfScript, lr=0.1)) == {"class_path": path, "init_args": {"lr": 0.1}}
    command = RunContext(algorithm=partial(OfScript, bonus=0.5), overrides={"algorithm.lr": 0.1}).command
    assert command[:3] == ["fit", "--config", "conf_train/a2c"]  # with the defaults of the nearest ancestor
    assert command[-2:] == ["--model.lr", "0.1"]


@pytest.mark.parametrize(
    ("algorithm", "told"),
    [
        (
            lambda: A2C(),
            r"^algorithm=<function .* must be a name, a dict, a class, a functools.partial of a class, or a",
        ),
        (partial(A2C, None), r"^algorithm=functools.partial\(.* has arguments without a name: name them, as in"),
        (
            type("Local", (A2C,), {"__qualname__": "f.<locals>.Local"}),
            r"f.<locals>.Local does not lead to this class; d",
        ),
    ],
)
def test_algorithms_that_no_class_path_leads_to_are_refused(algorithm: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        RunContext(algorithm=algorithm)


def test_an_earlier_definition_of_a_class_is_refused(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "OfScript", A2C)
    with pytest.raises(TypeError, match=r"^algorithm: __main__.OfScript does not lead .* give its latest definition$"):
        RunContext(algorithm=OfScript)


def test_a_run_whose_script_is_not_running_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{model: {class_path: __main__.OfScript}, data: {}}\n", encoding="utf-8")
    (tmp_path / "metrics.csv").write_text("epoch\n0\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"needs the class OfScript of the script or notebook that started"):
        RunContext(run_dir=tmp_path, silent=True, trust=True)


@pytest.mark.slow
def test_an_algorithm_of_the_running_script_trains_continues_and_is_loaded(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"run_dir": tmp_path / "run", "silent": True}
    context = RunContext(algorithm=partial(OfScript, bonus=0.5), overrides=SMALL, **options)
    context.train(1)
    assert isinstance(context.agent, OfScript)
    model = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text(encoding="utf-8"))["model"]
    assert (model["class_path"], model["init_args"]["bonus"]) == ("__main__.OfScript", 0.5)
    with pytest.raises(ConfigurationError, match=r"__main__.OfScript.*; if you trust .*, pass trust=True$"):
        RunContext(**options).train(2)
    resumed = RunContext(trust=True, **options)
    resumed.train(2)
    assert resumed.agent.bonus == 0.5
    monkeypatch.delattr(script, "OfScript")
    with pytest.raises(
        ImportError, match=r"__main__ has nothing named OfScript: define it in the running script or no"
    ):
        maze_pl.load(tmp_path / "run", trust=True)
