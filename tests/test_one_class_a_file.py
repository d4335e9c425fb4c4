"""A class that configurations name by its class path is the only public class of its file.

Protocols, named tuples, dataclasses and exceptions are not counted.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import maze_pl
from tests.documentation import blocks
from tests.parsed_files import tree_of

PACKAGE = Path(maze_pl.__file__).parent
ROOT = PACKAGE.parent
CLASS_PATH = re.compile(r"\bmaze_pl(?:\.\w+)*\.([A-Z]\w*)")
UNCOUNTED = re.compile(r"\b(Protocol|NamedTuple|dataclass|\w*(Error|Exception))\b")


def named_classes() -> set[str]:
    """Names of the classes of the package that configurations and pages name by a class path."""
    files = [path for folder in ("configs", "examples") for path in (ROOT / folder).rglob("*.yaml")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        texts += [block.content for block in blocks(text) if block.kind == "yaml"]
        texts += [line for line in text.splitlines() if "class_path:" in line]
    return {name for text in texts for name in CLASS_PATH.findall(text)}


def public_classes(path: Path) -> list[str]:
    """Names of the counted classes at the top level of a file."""
    if path.read_text(encoding="utf-8").count("class ") < 2:  # reading is faster than parsing
        return []
    found = [node for node in tree_of(path).body if isinstance(node, ast.ClassDef)]
    kinds = {node.name: " ".join(map(ast.unparse, [*node.bases, *node.decorator_list])) for node in found}
    return [name for name, kind in kinds.items() if name[0] != "_" and not UNCOUNTED.search(kind)]


def test_classes_that_configurations_name_have_files_of_their_own() -> None:
    named = named_classes()
    assert {"TrajectoryFiles", "RandomPolicy", "PPO"} <= named
    in_files = {path.relative_to(ROOT): public_classes(path) for path in sorted(PACKAGE.rglob("*.py"))}
    assert not [f"{path}: {found}" for path, found in in_files.items() if len(found) > 1 and named & {*found}]
