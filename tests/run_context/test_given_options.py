"""Schedules, optimisers and composers given to RunContext as objects."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from maze_pl import RunContext
from maze_pl.cli.run_parser import RunParser
from maze_pl.config.search_path import ConfigurationError
from maze_pl.modules import A2C, PPO, ParameterGroup
from maze_pl.perception import CustomModelComposer, FlattenConcatPolicyNet, ProbabilisticPolicyComposer
from maze_pl.schedules import Linear, Piecewise, Schedule
from tests.run_context.small_run import SMALL

GIVEN = "maze_pl.run_context.given.anything"
LINEAR = {"class_path": "maze_pl.schedules.linear.Linear", "init_args": {"start": 0.3, "end": 0.1, "until": 1.0}}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def described(**arguments: Any) -> dict[str, Any]:
    """Return the last option of the command of a context."""
    content: dict[str, Any] = yaml.safe_load(RunContext(**arguments).command[-1])
    return content


def same_weights(*runs: str) -> bool:
    files = [Path(run, "checkpoints", "last.ckpt") for run in runs]
    first, *others = (torch.load(path, weights_only=True)["state_dict"] for path in files)
    return all(torch.equal(first[name], other[name]) for other in others for name in first)


def column(run: str, name: str) -> list[float]:
    with Path(run, "metrics.csv").open() as file:
        return [float(row[name]) for row in csv.DictReader(file)]


class Shifted(Schedule):
    """Schedule whose attributes are not its arguments."""

    def __init__(self, start: float) -> None:
        self.origin = start + 1.0

    def __call__(self, progress: float) -> float:
        return self.origin


def bonus_of(value: float) -> float:
    return value


class WithTeacher(A2C):
    """Algorithm with an argument that is a module, and one that is a function."""

    def __init__(self, teacher: Any = None, bonus: Any = None, lr: float = 1e-3) -> None:
        super().__init__(lr=Linear(lr, 0.0))


def test_options_of_a_module_are_described_as_they_were_given() -> None:
    algorithm = PPO(
        clip_range=Linear(0.3, 0.1),
        lr=Piecewise([(0.0, 0.0), (1.0, 1e-3)], interpolation="constant"),
        optimizer=partial(torch.optim.AdamW, weight_decay=0.01),
        optimizer_groups={"critic.*": ParameterGroup(lr=Linear(0.3, 0.1)), "*.bias": ParameterGroup(weight_decay=0.0)},
        entropy_coef=0.5,
    )
    arguments = described(algorithm=algorithm)["init_args"]
    assert arguments["clip_range"] == LINEAR
    assert arguments["lr"]["init_args"] == {"points": [[0.0, 0.0], [1.0, 1e-3]], "interpolation": "constant"}
    assert arguments["optimizer"] == {"class_path": "torch.optim.adamw.AdamW", "init_args": {"weight_decay": 0.01}}
    assert arguments["optimizer_groups"] == {
        "critic.*": {"lr": LINEAR, "weight_decay": None, "options": {}},
        "*.bias": {"lr": None, "weight_decay": 0.0, "options": {}},
    }
    assert arguments["entropy_coef"] == 0.5
    assert described(algorithm=PPO(optimizer="sgd"))["init_args"]["optimizer"] == "sgd"


def test_schedules_are_described_in_partials_and_overrides_and_functions_are_kept() -> None:
    assert described(algorithm=partial(PPO, clip_range=Linear(0.3, 0.1)))["init_args"] == {"clip_range": LINEAR}
    assert described(algorithm="ppo", overrides={"algorithm.clip_range": Linear(0.3, 0.1)}) == LINEAR
    assert described(overrides={"data.priority_beta": Shifted(0.5)})["class_path"] == GIVEN
    arguments = described(algorithm=PPO(lr=lambda progress: 1e-3, clip_range=lambda progress: 0.2))["init_args"]
    assert {arguments[name]["class_path"] for name in ("lr", "clip_range")} == {GIVEN}
    assert arguments["clip_range"]["init_args"]["name"] == "algorithm.clip_range"


def test_arguments_of_a_subclass_are_those_of_its_constructor_and_modules_are_refused() -> None:
    arguments = described(algorithm=WithTeacher(bonus=bonus_of, lr=0.25))["init_args"]
    assert arguments == {"teacher": None, "bonus": {"class_path": f"{__name__}.bonus_of"}, "lr": 0.25}
    with pytest.warns(UserWarning, match="'teacher' is an instance of `nn.Module`"):
        with_module = WithTeacher(teacher=torch.nn.Linear(1, 1))
    with pytest.raises(TypeError, match=r"its arguments teacher cannot be written as YAML: give \{'class_path'"):
        RunContext(algorithm=with_module)


def test_a_function_replaces_a_class_with_links() -> None:
    parser = RunParser(exit_on_error=False)
    assert parser.add_function_arguments(bonus_of, "bonus", linked_targets={"value"}) == ["bonus.value"]


@pytest.mark.slow
def test_a_composer_and_functions_replace_networks_and_numbers_of_a_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    networks = [partial(FlattenConcatPolicyNet, hidden_units=[8], non_lin="torch.nn.Tanh")]
    composer = CustomModelComposer(ProbabilisticPolicyComposer(networks=networks), None)
    overrides = {"algorithm.lr": lambda progress: 1e-3}
    model = RunContext(algorithm="ppo", model=composer, overrides=overrides).assembled()["model"]
    assert "replaces" not in capsys.readouterr().err
    assert model["init_args"]["networks"]["init_args"] == {"name": "model", "description": "a CustomModelComposer"}
    assert model["init_args"]["lr"]["init_args"]["name"] == "algorithm.lr"


@pytest.mark.slow
def test_given_schedules_and_optimizers_train_as_described_ones(capsys: pytest.CaptureFixture[str]) -> None:
    adam = partial(torch.optim.AdamW, weight_decay=0.1)
    groups = {"critic.*": ParameterGroup(lr=1e-2)}
    given = A2C(lr=Linear(1e-2, 1e-3), entropy_coef=Linear(0.1, 0.0), optimizer=adam, optimizer_groups=groups)
    functions = A2C(
        lr=lambda progress: 1e-2 * (1.0 - progress) + 1e-3 * progress,
        entropy_coef=lambda progress: 0.1 * (1.0 - progress),
        optimizer=lambda parameters: adam(parameters),
        optimizer_groups=groups,
    )
    dictionary = {
        "class_path": "maze_pl.modules.A2C",
        "init_args": {
            "lr": {"class_path": "maze_pl.schedules.Linear", "init_args": {"start": 1e-2, "end": 1e-3}},
            "entropy_coef": {"class_path": "maze_pl.schedules.Linear", "init_args": {"start": 0.1, "end": 0.0}},
            "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"weight_decay": 0.1}},
            "optimizer_groups": {"critic.*": {"lr": 1e-2}},
        },
    }
    algorithms = {"given": given, "functions": functions, "dictionary": dictionary}
    for name, algorithm in algorithms.items():
        RunContext(algorithm=algorithm, overrides=SMALL, run_dir=name, silent=True).train(2)
    assert same_weights(*algorithms)
    for run in algorithms:
        assert column(run, "train_ActorCriticEvents/learning_rate") == pytest.approx([1e-2, 5.5e-3])
        assert column(run, "train_ActorCriticEvents/learning_rate_critic critic.*") == pytest.approx([1e-2, 1e-2])

    # They continue without objects that can be written, and with those that cannot.
    RunContext(run_dir="given", silent=True).train(3)
    resumed = RunContext(run_dir="functions", algorithm=functions, silent=True)
    assert resumed.continues
    resumed.train(3)
    assert same_weights("given", "functions")
    with pytest.raises(ConfigurationError, match=r"was given algorithm.lr \(the function <lambda>\), algorithm.ent"):
        RunContext(run_dir="functions", silent=True).train(4)
    assert not capsys.readouterr().out


@pytest.mark.slow
def test_arguments_of_an_algorithm_that_is_passed_again_count() -> None:
    def first(progress: float) -> float:
        return 1e-3

    RunContext(algorithm=partial(A2C, lr=first), overrides=SMALL, run_dir="run", silent=True).train(1)
    context = RunContext(run_dir="run", algorithm=partial(A2C, lr=first, gamma=0.5), silent=True)
    assert context.continues
    assert context.assembled()["model"]["init_args"]["gamma"] == 0.5
    assert context.assembled()["model"]["init_args"]["gae_lambda"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["a2c", A2C(lr=lambda progress: 1e-3), partial(A2C, lr=lambda progress: 1e-3)])
def test_overrides_change_the_algorithm_of_a_continued_run_as_that_of_a_new_one(algorithm: Any) -> None:
    overrides = {**SMALL, "algorithm.value_loss_coef": lambda progress: 0.5, "algorithm.gamma": 0.5}
    arguments: dict[str, Any] = {"algorithm": algorithm, "overrides": overrides, "run_dir": "run", "silent": True}
    new = RunContext(**arguments).assembled()
    Path("run").mkdir()
    Path("run", "config.yaml").write_text(yaml.safe_dump(new), encoding="utf-8")
    again = RunContext(**arguments)
    assert again.continues
    assert again.assembled()["model"] == new["model"]
    assert new["model"]["init_args"]["gamma"] == 0.5
    others = {**overrides, "algorithm.gamma": 0.7}
    assert RunContext(**{**arguments, "overrides": others}).assembled()["model"]["init_args"]["gamma"] == 0.7


def test_options_that_are_missing_are_named_as_overrides() -> None:
    from maze_pl.config.given_objects import missing

    absent = {"env": "the function make", "data.priority_beta": "the function <lambda>"}
    assert "use RunContext(run_dir=..., env=..., overrides={'data.priority_beta': ...}) in Python" in missing(absent)
