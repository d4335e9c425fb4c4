"""Assembling of configurations: commands are rewritten before anything heavy is imported.

`maze-pl fit --config ppo_cartpole --data.env env/gym_env` uses names. The result is a command line
that jsonargparse understands directly: without names, references and run directories.

- A value `group/name` is replaced by the content of the file of this name, on the command line and
  in files.
- `base: ppo_cartpole` (or a list) at the top of a file: the file only gives the differences from
  its bases.
- `${data.n_envs}` stands for another value of the assembled configuration, no matter which file or
  option sets it; `init_args` may be omitted in its path. The section `variables` holds values that
  only exist to be referred to.
- A run directory stands for the configuration saved in it; for `--warm-start` only if no other one
  is named. Without `--trust` this configuration may only name parts of maze_pl, gymnasium and
  torch.nn; see `maze_pl.config.trust`.
"""

import copy
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from maze_pl.config import search_path
from maze_pl.config.search_path import ConfigurationError, dump, parse, read, resolve, suggestion
from maze_pl.config.trust import (
    Trust,
    extend_import_path,
    foreign_names,
    import_folders,
    may_name_foreign,
    refusal,
    require_modules,
)

RUN_CONFIG = "config.yaml"
TRUST_OPTION = "--trust"
_BASE, _VARIABLES = "base", "variables"
_CONFIG_OPTIONS = ("--config", "-c")
_COMPONENT_OPTIONS = ("--model", "--data", "--trainer", "--env", "--wrappers", "--policy", "--runner")
_OF_THE_CALL = ("run_dir", "resume", "warm_start", "run", "ckpt_path", "experiment", "print_model", "wandb", "trust")
_MOST_LETTERS = 60  # length limit of a value in a summary
_COMPONENT_KEYS = ("class_path", "init_args", "dict_kwargs")
_GROUP_NAME = re.compile(r"[\w-]+(/[\w.-]+)+")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_Option = tuple[str | None, str | None]

_CHECKED = ("env", "wrappers", "action_masks")
_ENVIRONMENT_OPTIONS = {"check": _CHECKED, "rollout": (*_CHECKED, "max_agents")}
_SPELLED_OUT: dict[_Option, str] = {
    ("--deterministic", None): "true",
    ("--event_logs", None): "true",
    ("--render", None): "true",
    ("--runner", "sequential"): "runner/sequential",
    ("--runner", "parallel"): "runner/parallel",
}


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
        is_config = self.option in _CONFIG_OPTIONS
        return is_config and self.path is not None and self.path.name != RUN_CONFIG

    def put(self, content: Any) -> None:
        """Replace the value."""
        if content != self.content:
            self.content, self.text = content, dump(content)


class Prepared(list[str]):
    """A command line that jsonargparse understands.

    Attributes:
        trust: The classes that it may instantiate.
    """

    trust = Trust()


def prepare(arguments: Sequence[str]) -> Prepared:
    """Rewrite a command, and make the projects of its configuration files importable.

    Args:
        arguments: The command line after `maze-pl`: a command and its options.

    Returns:
        The command line for jsonargparse.

    Raises:
        ConfigurationError: A configuration or run directory does not exist, a reference is
            unresolved, options contradict each other, or a run directory names something that needs
            `--trust`.
    """
    command = arguments[0]
    is_trusted = TRUST_OPTION in arguments
    run_dir, pieces = _run_and_pieces(arguments)
    users = [piece for piece in pieces if not piece.of_run]
    trust = Trust()
    if not is_trusted and len(users) < len(pieces):
        trust = Trust.of_names_in([piece.content for piece in users])
    _extend_import_path(pieces if is_trusted else users, run_dir, trust)
    prepared = Prepared([command])
    prepared.trust = trust
    experiment = _experiment(pieces)
    if experiment is not None and command == "fit":
        prepared += ["--experiment", experiment]
    users_names: set[str] = set()
    if run_dir is not None:
        for piece in users:
            users_names.update(foreign_names(piece.content))
    for piece in interpolate(pieces):
        if run_dir is not None:
            allowed = set() if piece.of_run else users_names
            _require_trust(piece, run_dir, trust, allowed, arguments)
        if command in _ENVIRONMENT_OPTIONS:
            _take_environment(piece, command)
        word = "=".join(token for token in (piece.option, piece.text) if token is not None)
        prepared += [word] if word else []
    if is_trusted and command != "check":
        prepared.append(f"{TRUST_OPTION}=true")
    return prepared


def _experiment(pieces: Sequence[Piece]) -> str | None:
    """Return the name of the last configuration file that the user named, None without one."""
    names = [piece.path.stem for piece in pieces if piece.is_users_config and piece.path]
    return names[-1] if names else None


