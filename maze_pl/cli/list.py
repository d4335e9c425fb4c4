"""`maze-pl list`: available components, one per line, without importing torch or Lightning."""

import ast
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

from maze_pl.cli.command_options import OptionParser
from maze_pl.config.search_path import ConfigurationError, known_names, resolve, shipped_folder, suggestion

_NEEDED = {"box2d": "Box2D", "mujoco": "mujoco", "phys2d": "jax", "tabular": "jax"}
_COLUMNS = 120

Row = tuple[str, str]


def configs(group: str = "") -> list[Row]:
    """List configurations on the search path, or of a group, with their descriptions."""
    return [(name, _described(name)) for name in known_names() if name.startswith(group)]


def environments() -> list[Row]:
    """List environments of group files, and registered gymnasium ones that can be made here."""
    from gymnasium.envs.registration import registry

    latest: dict[Any, Row] = {}
    for identifier, spec in registry.items():  # older versions first
        place = spec.entry_point
        if not isinstance(place, str):
            continue
        needed = [package for folder, package in _NEEDED.items() if f".{folder}." in f"{place}."]
        if all(map(find_spec, needed)):  # else its error says where it went
            limit = f", at most {spec.max_episode_steps} steps" if spec.max_episode_steps else ""
            latest[spec.namespace, spec.name] = (identifier, f"{place.replace(':', '.')}{limit}")
    return configs("env/") + list(latest.values())


def wrappers() -> list[Row]:
    """List the wrappers of maze_pl, by class path."""
    rows = []
    folder = Path(__file__).parents[1] / "envs"
    exported = (folder / "wrappers" / "__init__.py").read_text(encoding="utf-8")
    for path in folder.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef) or not node.name.endswith("Wrapper"):
                continue
            if f"{node.name} as {node.name}" in exported:
                text = (ast.get_docstring(node) or "").partition("\n\n")[0]
                rows.append((f"maze_pl.envs.wrappers.{node.name}", " ".join(text.split())))
    return sorted(rows)


TOPICS: dict[str, tuple[str, Callable[[], list[Row]]]] = {
    "algorithms": ("--model NAME", lambda: configs("algorithm/")),
    "configs": ("--config NAME, or the option that the file names", configs),
    "environments": (
        "--data.env env/NAME, or --data.env env/gym_env --data.env.name ID; see also check",
        environments,
    ),
    "wrappers": ("class paths for data.wrappers", wrappers),
}


def run(arguments: Sequence[str], *_: Any) -> int:
    """Print tables of available components.

    Args:
        arguments: `list`, and names of tables; all of them if none is named.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: A table does not exist.
    """
    parser = OptionParser("list", "List available components, one per line.")
    parser.add_argument("topics", nargs="*", metavar="TABLE", help=f"{', '.join(TOPICS)}; all of them by default")
    topics = parser.parse(arguments[1:]).topics
    for topic in topics:
        if topic not in TOPICS:
            known = f"{', '.join(TOPICS)}{suggestion(topic, TOPICS)}"
            raise ConfigurationError(f"unknown list {topic!r}: use {known}")
    tables = []
    for topic in topics or TOPICS:
        usage, make_rows = TOPICS[topic]
        tables.append("\n".join([f"{topic} ({usage})", *_lines(make_rows())]))
    sys.stdout.write("\n\n".join(tables) + "\n")
    return 0


def _lines(rows: list[Row]) -> list[str]:
    """Return the lines of a table; files of the current project come first, under a heading."""
    own_names = _own_names()
    own = [row for row in rows if row[0] in own_names]
    width = max((len(name) for name, _ in rows), default=0)
    if not own:
        return [_line("  ", row, width) for row in rows]
    shipped = [row for row in rows if row not in own]
    parts = [("of this project", own), ("of maze_pl and its libraries", shipped)]
    lines: list[str] = []
    for heading, part in parts:
        lines.append(f"  {heading}:")
        lines += [_line("    ", row, width) for row in part]
    return lines


def _own_names() -> set[str]:
    """Return the names of configurations that do not come with maze_pl."""
    shipped = shipped_folder().resolve()
    return {name for name in known_names() if not resolve(name).is_relative_to(shipped)}


def _line(indent: str, row: Row, width: int) -> str:
    """Return a line that is not too long."""
    line = f"{indent}{row[0]:{width}}  {row[1]}".rstrip()
    return line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 3]}..."


def _described(name: str) -> str:
    """Return the first line of a file's leading comment that is not a command."""
    lines = resolve(name).read_text(encoding="utf-8").splitlines()
    comment = (line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
    return next((text for text in comment if text and not text.startswith("maze-pl ")), "")
