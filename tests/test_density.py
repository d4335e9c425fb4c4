"""Density of the code: how many things happen in one line, counted in each of the two packages.

Per 1,000 lines, blank lines and comments not counted, at most one assignment of three or more
values at once and half a nested comprehension; at most 5% of lines above 100 columns; no loop over
a conditional expression; no file of more than 400 lines.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

import maze_pl
import maze_pl_runtime
from tests.parsed_files import nodes_of

PACKAGE = Path(maze_pl.__file__).parent
RUNTIME = Path(maze_pl_runtime.__file__).parent
MOST_LINES = 400  # of a file
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@functools.cache
def sources(package: Path) -> dict[str, str]:
    """Text of each file of a package, by its path."""
    paths = sorted(package.rglob("*.py"))
    return {str(path.relative_to(package.parent)): path.read_text(encoding="utf-8") for path in paths}


@functools.cache
def code_lines(package: Path) -> list[str]:
    """Lines of a package that are neither blank nor comments."""
    lines = [line for source in sources(package).values() for line in source.splitlines()]
    return [line for line in lines if line.strip() and not line.strip().startswith("#")]


@functools.cache
def nodes(package: Path) -> list[tuple[str, ast.AST]]:
    """Nodes of a package, each with its file."""
    return [(path, node) for path in sources(package) for node in nodes_of(package.parent / path)]


def is_parallel(node: ast.AST) -> bool:
    """True for an assignment of three or more values at once, such as `a, b, c = 1, 2, 3`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple):
        return False
    return isinstance(node.value, ast.Tuple) and len(node.value.elts) > 2


def is_nested(node: ast.AST) -> bool:
    """True for a comprehension that contains another one."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    inner = [part for child in ast.iter_child_nodes(node) for part in ast.walk(child)]
    return any(isinstance(part, COMPREHENSIONS) for part in inner)


def is_loop_over_a_condition(node: ast.AST) -> bool:
    """True for a loop that is used as an `if`, such as `for x in xs if wanted else ()`."""
    return isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.IfExp)


def places(package: Path, fits: Callable[[ast.AST], bool]) -> list[str]:
    """File and line of each node of a package for which a function holds."""
    found = []
    for path, node in nodes(package):
        if fits(node):
            line = node.iter.lineno if isinstance(node, ast.comprehension) else getattr(node, "lineno", 0)
            found.append(f"{path}:{line}")
    return found


@pytest.mark.parametrize("package", [PACKAGE, RUNTIME], ids=lambda path: path.name)
@pytest.mark.parametrize(("fits", "most"), [(is_parallel, 1.0), (is_nested, 0.5), (is_loop_over_a_condition, 0.0)])
def test_few_lines_do_several_things_at_once(package: Path, fits: Callable[[ast.AST], bool], most: float) -> None:
    thousands = len(code_lines(package)) / 1000
    assert thousands > (10 if package == PACKAGE else 0.1)
    found = places(package, fits)
    assert len(found) / thousands <= most, found


@pytest.mark.parametrize("package", [PACKAGE, RUNTIME], ids=lambda path: path.name)
def test_few_lines_are_above_100_columns(package: Path) -> None:
    lines = code_lines(package)
    assert sum(len(line) > 100 for line in lines) / len(lines) <= 0.05


@pytest.mark.parametrize("package", [PACKAGE, RUNTIME], ids=lambda path: path.name)
def test_no_file_is_longer_than_a_reader_follows(package: Path) -> None:
    n_lines = {path: len(source.splitlines()) for path, source in sources(package).items()}
    assert not {path: n for path, n in n_lines.items() if n > MOST_LINES}


@pytest.mark.parametrize(
    ("fits", "code"),
    [
        (is_parallel, "a, b, c = 1, 2, 3"),
        (is_nested, "[[x for x in row] for row in rows]"),
        (is_loop_over_a_condition, "for x in xs if wanted else ():\n    print(x)"),
        (is_loop_over_a_condition, "[x for x in (xs if wanted else ())]"),
    ],
)
def test_each_kind_of_dense_code_is_found(fits: Callable[[ast.AST], bool], code: str) -> None:
    assert any(fits(node) for node in ast.walk(ast.parse(code)))
