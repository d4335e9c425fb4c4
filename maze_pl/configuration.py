"""Where configurations come from: commands are rewritten before anything heavy is imported.

`maze-pl fit --config ppo_cartpole --data.env env/gym_env` speaks in names. What comes out is a command line that
jsonargparse understands as it is: without names, references and run directories.

- A value `group/name` is replaced by what the file of this name holds, on the command line and in files.
- `base: ppo_cartpole` (or a list) at the top of a file: it says only what differs from those.
- `${data.n_envs}` stands for another value of the assembled configuration, whichever file or option sets it;
  `init_args` may be left out on the way. The section `variables` is for values that exist only to be referred to.
- A run directory stands for the configuration that is kept in it.
"""

import copy
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from maze_pl import search_path
from maze_pl.search_path import ConfigurationError, dump, parse, read, resolve, suggestion

RUN_CONFIG = "config.yaml"
_BASE, _VARIABLES = "base", "variables"
_CONFIG_OPTIONS = ("--config", "-c")
_COMPONENT_OPTIONS = ("--model", "--data", "--trainer", "--env", "--wrappers", "--policy", "--runner")
_COMPONENT_KEYS = ("class_path", "init_args", "dict_kwargs")
_GROUP_NAME = re.compile(r"[\w-]+(/[\w.-]+)+")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_Option = tuple[str | None, str | None]

_CHECKED = ("env", "wrappers", "action_masks")
_ENVIRONMENT_OPTIONS = {"check": _CHECKED, "rollout": (*_CHECKED, "max_agents")}
_SPELLED_OUT: dict[_Option, str] = {(flag, None): "true" for flag in ("--deterministic", "--event_logs", "--render")}
_SPELLED_OUT |= {("--runner", name): f"runner/{name}" for name in ("sequential", "parallel")}


@dataclass
class Piece:
    """What one option of a command brings, or a file that such a file is based on.

    Attributes:
        option: `--config`, `--data.env` and the like; None for a value without option.
        text: What jsonargparse gets; None for an option without value.
        content: The value, with what it names in place.
        path: The file that it comes from, if any.
    """

    option: str | None
    text: str | None
    content: Any = None
    path: Path | None = None

    def put(self, content: Any) -> None:
        """Give it another value."""
        if content != self.content:
            self.content, self.text = content, dump(content)


def prepare(arguments: Sequence[str]) -> list[str]:
    """Rewrite a command, and let it import what lies in the projects that its configuration files belong to.

    Args:
        arguments: The command line behind `maze-pl`: a command and its options.

    Returns:
        The command line that jsonargparse gets.

    Raises:
        ConfigurationError: A configuration or run directory does not exist, a reference leads nowhere, or options
            contradict each other.
    """
    command, options = arguments[0], _from_run_directory(arguments[0], _split(arguments[1:]))
    pieces = _pieces(options)
    paths = [piece.path for piece in pieces if piece.path is not None]
    folders = [str(folder) for folder in (Path.cwd(), *map(search_path.project_folder, paths)) if folder is not None]
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in sys.path]
    named = [p.path.stem for p in pieces if p.option in _CONFIG_OPTIONS and p.path and p.path.name != RUN_CONFIG]
    prepared = [command, *(("--experiment", named[-1]) if named and command == "fit" else ())]
    for piece in interpolate(pieces):
        if command in _ENVIRONMENT_OPTIONS:
            _take_environment(piece, command)
        word = "=".join(token for token in (piece.option, piece.text) if token is not None)
        prepared += [word] if word else []
    return prepared


