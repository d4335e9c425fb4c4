"""Which part may import which: the layers that DESIGN gives the package, read off its import statements."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import maze_pl
import maze_pl_runtime
from tests.parsed_files import nodes_of, tree_of

PACKAGE = Path(maze_pl.__file__).parent
RUNTIME = Path(maze_pl_runtime.__file__).parent

BELOW = {"system", "functional", "core", "records", "events", "envs", "distributions", "perception", "agents"}
EVERYTHING = BELOW | {
    "schedules",
    "collect",
    "datasets",
    "datamodules",
    "modules",
    "config",
    "loggers",
    "runs",
    "callbacks",
}
ALLOWED = {
    "system": set(),
    "functional": {"core"},
    "schedules": set(),
    "core": {"system"},
    "records": {"core", "system"},
    "events": {"core", "system"},
    "envs": {"core", "events", "records", "system"},
    "distributions": {"core"},
    "perception": {"core", "distributions", "agents"},
    "agents": {"core", "distributions"},
    "collect": {"core", "events", "envs", "records", "system"},
    "datasets": {"core", "envs", "collect", "records", "system"},
    "datamodules": {"core", "schedules", "events", "envs", "collect", "datasets", "records", "system"},
    "modules": {"core", "schedules", "events", "functional", "distributions", "perception", "agents", "system"},
    "search": {"core", "distributions", "envs", "agents"},
    "config": {"core", "system"},
    "loggers": {"core", "envs", "events", "system"},
    "runs": (EVERYTHING | {"search"}) - {"callbacks", "runs"},
    "viewer": EVERYTHING - {"callbacks"},
    "callbacks": (EVERYTHING | {"viewer"}) - {"callbacks"},
    "deployment": (EVERYTHING | {"search"}) - {"callbacks"},
    "comparison": (EVERYTHING | {"reports", "viewer"}) - {"callbacks"},
    "estimation": {"core", "agents", "config", "datasets", "perception", "records", "runs"},
    "reports": {"core", "system", "events", "records", "config", "functional", "runs"},
    "bundle": {"core", "system", "envs", "distributions", "agents", "config", "runs"},
    "sweeps": {"config", "events", "reports", "runs", "system"},
    "serving": {"config", "core"},
    "cli": EVERYTHING | {"bundle", "comparison", "estimation", "reports", "rllib", "serving", "sweeps", "viewer"},
    "migration": {"config"},
    "rllib": (BELOW | {"collect", "datamodules", "modules"}) - {"events", "functional", "records"},
    "run_context": EVERYTHING | {"cli", "migration"},
}


def imported_parts(path: Path) -> set[str]:
    """Sub-packages of maze_pl that a file imports, also inside functions and for type checking."""
    found = set()
    for node in nodes_of(path):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            is_own = node.level == 1 and path.name == "__init__.py"  # of its own folder, to export it
            assert node.level == 0 or is_own, f"{path} imports relatively"
            names = [] if is_own else [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("maze_pl.")}
    return found


def executed_imports(statements: list[ast.stmt]) -> Iterator[str]:
    """Dotted names that a module imports while it is imported itself, from the package it is in with a dot first."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test):
            yield from executed_imports([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from executed_imports(node.body)


def graph_of_modules() -> dict[str, set[str]]:
    """The modules of the package, and which others each of them imports while it is imported."""
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        paths[name.removesuffix(".__init__")] = path
    graph = {}
    for module, path in paths.items():
        graph[module] = set()
        for name in executed_imports(tree_of(path).body):
            imported = f"{module}{name}" if name.startswith(".") else name
            while imported and imported not in paths:
                imported = imported.rpartition(".")[0]
            graph[module] |= {imported} - {module, ""}
    return graph


def test_every_part_imports_only_what_lies_below_it() -> None:
    wrong = []
    for part, allowed in ALLOWED.items():
        for path in sorted((PACKAGE / part).rglob("*.py")):
            wrong += [
                f"{path.relative_to(PACKAGE)} imports maze_pl.{other}"
                for other in sorted(imported_parts(path) - allowed - {part})
            ]
    assert not wrong


def test_every_part_has_its_place_among_the_layers() -> None:
    parts = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert parts == set(ALLOWED)


def test_the_runtime_imports_nothing_of_the_package() -> None:
    for path in RUNTIME.rglob("*.py"):
        for node in nodes_of(path):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert {name.partition(".")[0] for name in modules} <= {*sys.stdlib_module_names, "numpy", "onnxruntime"}


def test_no_import_cycle_between_parts() -> None:
    remaining = {part: set(below) for part, below in ALLOWED.items()}
    while remaining:
        free = [part for part, below in remaining.items() if not below & set(remaining)]
        assert free, f"a cycle between {sorted(remaining)}"
        for part in free:
            del remaining[part]


def test_no_import_cycle_between_modules() -> None:
    remaining = graph_of_modules()
    assert "maze_pl.modules.ppo" in remaining and len(remaining) > 100
    while remaining:
        free = [module for module, imported in remaining.items() if not imported & set(remaining)]
        assert free, f"a cycle between {sorted(remaining)}"
        for module in free:
            del remaining[module]


def test_importing_the_package_imports_neither_torch_nor_lightning() -> None:
    code = (
        "import sys, maze_pl, maze_pl.__main__, maze_pl.config.assembling;"
        "print([name for name in ('torch', 'pytorch_lightning', 'gymnasium', 'jsonargparse') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
