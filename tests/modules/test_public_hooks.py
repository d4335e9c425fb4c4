"""Algorithms use what anybody may use, and rooms that serve all algorithms name none of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import maze_pl
from maze_pl import modules
from maze_pl.modules import A2C, BC, ES, IMPALA, PPO, SAC, AlgorithmModule, OnPolicyModule
from tests.parsed_files import nodes_of

PACKAGE = Path(maze_pl.__file__).parent
ALGORITHMS = [A2C, BC, ES, IMPALA, PPO, SAC]
FILES = [PACKAGE / "modules" / f"{algorithm.__name__.lower()}.py" for algorithm in ALGORITHMS]
GENERIC = [
    *("cli", "config", "runs", "callbacks", "datamodules", "collect", "core"),
    *("envs", "events", "loggers", "system", "datasets", "records", "agents"),
]


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names_of_others(path: Path) -> list[str]:
    """Private attributes that are read or called, but not defined in the same file."""
    defined = {node.name for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    attributes = [node for node in nodes_of(path) if isinstance(node, ast.Attribute)]
    defined |= {
        node.attr
        for node in attributes
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    found = [node.attr for node in attributes if private(node.attr) and node.attr not in defined]
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if private(alias.name)]
    return found


@pytest.mark.parametrize("path", [*FILES, PACKAGE / "modules/on_policy/learning_batch.py"], ids=lambda path: path.stem)
def test_shipped_algorithms_use_public_names_only(path: Path) -> None:
    assert private_names_of_others(path) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_algorithms_override_no_private_method(path: Path) -> None:
    inherited = {name for base in (AlgorithmModule, OnPolicyModule) for name in dir(base) if private(name)}
    own = {node.name for node in nodes_of(path) if isinstance(node, ast.FunctionDef)}
    assert not own & inherited


def test_rooms_that_serve_all_algorithms_name_none_of_them() -> None:
    names = {algorithm.__name__ for algorithm in ALGORITHMS}
    found = []
    for room in GENERIC:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            for node in nodes_of(path):
                named = {
                    ast.Name: lambda item: [item.id],
                    ast.Attribute: lambda item: [item.attr],
                    ast.ImportFrom: lambda item: [alias.name for alias in item.names],
                    ast.Constant: lambda item: item.value.replace(",", " ").split() if type(item.value) is str else [],
                }.get(type(node), lambda item: [])(node)
                found += [f"{path.relative_to(PACKAGE)} names {name}" for name in named if name in names]
    assert found == []


def test_what_an_algorithm_is_written_with_is_exported() -> None:
    needed = "AlgorithmModule OnPolicyModule DataRequirements FlatAdam LearningBatch Method Minibatch ModelComposer "
    needed += "PolicySamples VTrace count_minibatches learning_batch soft_update step_credit target_copy"
    assert [name for name in needed.split() if not getattr(modules, name, None)] == []
    public = [getattr(modules, name) for name in needed.split() if isinstance(getattr(modules, name), type)]
    assert [kind.__name__ for kind in public if not kind.__doc__] == []


def test_no_algorithm_is_passed_without_a_type() -> None:
    found = []
    for path in sorted((PACKAGE / "modules").rglob("*.py")):
        for node in nodes_of(path):
            if (
                isinstance(node, ast.arg)
                and node.arg == "module"
                and ast.unparse(node.annotation or ast.Name("")) == "Any"
            ):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []
