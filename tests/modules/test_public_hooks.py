"""Algorithms use what anybody may use, and rooms that serve all algorithms name none of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import maze_pl
from maze_pl import modules
from maze_pl.modules import A2C, BC, DQN, ES, IMPALA, PPO, SAC, TD3, AlgorithmModule, OnPolicyModule
from tests.parsed_files import nodes_of

PACKAGE = Path(maze_pl.__file__).parent
ALGORITHMS = [A2C, BC, DQN, ES, IMPALA, PPO, SAC, TD3]
FILES = [PACKAGE / "modules" / f"{algorithm.__name__.lower()}.py" for algorithm in ALGORITHMS]
# Rooms and files that may name algorithms; all others, but the algorithms themselves, serve every algorithm.
ABOUT_ALGORITHMS = {
    "__main__.py": "the help lists the algorithms of `maze-pl rllib`",
    "cli/rllib.py": "the command that runs the algorithms of RLlib, and lists them",
    "functional/losses.py": "a loss bears the name of the paper that introduced it",
    "migration": "keys of Maze's documentation are other options for each algorithm",
    "modules/__init__.py": "exports the algorithms",
    "rllib": "RLlib has algorithms with these names",
}


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


@pytest.mark.parametrize(
    "path", [*FILES, PACKAGE / "modules/on_policy/on_policy_module.py"], ids=lambda path: path.stem
)
def test_shipped_algorithms_use_public_names_only(path: Path) -> None:
    assert private_names_of_others(path) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_algorithms_override_no_private_method(path: Path) -> None:
    inherited = {name for base in (AlgorithmModule, OnPolicyModule) for name in dir(base) if private(name)}
    own = {node.name for node in nodes_of(path) if isinstance(node, ast.FunctionDef)}
    assert not own & inherited


def generic_files() -> list[Path]:
    excepted = [*FILES, *(PACKAGE / name for name in ABOUT_ALGORITHMS)]
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not {path, *path.parents} & {*excepted}]


def names_in(node: ast.AST) -> list[str]:
    """Names and words of strings, docstrings among them, without those below the node."""
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            return [node.attr]
        case ast.ImportFrom():
            return [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        case ast.Constant(value=str()):
            return re.findall(r"\w+", node.value)
    return []


def test_all_algorithms_are_listed() -> None:
    exported = [kind for kind in vars(modules).values() if isinstance(kind, type) and issubclass(kind, AlgorithmModule)]
    assert {*exported} == {*ALGORITHMS, AlgorithmModule, OnPolicyModule}


def test_files_that_serve_all_algorithms_name_none_of_them() -> None:
    classes = {algorithm.__name__ for algorithm in ALGORITHMS}
    found = []
    modules_and_classes = classes | {path.stem for path in FILES}
    any_name = re.compile(rf"\b({'|'.join(modules_and_classes)})\b")
    for path in generic_files():
        if any_name.search(path.read_text(encoding="utf-8")) is None:  # parsing all files takes seconds
            continue
        for node in nodes_of(path):
            names = modules_and_classes if isinstance(node, ast.ImportFrom) else classes
            for name in names & {*names_in(node)}:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} names {name}")  # type: ignore[attr-defined]
    assert found == []


def test_what_may_name_algorithms_does() -> None:
    for name in ABOUT_ALGORITHMS:
        room = PACKAGE / name
        words = re.findall(
            r"\w+",
            "\n".join(path.read_text(encoding="utf-8") for path in [room, *room.rglob("*.py")] if path.is_file()),
        )
        assert {algorithm.__name__ for algorithm in ALGORITHMS} & {*words}, f"{name} needs no exception"


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