def _run_and_pieces(arguments: Sequence[str]) -> tuple[Path | None, list[Piece]]:
    """Return the run directory that a command starts from, if any, and all its pieces."""
    run_dir, options = _from_run_directory(arguments[0], _split(arguments[1:]))
    return run_dir, _pieces(options, run_dir, TRUST_OPTION in arguments)


def _extend_import_path(pieces: Sequence[Piece], run_dir: Path | None, trust: Trust) -> None:
    """Make the projects of configuration files, the current folder and a run's folders importable.

    The current folder may belong to an untrusted run; then it is only added if the user names a
    class that may be in it.
    """
    is_trusted = trust.names is None
    folders: list[str] = []
    if is_trusted or any(may_name_foreign(piece.content) for piece in pieces):
        folders.append(str(Path.cwd()))
    for piece in pieces:
        project = None if piece.path is None else search_path.project_folder(piece.path)
        if project is not None:
            folders.append(str(project))
    if run_dir is not None and is_trusted:
        folders += import_folders(run_dir)
    extend_import_path(folders)


def _require_trust(piece: Piece, run_dir: Path, trust: Trust, allowed: Collection[str], command: Sequence[str]) -> None:
    """Refuse untrusted names from a run directory, also via references, and missing modules.

    Args:
        piece: A piece of the command.
        run_dir: The run directory.
        trust: The classes that the command may instantiate.
        allowed: Names that the user wrote.
        command: The command, to be repeated with `--trust`.
    """
    if trust.names is None:
        if piece.of_run:
            require_modules(piece.content, run_dir)
        return
    folders = [str(Path.cwd()), *import_folders(run_dir)]
    foreign = [name for name in foreign_names(piece.content, folders) if name not in allowed]
    if foreign:
        repeated = shlex.join(["maze-pl", *command, TRUST_OPTION])
        condition = "if you trust the origin of this run"
        remedy = f"{condition}, repeat the command with {TRUST_OPTION}:\n  {repeated}"
        raise ConfigurationError(f"{refusal(run_dir / RUN_CONFIG, foreign, run_dir)}; {remedy}")


def _take_environment(piece: Piece, command: str) -> None:
    """Turn an option about the environment and its wrappers into options of the command."""
    content = piece.content
    if piece.option == "--policy" and content is not None:  # so that arguments may be added
        piece.text = dump(content if isinstance(content, dict) else {"class_path": content})
    elif piece.option == "--run" and command == "check":  # its configuration precedes the options
        piece.option = piece.text = None
    elif piece.option not in _CONFIG_OPTIONS:
        piece.option = piece.option and piece.option.replace("--data.", "--", 1)
    elif isinstance(content, dict) and (command == "check" or "data" in content):
        data = content.get("data") or {}
        whole = {**content, **data, **(data.get("init_args") or {})}
        piece.put({key: whole[key] for key in _ENVIRONMENT_OPTIONS[command] if key in whole})


def _pieces(options: Sequence[_Option], run_dir: Path | None, is_trusted: bool) -> list[Piece]:
    """Return the pieces of a run directory's configuration, then of each option, bases included.

    Args:
        options: The options of the user.
        run_dir: The run directory whose configuration precedes them, if any.
        is_trusted: Whether names in the options may also refer to files next to that configuration.
    """
    beside = [resolve(value) for option, value in options if _is_config(value, option)]
    pieces: list[Piece] = []
    if run_dir is not None:
        path = run_dir / RUN_CONFIG
        beside = [path, *beside] if is_trusted else beside
        pieces = [replace(piece, of_run=True) for piece in with_bases("--config", path)]
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
    """Tell if an option's value names a file that configures the whole command."""
    return option in _CONFIG_OPTIONS and value is not None and not value.lstrip().startswith("{")


def _is_group(option: str, value: str, beside: Sequence[Path]) -> bool:
    """Tell if an option's value names a group file, in one of the searched folders."""
    if not option.startswith(_COMPONENT_OPTIONS) or not _GROUP_NAME.fullmatch(value):
        return False
    if Path(value).exists():
        return False
    group = value.split("/")[0]
    return any((folder / group).is_dir() for folder in search_path.search_folders(beside))


def _split(arguments: Sequence[str]) -> list[_Option]:
    """Return (option, value) pairs without `--trust`; the option of a bare value is None."""
    options: list[_Option] = []
    for argument in arguments:
        if argument == TRUST_OPTION:
            continue
        if argument.startswith("-") and not re.fullmatch(r"-[\d.].*", argument):
            name, equals, value = argument.partition("=")
            options.append((name, value if equals else None))
        elif options and options[-1][0] is not None and options[-1][1] is None:
            options[-1] = (options[-1][0], argument)
        else:
            options.append((None, argument))
    return options