def _take_environment(piece: Piece, command: str) -> None:
    """Turn what an option says of the environment and its wrappers into options of the command."""
    content = piece.content
    if piece.option == "--policy" and content is not None:  # spelled out, so that arguments may be added
        piece.text = dump(content if isinstance(content, dict) else {"class_path": content})
    elif piece.option == "--run" and command == "check":  # whose configuration comes before
        piece.option = piece.text = None
    elif piece.option not in _CONFIG_OPTIONS:
        piece.option = piece.option and piece.option.replace("--data.", "--", 1)
    elif isinstance(content, dict) and (command == "check" or "data" in content):  # else it is one of the command
        data = content.get("data") or {}
        whole = {**content, **data, **(data.get("init_args") or {})}
        piece.put({key: whole[key] for key in _ENVIRONMENT_OPTIONS[command] if key in whole})


def _pieces(options: Sequence[_Option]) -> list[Piece]:
    """What each option brings, with what files name and are based on."""
    beside = [resolve(value) for option, value in options if _is_config(value, option)]
    pieces: list[Piece] = []
    for option, value in options:
        if option is None or value is None:
            pieces.append(Piece(option, value))
        elif _is_config(value, option):
            pieces += with_bases(option, resolve(value))
        elif _is_group(option, value, beside):
            path = resolve(value, beside)
            pieces.append(from_file(option, path, read(path)))
        else:
            pieces.append(Piece(option, value, parse(value)))
    return pieces


def _is_config(value: str | None, option: str | None) -> TypeGuard[str]:
    """Whether the value of an option names a file that configures the whole command."""
    return option in _CONFIG_OPTIONS and value is not None and not value.lstrip().startswith("{")


def _is_group(option: str, value: str, beside: Sequence[Path]) -> bool:
    """Whether an option's value names a group file: its folder is one of those searched."""
    if not (option.startswith(_COMPONENT_OPTIONS) and _GROUP_NAME.fullmatch(value)) or Path(value).exists():
        return False
    return any((folder / value.split("/")[0]).is_dir() for folder in search_path.search_folders(beside))


def _split(arguments: Sequence[str]) -> list[_Option]:
    """Options with their values; a value without an option has None before it."""
    options: list[_Option] = []
    for argument in arguments:
        if argument.startswith("-") and not re.fullmatch(r"-[\d.].*", argument):
            name, equals, value = argument.partition("=")
            options.append((name, value if equals else None))
        elif options and options[-1][0] is not None and options[-1][1] is None:
            options[-1] = (options[-1][0], argument)
        else:
            options.append((None, argument))
    return options


def _from_run_directory(command: str, options: list[_Option]) -> list[_Option]:
    """Put the configuration that a run directory holds before the options that the user gave."""
    options = [(option, _SPELLED_OUT.get((option, value), value)) for option, value in options]
    if command in ("validate", "test", "check", "rollout") and options and options[0][0] is None:
        options = [("--run", options[0][1]), *options[1:]]
    options = [("--warm_start" if option == "--warm-start" else option, value) for option, value in options]
    names = {option for option, _ in options}
    if {"--resume", "--warm_start"} <= names:
        raise ConfigurationError("--resume continues a run and --warm-start begins another one: give one of them")
    if {"--resume", "--run_dir"} <= names:
        raise ConfigurationError("--resume goes on in the run directory that it names: leave --run_dir out")
    for value in [value for option, value in options if option in ("--resume", "--warm_start", "--run") and value][-1:]:
        path = Path(str(value), RUN_CONFIG)
        if not path.is_file():
            raise ConfigurationError(f"{value} is not a run directory: it has no {RUN_CONFIG}")
        options = [("--config", str(path)), *options]
    return options


# ------------------------------------------------------------------------------------------------- files in files


def with_bases(option: str, path: Path, seen: tuple[Path, ...] = ()) -> list[Piece]:
    """A configuration, and before it those that it is based on.

    Raises:
        ConfigurationError: A base does not exist, or is based on this file itself.
    """
    if path.resolve() in seen:
        raise ConfigurationError(f"{seen[-1]} is based on {path}, which is based on it in turn")
    content = read(path)
    if not isinstance(content, dict):
        what = "is empty" if content is None else f"holds a {type(content).__name__}"
        raise ConfigurationError(f"{path} {what}; expected options, such as `trainer: {{max_epochs: 10}}`")
    bases, pieces = content.pop(_BASE, []), []
    for name in bases if isinstance(bases, list) else [bases]:
        if not isinstance(name, str):
            raise ConfigurationError(f"{path}: {_BASE} names configurations, but {name!r} is not a name")
        beside = path.parent / name
        base = beside if beside.is_file() else resolve(name, [path])
        pieces += with_bases(option, base, (*seen, path.resolve()))
    return [*pieces, from_file(option, path, content)]


