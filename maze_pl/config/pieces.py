"""Pieces of a configuration: the content of options and files, with named files put in place of their names."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maze_pl.config import search_path
from maze_pl.config.search_path import ConfigurationError, dump, parse, read, resolve

RUN_CONFIG = "config.yaml"
PROVENANCE_FILE = "provenance.json"
"""File in a run directory with the provenance of all commands that have written there."""
CONFIG_OPTIONS = ("--config", "-c")
CALL_OPTIONS = (
    *("run_dir", "resume", "run", "ckpt_path", "experiment"),
    *("print_model", "wandb", "view", "trust", "seeds"),
)
"""Options of one call of `maze-pl fit`, which do not influence what is learned."""
COMPONENT_KEYS = ("class_path", "init_args", "dict_kwargs")
GROUP_NAME = re.compile(r"[\w-]+(/[\w.-]+)+")
_BASE = "base"
_PACKAGE = re.compile(r"^# *@package\b", re.MULTILINE)


@dataclass
class Piece:
    """The content of one option of a command, or of a base file.

    Attributes:
        option: `--config`, `--data.env` and the like; None for a value without option.
        text: Value passed to jsonargparse; None for an option without value.
        content: The parsed value, with names replaced by the content of their files.
        path: The file that it comes from, if any.
        of_run: True if it comes from a run directory, not from the user.
    """

    option: str | None
    text: str | None
    content: Any = None
    path: Path | None = None
    of_run: bool = False

    @property
    def is_users_config(self) -> bool:
        """True for the content of a configuration file other than that of a run directory."""
        is_config = self.option in CONFIG_OPTIONS
        return is_config and self.path is not None and self.path.name != RUN_CONFIG

    @property
    def keys(self) -> list[str]:
        """Keys that lead to the value: those of `--data.n_envs` are `data` and `n_envs`."""
        return (self.option or "").lstrip("-").split(".")

    @property
    def word(self) -> str | None:
        """The text for jsonargparse: without quotes for a text in quotes, which it would keep."""
        content = self.content
        is_text = type(content) is str and self.option not in CONFIG_OPTIONS
        if not is_text or self.text is None or not self.text.lstrip().startswith(("'", '"')):
            return self.text
        is_structure = isinstance(parse(content), dict | list)
        return self.text if is_structure else str(content)

    def put(self, content: Any) -> None:
        """Replace the value."""
        if content != self.content:
            self.content, self.text = content, dump(content)


def with_bases(option: str, path: Path, derived: tuple[Path, ...] = ()) -> list[Piece]:
    """Return the piece of a configuration file, preceded by the pieces of its bases.

    Args:
        option: The option that names the file.
        path: The file.
        derived: Files that are based on it, directly or indirectly.

    Raises:
        ConfigurationError: A base does not exist, or is itself based on this file.
    """
    if path.resolve() in derived:
        fault = f"{derived[-1]} is based on {path}, which is a circular reference"
        raise ConfigurationError(fault)
    content = read(path)
    if not isinstance(content, dict):
        fault = "is empty" if content is None else f"contains a {type(content).__name__}"
        example = "`trainer: {max_epochs: 10}`"
        raise ConfigurationError(f"{path} {fault}; expected options, such as {example}")
    if "search" in content:
        raise ConfigurationError(f"{path} is a sweep: start it with `maze-pl sweep {path}`")
    bases = content.pop(_BASE, [])
    if not isinstance(bases, list):
        bases = [bases]
    pieces: list[Piece] = []
    for name in bases:
        if not isinstance(name, str):
            fault = f"{_BASE} must name configurations, but {name!r} is not a name"
            raise ConfigurationError(f"{path}: {fault}")
        sibling = path.parent / name
        try:
            base = sibling if sibling.is_file() else resolve(name, [path])
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {_BASE}: {error}") from error
        pieces += with_bases(option, base, (*derived, path.resolve()))
    return [*pieces, from_file(option, path, content)]


def require_run_directory(path: Path) -> None:
    """Refuse a path other than the directory of a run.

    Raises:
        ConfigurationError: It does not exist, or is something else.
    """
    if (path / RUN_CONFIG).is_file():
        return
    if not path.exists():
        raise ConfigurationError(f"{path} is not a run directory: it does not exist")
    around = [folder for folder in path.parents if (folder / RUN_CONFIG).is_file()]
    hint = f"; did you mean {around[0]}?" if around else ""
    raise ConfigurationError(f"{path} is not a run directory: it has no {RUN_CONFIG}{hint}")


def from_file(option: str, path: Path, content: Any) -> Piece:
    """Return the piece of a file, with the names in its content replaced.

    Raises:
        ConfigurationError: It is written for Hydra, or files refer to each other in a circle.
    """
    _refuse_hydra(path, content)
    expanded = each_text(_expand, content, path, (path.resolve(),))
    # jsonargparse accepts `null` in files only
    is_whole = option not in CONFIG_OPTIONS and expanded == content
    return Piece(option, str(path) if is_whole else dump(expanded), expanded, path)


def each_text(change: Callable[..., Any], value: Any, *arguments: Any) -> Any:
    """Apply a function to each string in a nested value; `arguments` are passed on to it."""
    if isinstance(value, dict):
        return {key: each_text(change, item, *arguments) for key, item in value.items()}
    if isinstance(value, list):
        return [each_text(change, item, *arguments) for item in value]
    return change(value, *arguments) if isinstance(value, str) else value


def _expand(text: str, source: Path, referring: tuple[Path, ...]) -> Any:
    """Return the expanded content of the file that a text in `source` names; else the text itself.

    The relative path of another YAML file becomes an absolute path, unless that file contains
    components.

    Args:
        text: The text.
        source: File that contains it.
        referring: Files that refer to it, directly or indirectly.
    """
    sibling = source.parent / text
    named: Path | None = None
    if text.endswith(search_path.SUFFIXES) and sibling.is_file():
        content = read(sibling)
        parts = content if isinstance(content, list) else [content]
        if not parts or not all(map(_is_component, parts)):
            return str(sibling.resolve())  # for a constructor that reads files itself
        named = sibling.resolve()
    elif GROUP_NAME.fullmatch(text):
        named = search_path.find(text, [source])
    if named is None:
        return text
    if named in referring:
        raise ConfigurationError(f"{source} refers to {text}, which refers back to it")
    content = read(named)
    _refuse_hydra(named, content)
    return each_text(_expand, content, named, (*referring, named))


def _refuse_hydra(path: Path, content: Any) -> None:
    """Raise ConfigurationError for a file that is written for Hydra, such as those of Maze.

    Args:
        path: The file.
        content: Its content.
    """
    mapping = content if isinstance(content, dict) else {}
    found = "_target_" if "_target_" in mapping else "defaults"
    if isinstance(mapping.get(found), str | list) or _PACKAGE.search(path.read_text(encoding="utf-8")):
        remedy = "write `base` for `defaults`, `class_path` with `init_args` for `_target_`, and lists of wrappers"
        raise ConfigurationError(f"{path} is a file for Hydra, as Maze reads it: {remedy} (page Migrating from Maze)")


def _is_component(node: Any) -> bool:
    """True if a part of a file is a class path with arguments."""
    return isinstance(node, dict) and bool(node) and {*node} <= {*COMPONENT_KEYS}