def _from_run_directory(command: str, options: list[_Option]) -> tuple[Path | None, list[_Option]]:
    """Return the run directory whose configuration precedes the options, and the options."""
    options = [(option, _SPELLED_OUT.get((option, value), value)) for option, value in options]
    if command in ("validate", "test", "check", "rollout") and options and options[0][0] is None:
        options = [("--run", options[0][1]), *options[1:]]
    renamed = {"--warm-start": "--warm_start"}
    options = [(renamed.get(option or "", option), value) for option, value in options]
    names = {option for option, _ in options}
    if {"--resume", "--warm_start"} <= names:
        fault = "--resume continues a run and --warm-start starts a new one"
        raise ConfigurationError(f"{fault}: use only one of them")
    if {"--resume", "--run_dir"} <= names:
        raise ConfigurationError("--resume continues in its run directory: omit --run_dir")
    sources = {"--resume", "--run"}
    if not names.intersection(_CONFIG_OPTIONS):
        sources.add("--warm_start")
    runs = [value for option, value in options if option in sources and value]
    if not runs:
        return None, options
    if not Path(runs[-1], RUN_CONFIG).is_file():
        raise ConfigurationError(f"{runs[-1]} is not a run directory: it has no {RUN_CONFIG}")
    return Path(runs[-1]), options


def options_of(command: Sequence[str]) -> list[str]:
    """Return the option names in a command line, such as `--config` and `--model.lr`."""
    return [option for option, _ in _split(command) if option is not None]


def names_configuration(command: Sequence[str]) -> bool:
    """Tell if a command line names a configuration."""
    return any(option in _CONFIG_OPTIONS for option in options_of(command))


# ----------------------------------------------------------------------------- summary of a command


@dataclass(frozen=True)
class Summary:
    """A configuration in a few lines: the file that it starts from, and the options that differ.

    Attributes:
        name: Name or path of that configuration.
        changes: Option -> (its value, its value in that configuration or None) for all differences.
    """

    name: str
    changes: dict[str, tuple[Any, Any]]

    def __str__(self) -> str:
        if not self.changes:
            return f"configuration: {self.name}"
        lines = [f"configuration: {self.name}, with"]
        for option, (value, previous) in self.changes.items():
            instead = "" if previous is None else f" (instead of {_in_a_line(previous)})"
            lines.append(f"  {option}: {_in_a_line(value)}{instead}")
        return "\n".join(lines)


def summarize(arguments: Sequence[str]) -> Summary:
    """Summarize the configuration that a command starts from and the changes to it.

    The start is the last configuration in the command that is shipped with maze_pl or from a run
    directory; without one, it is all of the user's files.

    Args:
        arguments: The command line after `maze-pl`, as for `prepare`.
    """
    pieces = interpolate(_run_and_pieces(arguments)[1])
    files = [piece for piece in pieces if piece.option in _CONFIG_OPTIONS and piece.path is not None]
    shipped = search_path.shipped_folder().resolve()
    known = [piece for piece in files if _is_known(piece.path, shipped)] or files
    if not known:
        return Summary("none", _changes({}, _flat(_merged(pieces))))
    first = pieces[: pieces.index(known[-1]) + 1]
    path = known[-1].path
    is_shipped = path is not None and shipped in path.resolve().parents
    name = path.stem if path is not None and is_shipped else str(path)
    return Summary(name, _changes(_flat(_merged(first)), _flat(_merged(pieces))))


def _is_known(path: Path | None, shipped: Path) -> bool:
    return path is not None and (path.name == RUN_CONFIG or shipped in path.resolve().parents)