def from_file(option: str, path: Path, content: Any) -> Piece:
    """What a file brings, with what its content names in place."""
    expanded = _each_text(_expand, content, path, (path.resolve(),))
    is_whole = option not in _CONFIG_OPTIONS and expanded == content  # jsonargparse takes `null` in files only
    return Piece(option, str(path) if is_whole else dump(expanded), expanded, path)


def _each_text(change: Callable[..., Any], value: Any, *arguments: Any) -> Any:
    """A value, with what a function makes of each text in it; the arguments are the function's."""
    if isinstance(value, dict):
        return {key: _each_text(change, item, *arguments) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(change, item, *arguments) for item in value]
    return change(value, *arguments) if isinstance(value, str) else value


def _expand(text: str, source: Path, seen: tuple[Path, ...]) -> Any:
    """What a text in the file `source` names, with everything in place that this names; else the text itself.

    A path to another YAML file, beside this one, becomes an absolute path, unless that holds components.
    """
    beside = source.parent / text
    if text.endswith(search_path.SUFFIXES) and beside.is_file():
        parts = content if isinstance(content := read(beside), list) else [content]
        if not parts or not all(isinstance(one, dict) and one and {*one} <= {*_COMPONENT_KEYS} for one in parts):
            return str(beside.resolve())  # for a constructor that reads files itself
        named: Path | None = beside.resolve()
    else:
        named = search_path.find(text, [source]) if _GROUP_NAME.fullmatch(text) else None
    if named is None:
        return text
    if named in seen:
        raise ConfigurationError(f"{source} refers to {text}, which refers back to it")
    return _each_text(_expand, read(named), named, (*seen, named))


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
        keys, content = (piece.option or "").lstrip("-").split("."), piece.content
        if piece.option not in _CONFIG_OPTIONS:
            if keys[0] == _VARIABLES:
                _look_up(keys, whole, f"the option {piece.option}")
            for key in reversed(keys):
                content = {key: content}
        if isinstance(content, dict) and piece.text is not None and not keys[-1].endswith("+"):
            _merge(whole, content)
        if keys[0] != _VARIABLES:
            kept.append(piece)
    for piece in kept:
        content = piece.content
        if piece.option in _CONFIG_OPTIONS and isinstance(content, dict):
            content = {key: value for key, value in content.items() if key != _VARIABLES}
        where = f"the option {piece.option}" if piece.path is None else str(piece.path)
        piece.put(_each_text(_filled, content, whole, where, ()))
    return kept


def _merge(into: dict[Any, Any], content: dict[Any, Any]) -> None:
    """Set what a mapping says, where `init_args` may be left out on the way."""
    for key, value in content.items():
        holder = _holder(into, key)
        if isinstance(value, dict) and isinstance(holder.get(key), dict):
            _merge(holder[key], value)
        else:
            holder[key] = copy.deepcopy(value)


def _holder(node: dict[Any, Any], key: str) -> dict[Any, Any]:
    """The mapping that has, or is to have, a key: that of a component's arguments if it is one of them."""
    arguments = node.get("init_args")
    return arguments if isinstance(arguments, dict) and key not in _COMPONENT_KEYS else node


def _look_up(keys: Sequence[str], whole: dict[Any, Any], where: str) -> Any:
    node: Any = whole
    for index, key in enumerate(keys):
        if isinstance(node, list):
            node = {str(n): item for n, item in enumerate(node)}
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
