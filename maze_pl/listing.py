"""`maze-pl list`: what there is to choose from, with a line each, read without importing torch or Lightning."""

import ast
import functools
import importlib.util
import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

from maze_pl.search_path import ConfigurationError, known_names, resolve, suggestion
from maze_pl.yaml_text import read

_WRAPPERS = "maze_pl.envs.wrappers"
_REQUIRED = {"box2d": "Box2D", "mujoco": "mujoco", "phys2d": "jax", "tabular": "jax", "toy_text": None}
_COLUMNS = 120

Row = tuple[str, str]


def listing(topics: Sequence[str]) -> str:
    """Tables of what there is.

    Args:
        topics: Which ones; all of them if empty.

    Raises:
        ConfigurationError: There is no such topic.
    """
    for topic in topics:
        if topic not in TOPICS:
            known = f"{', '.join(TOPICS)}{suggestion(topic, TOPICS)}"
            raise ConfigurationError(f"there is no list of {topic!r}: use {known}")
    return "\n\n".join(_table(topic, *TOPICS[topic]) for topic in topics or TOPICS) + "\n"


def algorithms() -> list[Row]:
    """The algorithms that group files name, with their classes."""
    return [(name, f"{_class_path(name)}: {text}") for name, text in configs("algorithm/")]


def configs(group: str = "") -> list[Row]:
    """Configurations on the search path, or those of a group, with the first line of the comment that is no command."""
    return [(name, _described(name)) for name in known_names() if name.startswith(group)]


def environments() -> list[Row]:
    """Environments that group files describe, and those that gymnasium has registered and that can be made here."""
    from gymnasium.envs.registration import registry

    latest: dict[tuple[str | None, str], tuple[int, str, str]] = {}
    for identifier, spec in registry.items():
        if not isinstance(spec.entry_point, str):  # replaced by a message that says where it went
            continue
        module, _, name = spec.entry_point.partition(":")
        if _is_installed(module) and (spec.version or 0) >= latest.get((spec.namespace, spec.name), (0, "", ""))[0]:
            latest[spec.namespace, spec.name] = (spec.version or 0, identifier, _class_line(_source(module), name))
    return configs("env/") + [(identifier, line) for _, identifier, line in latest.values()]


def wrappers() -> list[Row]:
    """Wrappers that come with maze_pl, by class path."""
    exports = ast.parse(_source(f"{_WRAPPERS}.__init__").read_text(encoding="utf-8")).body
    imported = [(one.module, name.name) for one in exports if isinstance(one, ast.ImportFrom) for name in one.names]
    found = [(name, _source(str(module))) for module, name in imported if name.endswith("Wrapper")]
    return sorted((f"{_WRAPPERS}.{name}", _class_line(path, name)) for name, path in found)


TOPICS: dict[str, tuple[str, Callable[[], list[Row]]]] = {
    "algorithms": ("--model NAME", algorithms),
    "configs": ("--config NAME, or the option that the file names", configs),
    "environments": ("--data.env env/NAME, or --data.env env/gym_env --data.env.name ID; see also check", environments),
    "wrappers": ("class paths for data.wrappers", wrappers),
}


def _table(topic: str, usage: str, rows: Callable[[], list[Row]]) -> str:
    lines = rows()
    width = max((len(name) for name, _ in lines), default=0)
    shown = (f"  {name:{width}}  {text}".rstrip() for name, text in lines)
    shortened = (line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 3]}..." for line in shown)
    return "\n".join([f"{topic} ({usage})", *shortened])


def _described(name: str) -> str:
    """The first line of a file's leading comment that is no command."""
    lines = resolve(name).read_text(encoding="utf-8").splitlines()
    comment = (line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
    return next((text for text in comment if text and not text.startswith("maze-pl ")), "")


def _class_path(name: str) -> str:
    content = read(resolve(name))
    return str(content.get("class_path", "no class_path")) if isinstance(content, dict) else "no class_path"


def _is_installed(module: str) -> bool:
    """Whether the packages that an environment of gymnasium needs are there."""
    parts = module.split(".")
    required = _REQUIRED.get(parts[2]) if parts[:2] == ["gymnasium", "envs"] else None
    return required is None or importlib.util.find_spec(required) is not None


@functools.cache
def _class_line(path: Path, name: str) -> str:
    """The first sentence of the docstring of a class, from its source, without importing it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []:
        if isinstance(node, ast.ClassDef) and node.name == name:
            prose = re.sub(r"^#.*$", "", ast.get_docstring(node) or "", flags=re.MULTILINE).strip()
            paragraph = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(prose.partition("\n\n")[0].split()))
            return re.split(r"(?<=[a-z0-9)])\.(?: |$)", paragraph, maxsplit=1)[0] + "."
    return ""


def _source(module: str) -> Path:
    """Where the source of a module would lie, found without importing the packages that it is in."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    return Path(spec.origin if spec and spec.origin else "").parent.joinpath(*inner).with_suffix(".py")