def _merged(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Merge the content of all pieces; later ones win."""
    whole: dict[str, Any] = {}
    for piece in pieces:
        keys = (piece.option or "").lstrip("-").split(".")
        if piece.text is None or keys[0] in _OF_THE_CALL:
            continue
        content = piece.content
        if piece.option not in _CONFIG_OPTIONS:
            for key in reversed(keys):
                content = {key: content}
        if isinstance(content, dict):
            _merge(whole, content)
    return whole


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values by dotted option; a class path is listed under its component's name."""
    values: dict[str, Any] = {}
    for key, value in node.items():
        name = prefix if key in ("class_path", "init_args") else f"{prefix}.{key}".lstrip(".")
        if isinstance(value, dict) and value:
            values |= _flat(value, name)
        else:
            values[name] = value
    return values


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    changes: dict[str, tuple[Any, Any]] = {}
    for name, value in after.items():
        if before.get(name) != value:
            changes[name] = (value, before.get(name))
    return changes


def _in_a_line(value: Any) -> str:
    text = dump(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} ..."


# ------------------------------------------------------------------------------------------------- files in files


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
        fault = f"{derived[-1]} is based on {path}, which makes a circle of bases"
        raise ConfigurationError(fault)
    content = read(path)
    if not isinstance(content, dict):
        fault = "is empty" if content is None else f"contains a {type(content).__name__}"
        example = "`trainer: {max_epochs: 10}`"
        raise ConfigurationError(f"{path} {fault}; expected options, such as {example}")
    bases = content.pop(_BASE, [])
    if not isinstance(bases, list):
        bases = [bases]
    pieces: list[Piece] = []
    for name in bases:
        if not isinstance(name, str):
            fault = f"{_BASE} must name configurations, but {name!r} is not a name"
            raise ConfigurationError(f"{path}: {fault}")
        beside = path.parent / name
        base = beside if beside.is_file() else resolve(name, [path])
        pieces += with_bases(option, base, (*derived, path.resolve()))
    return [*pieces, from_file(option, path, content)]


def from_file(option: str, path: Path, content: Any) -> Piece:
    """Return the piece of a file, with the names in its content replaced."""
    expanded = _each_text(_expand, content, path, (path.resolve(),))
    # jsonargparse accepts `null` in files only
    is_whole = option not in _CONFIG_OPTIONS and expanded == content
    return Piece(option, str(path) if is_whole else dump(expanded), expanded, path)


def _each_text(change: Callable[..., Any], value: Any, *arguments: Any) -> Any:
    """Apply a function to each string in a nested value; `arguments` are passed on to it."""
    if isinstance(value, dict):
        return {key: _each_text(change, item, *arguments) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(change, item, *arguments) for item in value]
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
    beside = source.parent / text
    named: Path | None = None
    if text.endswith(search_path.SUFFIXES) and beside.is_file():
        content = read(beside)
        parts = content if isinstance(content, list) else [content]
        if not parts or not all(map(_is_component, parts)):
            return str(beside.resolve())  # for a constructor that reads files itself
        named = beside.resolve()
    elif _GROUP_NAME.fullmatch(text):
        named = search_path.find(text, [source])
    if named is None:
        return text
    if named in referring:
        raise ConfigurationError(f"{source} refers to {text}, which refers back to it")
    return _each_text(_expand, read(named), named, (*referring, named))


def _is_component(node: Any) -> bool:
    """Tell if a part of a file is a class path with arguments."""
    return isinstance(node, dict) and bool(node) and {*node} <= {*_COMPONENT_KEYS}


# ------------------------------------------------------------------------------------------------------ references


def interpolate(pieces: Sequence[Piece]) -> list[Piece]:
    """Replace references by values, and remove the variables.

    Args:
        pieces: In the order in which they take effect; later ones win.

    Raises:
        ConfigurationError: A reference is unresolved or circular, or an option sets a variable that
            no file has.
    """
    whole: dict[str, Any] = {}
    kept = []
    for piece in pieces:
        keys = (piece.option or "").lstrip("-").split(".")
        content = piece.content
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
    """Merge a mapping into another one; its keys may omit `init_args`."""
    for key, value in content.items():
        holder = _holder(into, key)
        if isinstance(value, dict) and isinstance(holder.get(key), dict):
            _merge(holder[key], value)
        else:
            holder[key] = copy.deepcopy(value)


def _holder(node: dict[Any, Any], key: str) -> dict[Any, Any]:
    """Return the mapping that a key belongs to: `init_args` if it is a component's argument."""
    arguments = node.get("init_args")
    return arguments if isinstance(arguments, dict) and key not in _COMPONENT_KEYS else node


def _look_up(keys: Sequence[str], whole: dict[Any, Any], where: str) -> Any:
    """Return the value of a dotted key; a ConfigurationError begins with `where`."""
    node: Any = whole
    for index, key in enumerate(keys):
        if isinstance(node, list):
            node = {str(n): item for n, item in enumerate(node)}
        node = _holder(node, key) if isinstance(node, dict) else {}
        if key not in node:
            known = [".".join([*keys[:index], str(other)]) for other in node]
            near = suggestion(".".join(keys[: index + 1]), known)
            problem = f"which is not set by any configuration file or option{near}"
            raise ConfigurationError(f"{where} refers to {'.'.join(keys)}, {problem}")
        node = node[key]
    return node


def _filled(text: str, whole: dict[str, Any], where: str, referring: tuple[str, ...]) -> Any:
    """Replace the references in a text; a text that is a single reference becomes its value."""

    def value_of(key: str) -> Any:
        if key in referring:
            raise ConfigurationError(f"{where}: {' refers to '.join([*referring, key])}")
        value = _look_up(key.split("."), whole, where)
        return _each_text(_filled, value, whole, where, (*referring, key))

    single = _REFERENCE.fullmatch(text)
    if single is not None:
        return value_of(single[1])
    return _REFERENCE.sub(lambda match: str(value_of(match[1])), text)
