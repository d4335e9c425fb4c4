"""How files become one configuration: what they name, what they are based on, and values that they take from elsewhere.

- A value `group/name`, or a path to a YAML file that describes a component, is replaced by what that file holds.
- `base: ppo_cartpole` (or a list) at the top of a file: it says only what differs from those.
- `${data.n_envs}` stands for another value of the assembled configuration, whichever file or option sets it;
  `init_args` may be left out on the way. The section `variables` is for values that exist only to be referred to.
"""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maze_pl.search_path import SUFFIXES, ConfigurationError, find, resolve, suggestion
from maze_pl.yaml_text import dump, read

BASE, VARIABLES = "base", "variables"
_GROUP_NAME = re.compile(r"[\w-]+(/[\w.-]+)+")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_COMPONENT_KEYS = {"class_path", "init_args", "dict_kwargs"}


@dataclass
class Piece:
    """What one option of a command brings, or a file that such a file is based on.

    Attributes:
        option: `--config`, `--data.env` and the like; None for a value without option.
        text: What jsonargparse gets as long as the content is that of the file or value itself.
        raw: That content.
        content: The value, with what it names in place.
        path: The file that it comes from, if any.
    """

    option: str | None
    text: str | None
    raw: Any = None
    content: Any = None
    path: Path | None = None

    @property
    def argument(self) -> str | None:
        """The option's value on the command line that jsonargparse gets."""
        return self.text if self.content == self.raw else dump(self.content)


def is_group_name(value: Any) -> bool:
    """Whether a value looks like the name of a group file."""
    return isinstance(value, str) and _GROUP_NAME.fullmatch(value) is not None


def from_file(option: str, path: Path) -> Piece:
    """The content of a file as an option's value."""
    raw = read(path)
    return Piece(option, str(path), raw, _each_text(_expand, raw, path, (path.resolve(),)), path)


def with_bases(option: str, path: Path, seen: tuple[Path, ...] = ()) -> list[Piece]:
    """A configuration, and before it those that it is based on.

    Raises:
        ConfigurationError: A base does not exist, or is based on this file itself.
    """
    if path.resolve() in seen:
        raise ConfigurationError(f"{seen[-1]} is based on {path}, which is based on it in turn")
    raw = read(path)
    if not isinstance(raw, dict):
        what = "is empty" if raw is None else f"holds a {type(raw).__name__}"
        raise ConfigurationError(f"{path} {what}; expected options, such as `trainer: {{max_epochs: 10}}`")
    own = {key: value for key, value in raw.items() if key != BASE}
    bases, pieces = raw.get(BASE, []), []
    for name in bases if isinstance(bases, list) else [bases]:
        if not isinstance(name, str):
            raise ConfigurationError(f"{path}: {BASE} names configurations, but {name!r} is not a name")
        beside = path.parent / name
        base = beside if name.endswith(SUFFIXES) and beside.is_file() else resolve(name, [path])
        pieces += with_bases(option, base, (*seen, path.resolve()))
    return [*pieces, Piece(option, str(path), raw, _each_text(_expand, own, path, (path.resolve(),)), path)]


def _each_text(change: Callable[..., Any], value: Any, *arguments: Any) -> Any:
    """A value, with what a function makes of each text in it; the arguments are the function's."""
    if isinstance(value, dict):
        return {key: _each_text(change, item, *arguments) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(change, item, *arguments) for item in value]
    return change(value, *arguments) if isinstance(value, str) else value


def _expand(text: str, source: Path, seen: tuple[Path, ...]) -> Any:
    """What a text in the file `source` names, with everything in place that this names; else the text itself."""
    beside = source.parent / text
    is_file = text.endswith(SUFFIXES) and beside.is_file()
    if is_file and not _is_component(read(beside)):  # for a constructor that reads files itself
        return str(beside.resolve())
    referred = beside if is_file else find(text, [source]) if is_group_name(text) else None
    if referred is None:
        return text
    if referred.resolve() in seen:
        raise ConfigurationError(f"{source} refers to {text}, which refers back to it")
    return _each_text(_expand, read(referred), referred, (*seen, referred.resolve()))


def _is_component(content: Any) -> bool:
    if isinstance(content, list):
        return bool(content) and all(map(_is_component, content))
    return isinstance(content, dict) and bool(content) and set(content) <= _COMPONENT_KEYS


# ------------------------------------------------------------------------------------------------------ references


def interpolate(pieces: Sequence[Piece]) -> list[Piece]:
    """Put values in the place of references, and take out the variables.

    Args:
        pieces: In the order in which they take effect, later ones winning.

    Raises:
        ConfigurationError: A reference leads nowhere or in a circle, or an option sets a variable that no file has.
    """
    whole: dict[str, Any] = {}
    kept = []
    for piece in pieces:
        keys = (piece.option or "").lstrip("-").split(".")
        if keys in (["config"], ["c"]):
            if isinstance(piece.content, dict):
                _merge(whole, piece.content)
                piece.content = {key: value for key, value in piece.content.items() if key != VARIABLES}
        elif piece.option is not None and piece.text is not None and not piece.option.endswith("+"):
            if keys[0] == VARIABLES:
                _look_up(keys, whole, f"the option {piece.option}")
            _put(whole, keys, piece.content)
        if keys[0] != VARIABLES:
            kept.append(piece)
    for piece in kept:
        where = f"the option {piece.option}" if piece.path is None else str(piece.path)
        piece.content = _each_text(_filled, piece.content, whole, where, ())
    return kept


def _merge(into: dict[Any, Any], content: dict[Any, Any]) -> None:
    for key, value in content.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def _put(whole: dict[Any, Any], keys: Sequence[str], value: Any) -> None:
    """Set the value at a dotted key, on a way that is made where there is none."""
    node = whole
    for key in keys[:-1]:
        node = _holder(node, key)
        if not isinstance(node.get(key), dict):
            node[key] = {}
        node = node[key]
    _merge(_holder(node, keys[-1]), {keys[-1]: value})


def _holder(node: dict[Any, Any], key: str) -> dict[Any, Any]:
    """The mapping that has, or is to have, a key: that of a component's arguments if it is one of them."""
    arguments = node.get("init_args")
    return arguments if isinstance(arguments, dict) and key not in _COMPONENT_KEYS else node


def _look_up(keys: Sequence[str], whole: dict[Any, Any], where: str) -> Any:
    node: Any = whole
    for index, key in enumerate(keys):
        if isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
            continue
        node = _holder(node, key) if isinstance(node, dict) else {}
        if key not in node:
            known = [".".join([*keys[:index], str(other)]) for other in node]
            problem = f"which no configuration file and no option sets{suggestion('.'.join(keys[: index + 1]), known)}"
            raise ConfigurationError(f"{where} refers to {'.'.join(keys)}, {problem}")
        node = node[key]
    return node


def _filled(text: str, whole: dict[str, Any], where: str, seen: tuple[str, ...]) -> Any:
    """A text with references replaced; if it is nothing but one reference, what this refers to, of whatever type."""

    def referred(key: str) -> Any:
        if key in seen:
            raise ConfigurationError(f"{where}: {' refers to '.join([*seen, key])}")
        return _each_text(_filled, _look_up(key.split("."), whole, where), whole, where, (*seen, key))

    single = _REFERENCE.fullmatch(text)
    return referred(single[1]) if single else _REFERENCE.sub(lambda match: str(referred(match[1])), text)
