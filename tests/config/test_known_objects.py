"""What of the trusted libraries a configuration of unknown origin may name, as a scan of all of their modules."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import maze_pl
from maze_pl.config.known_objects import FUNCTIONS, LIBRARIES, PACKAGES, is_below, is_known_object
from tests.parsed_files import nodes_of

EXECUTING: Final = frozenset(
    (
        *("pickle", "cloudpickle", "dill", "marshal", "subprocess", "ctypes", "webbrowser", "runpy"),
        *("import_module", "__import__", "import_object", "import_class", "eval", "exec", "Popen"),
        *("system", "rmtree", "unlink", "hub"),
    )
)
"""Names of modules and functions that execute code, start processes or delete files."""

REVIEWED: Final[dict[str, str]] = {
    "callbacks.run_record": "deletes source_folders.txt in the run directory",
    "collect.engines.process_engine": "sends its own jobs to its own processes",
    "collect.engines.ray_engine": "sends its own jobs to its own actors",
    "datamodules.buffer_files": "deletes files that it has written itself",
    "datamodules.environment_maker": "sends itself to processes",
    "datamodules.rollout_evaluator": "sends itself to processes",
    "distributions.distribution_mapper": "imports the dotted path of a distribution",
    "envs.arrays.envpool_env": "imports envpool",
    "envs.checker.aliasing": "pickles states only",
    "envs.checker.copies": "loads what it has pickled itself",
    "envs.corrected_rule": "imports the dotted path of a policy",
    "envs.episode_files": "pickles actions only",
    "envs.pettingzoo_env": "imports the dotted path of a module",
    "envs.trajectory_record": "loads pickles with trust=True only",
    "envs.vector.subproc_vector_env": "sends its own functions to its own processes",
    "envs.wrappers.observation_normalization_wrapper": "imports the dotted path of a strategy",
    "envs.wrappers.observation_visualization_wrapper": "imports the dotted path of a function",
    "envs.wrappers.pre_processing_wrapper": "imports the dotted path of a pre-processor",
    "envs.wrappers.sample_episodes": "imports the dotted path of a policy",
    "events.display": "imports the dotted path of a function",
    "events.event_log_ends": "deletes rows that a killed run wrote after its checkpoint, in its log",
    "events.pubsub": "compiles signatures of event interfaces",
    "loggers.tensorboard_log": "deletes its own files that a killed run wrote after its checkpoint",
    "perception.blocks.dense": "imports the dotted path of an activation",
    "perception.blocks.functional_block": "imports the dotted path of a function",
    "perception.blocks.perception_block": "imports the dotted path of a module",
    "perception.models.automatic_model_composer": "imports the dotted path of an activation",
    "perception.template_blocks": "imports the dotted path of a block",
    "rllib.algorithm_options": "imports a class that an algorithm of maze_pl names",
    "rllib.environment_source": "loads what it has pickled itself",
    "rllib.step_networks": "has functions that load pickles, which cannot be named",
    "rllib.versions": "imports ray",
}
"""Module of `PACKAGES` that executes code -> why no configuration can choose it, except by names that are checked."""


@functools.cache
def modules() -> tuple[ModuleType, ...]:
    found = []
    for library in LIBRARIES:
        package = importlib.import_module(library)
        names = [name for _, name, _ in pkgutil.walk_packages(package.__path__, f"{library}.", lambda _: None)]
        found += [package, *filter(None, map(imported, names))]
    return tuple(found)


def imported(name: str) -> ModuleType | None:
    """The module, None if a package that it needs is not installed."""
    if "__main__" in name or is_below(name, "maze_pl.project_template"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except Exception:
            return None


def callables() -> Iterator[tuple[str, Any]]:
    """Path and object of each function that can be reached by a module or by a class in it."""
    for module in modules():
        for name, value in vars(module).items():
            path = f"{module.__name__}.{name}"
            if not isinstance(value, type):
                if callable(value):
                    yield path, value
            elif is_below(value.__module__, module.__name__):
                yield from ((f"{path}.{inner}", part) for inner, part in vars(value).items() if is_routine(part))


def is_routine(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, classmethod | staticmethod)


@pytest.mark.slow
def test_of_all_functions_only_listed_ones_and_those_of_tensors_are_accepted() -> None:
    accepted = {path: value for path, value in callables() if is_known_object(path)}
    of_tensors = {path for path in accepted if path.startswith("torch.nn.functional.")}
    homes = {f"{value.__module__}.{value.__qualname__}" for path, value in accepted.items() if path not in of_tensors}
    assert homes <= FUNCTIONS
    assert len(of_tensors) > 80 and all(path.count(".") == 3 for path in of_tensors)
    taking_functions = {path for path in of_tensors if "Callable" in str(annotations_of(accepted[path]))}
    assert taking_functions <= {"torch.nn.functional.triplet_margin_with_distance_loss"}


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (TypeError, NameError):
        return {}


@pytest.mark.parametrize("path", sorted(FUNCTIONS))
def test_listed_functions_exist_and_take_neither_functions_nor_bytes(path: str) -> None:
    assert is_known_object(path)
    module, _, name = path.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    annotations = [str(annotation) for annotation in inspect.get_annotations(function, eval_str=False).values()]
    if path != "gymnasium.envs.registration.make_vec":  # whose wrappers are functions that must be accepted, too
        assert not any("Callable" in annotation or "bytes" in annotation for annotation in annotations)
    assert inspect.isfunction(function) and not name.startswith("_")


def files_of_packages() -> Iterator[tuple[str, Path]]:
    root = Path(maze_pl.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        if any(is_below(name, package) for package in PACKAGES):
            yield name, path


def names_in(path: Path) -> set[str]:
    """Names of modules that a file imports, and of functions that it calls, without `model.eval()` and the like."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.name.partition(".")[0] for alias in node.names)
            found.add((getattr(node, "module", "") or "").partition(".")[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.update({node.func.attr} - {"eval"})
    return found


def test_modules_of_nameable_classes_that_execute_code_were_reviewed() -> None:
    executing = {name for name, path in files_of_packages() if names_in(path) & EXECUTING}
    assert executing - REVIEWED.keys() == set()
    assert REVIEWED.keys() - executing == set()


@pytest.mark.parametrize(
    "path",
    [
        "maze_pl.runs.run_processes.RunProcesses",
        "maze_pl.run_context.RunContext",
        "maze_pl.system.worker_process.WorkerProcess",
        "maze_pl.collect.engines.process_engine._Worker",
        "maze_pl.modules.PPO.load_from_checkpoint",
        "maze_pl.envs.gym_env.re.compile",
        "maze_pl.envs.gym_env.make_gym_maze_env.__class__",
        "gymnasium.envs.registration.EnvSpec",
        "gymnasium.vector.utils.CloudpickleWrapper",
        "torch.nn.parameter.Parameter",
        "torch.optim.lr_scheduler.partial",
    ],
)
def test_other_classes_and_attributes_are_not_accepted(path: str) -> None:
    assert not is_known_object(path)


@pytest.mark.parametrize(
    "path",
    [
        "maze_pl.modules.PPO",
        "maze_pl.agents.RandomPolicy",
        "maze_pl.envs.make_gym_maze_env",
        "maze_pl.envs.ride_hailing.dispatching_rule_policy.DispatchingRulePolicy",
        "maze_pl.collect.engines.RayEngine",
        "gymnasium.wrappers.RecordVideo",
        "gymnasium.spaces.Box",
        "torch.nn.SELU",
        "torch.nn.functional.max_pool2d",
        "torch.optim.Muon",
        "torch.optim.lr_scheduler.ReduceLROnPlateau",
        "maze_pl.envs.NotThere",
    ],
)
def test_parts_of_the_libraries_for_configurations_are_accepted(path: str) -> None:
    assert is_known_object(path)
