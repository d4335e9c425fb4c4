"""Tests mirror the tree of the package, and share helpers in modules that hold no tests."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGE = FOLDER.parent / "maze_pl"
# Folders whose tests concern several rooms of the package.
BEHAVIOURS = {
    "bad_input": "mistakes of users: one message that says what to do, and nothing changed or lost",
    "distributed": "training on several ranks, nodes and ways of starting them",
    "exact": "training that was interrupted, or done elsewhere, ends bit for bit as if it was not",
    "faults": "signals, errors and killed processes in real runs, and what they leave behind",
    "learning": "algorithms reach what they promise, and do not where they must not",
    "projects": "projects outside the package: configurations, packages, algorithms of one's own",
    "run_directory": "files of a run, also after it was killed and resumed",
    "structured": "environments with several sub-steps and agents whose optimum is known",
}
RUNTIME = "runtime"  # of bundles, maze_pl_runtime, which is a separate package
CONFIGURATIONS = "configs"  # the shipped YAML files, which lie beside the package


def modules() -> list[Path]:
    return sorted(path for path in FOLDER.rglob("*.py") if "corridor" not in path.parts[:-1])


def test_every_folder_mirrors_one_of_the_package_or_is_named_as_a_behaviour() -> None:
    folders = {path.parent.relative_to(FOLDER) for path in FOLDER.rglob("test_*.py")}
    rooms = {folder for folder in folders if folder.parts and folder.parts[0] not in {*BEHAVIOURS, CONFIGURATIONS}}
    rooms.discard(Path(RUNTIME))
    assert not [str(room) for room in sorted(rooms) if not (PACKAGE / room).is_dir()]
    assert {*BEHAVIOURS} <= {str(folder) for folder in folders}
    assert not [name for name in BEHAVIOURS if (PACKAGE / name).is_dir()]


def test_every_folder_of_the_package_has_tests() -> None:
    rooms = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")} - {Path()}
    assert len(rooms) > 40
    assert not [str(room) for room in sorted(rooms) if not list((FOLDER / room).glob("test_*.py"))]


def test_helpers_are_imported_from_modules_that_hold_no_tests() -> None:
    imported = re.compile(r"^\s*(?:from|import)\s+(tests\.(?:[\w.]*\.)?(?:test_\w+|conftest))\b", re.MULTILINE)
    found = [
        f"{path.name}: {name}" for path in modules() for name in imported.findall(path.read_text(encoding="utf-8"))
    ]
    assert not found
