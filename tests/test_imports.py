"""Which part may import which: the layers of docs/architecture.md, read off the import statements."""

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
    "estimation": {"core", "agents", "config", "datasets", "perception", "records", "runs", "system"},
    "reports": {"core", "system", "events", "records", "config", "functional", "runs"},
    "bundle": {"core", "system", "envs", "distributions", "agents", "config", "runs"},
    "sweeps": {"config", "events", "reports", "runs", "system"},
    "serving": {"config", "core"},
    "cli": EVERYTHING | {"bundle", "comparison", "estimation", "reports", "rllib", "serving", "sweeps", "viewer"},
    "migration": {"config"},
    "rllib": (BELOW | {"collect", "datamodules", "modules"}) - {"events", "functional", "records"},
    "run_context": EVERYTHING | {"cli", "migration"},
    # Modules at the top, which no folder imports. The first stands for what is imported from the package itself.
    "__init__": {"bundle", "cli", "comparison", "core", "deployment", "run_context", "runs", "sweeps", "viewer"},
    "__main__": {"__init__", "cli", "config", "system"},
    "maze_run": {"__main__", "config", "migration", "runs"},
}


def parts_of_the_package() -> dict[str, list[Path]]:
    """The folders of the package and the modules at its top, with their files."""
    folders = {path.parent.name: sorted(path.parent.rglob("*.py")) for path in PACKAGE.glob("*/__init__.py")}
    return folders | {path.stem: [path] for path in PACKAGE.glob("*.py")}


def imported_parts(path: Path) -> set[str]:
    """Parts of maze_pl that a file imports, also inside functions and for type checking.

    `import maze_pl`, through which all parts can be reached, and names that the package itself exports, are `__init__`.
    """
    found = set()
    for node in nodes_of(path):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            is_own = node.level == 1 and path.name == "__init__.py"  # of its own folder, to export it
            assert node.level == 0 or is_own, f"{path} imports relatively"
            start = ".".join([*path.parent.relative_to(PACKAGE.parent).parts, node.module]) if is_own else node.module
            names = [f"{start}.{alias.name}" for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            part = rest.partition(".")[0]
            if package == "maze_pl":
                is_part = (PACKAGE / part / "__init__.py").is_file() or (PACKAGE / f"{part}.py").is_file()
                found.add(part if part and is_part else "__init__")
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
    for part, files in parts_of_the_package().items():
        for path in files:
            for other in sorted(imported_parts(path) - ALLOWED[part] - {part}):
                wrong.append(f"{path.relative_to(PACKAGE)} imports maze_pl.{other}")
    assert not wrong


def test_every_part_has_its_place_among_the_layers() -> None:
    assert set(parts_of_the_package()) == set(ALLOWED)


def test_what_is_imported_from_the_package_itself_is_noticed(tmp_path: Path) -> None:
    lines = {
        "import maze_pl": "__init__",
        "import maze_pl as package": "__init__",
        "from maze_pl import load": "__init__",
        "from maze_pl import agents": "agents",
        "import maze_pl.agents.acting": "agents",
        "from maze_pl.__main__ import main": "__main__",
    }
    for number, (line, part) in enumerate(lines.items()):
        path = tmp_path / f"{number}.py"
        path.write_text(f"def late():\n    {line}\n", encoding="utf-8")
        assert imported_parts(path) == {part}, line


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


def test_playing_and_deploying_from_python_import_no_lightning() -> None:
    code = (
        "import sys, maze_pl;"
        "maze_pl.rollout, maze_pl.AgentDeployment, maze_pl.read_metrics;"
        "print([name for name in ('torch', 'pytorch_lightning', 'matplotlib') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['torch']"
