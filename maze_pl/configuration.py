"""Where configurations come from: names are looked up and commands rewritten before anything heavy is imported.

`maze-pl fit --config ppo_cartpole --data.env env/gym_env` speaks in names. This module turns them into paths (or into
the YAML itself, where a file refers to others by name), and turns a *run directory* into the configuration that is
kept in it. What comes out is a command line that jsonargparse understands as it is.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

SEARCH_PATH_VARIABLE = "MAZE_PL_CONFIG_PATH"
RUN_CONFIG = "config.yaml"
_SUFFIXES = (".yaml", ".yml", ".json")
_GROUP_NAME = re.compile(r"[\w-]+(/[\w.-]+)+")
_CONFIG_OPTIONS = ("--config", "-c")
_TRAINED_RUN_COMMANDS = ("validate", "test", "predict")


class ConfigurationError(ValueError):
    """Something that the user asked for does not exist or contradicts itself; the message says what and where."""


def shipped_folder() -> Path:
    """Folder of the configurations that come with maze_pl: `configs/` of a checkout, or the copy in the wheel."""
    package = Path(str(resources.files("maze_pl")))
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def search_folders() -> list[Path]:
    """Folders in which names are looked up, the first one winning.

    Returns:
        `./configs`, the folders of the environment variable `MAZE_PL_CONFIG_PATH`, and the shipped ones.
    """
    own = [Path(folder) for folder in os.environ.get(SEARCH_PATH_VARIABLE, "").split(os.pathsep) if folder]
    folders = [Path.cwd() / "configs", *own, shipped_folder()]
    return list(dict.fromkeys(folder.resolve() for folder in folders))


def find(name: str) -> Path | None:
    """Path of the configuration of this name, without suffix, or None."""
    for folder in search_folders():
        for suffix in _SUFFIXES:
            path = folder / f"{name}{suffix}"
            if path.is_file():
                return path
    return None


def known_names() -> list[str]:
    """Every name that `find` would find, sorted."""
    found = set()
    for folder in search_folders():
        for suffix in _SUFFIXES:
            found |= {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob(f"*{suffix}")}
    return sorted(found)


def resolve(name: str) -> Path:
    """Path of a configuration that the user named, by path or by name.

    Raises:
        ConfigurationError: There is no such file; says where it was looked for and which names are close.
    """
    if name.endswith(_SUFFIXES):
        if Path(name).is_file():
            return Path(name)
        raise ConfigurationError(f"there is no file {name} in {Path.cwd()}")
    found = find(name)
    if found is not None:
        return found
    looked_in = ", ".join(str(folder) for folder in search_folders())
    near = difflib.get_close_matches(name, known_names(), n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ConfigurationError(f"there is no configuration named {name!r}; looked in {looked_in}{hint}")


def load(path: Path) -> Any:
    """Content of a YAML file in which every value that names another configuration is replaced by that one.

    A value refers to another file by `group/name`, looked up as on the command line, or by a path with suffix relative
    to this file.

    Raises:
        ConfigurationError: The file is not YAML, or refers to itself.
    """
    return _expand(_read(path), path, (path.resolve(),))


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def _expand(value: Any, source: Path, seen: tuple[Path, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _expand(item, source, seen) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, source, seen) for item in value]
    referred = find(value) if isinstance(value, str) and _GROUP_NAME.fullmatch(value) else None
    if referred is None:
        return value
    if referred.resolve() in seen:
        raise ConfigurationError(f"{source} refers to {value}, which refers back to it")
    return _expand(_read(referred), referred, (*seen, referred.resolve()))


def _as_argument(path: Path) -> str:
    """The file as an option's value: its path, or its content where names in it had to be resolved."""
    content = load(path)
    return str(path) if content == _read(path) else json.dumps(content)


def prepare(arguments: Sequence[str]) -> list[str]:
    """Rewrite a command so that it holds no names and no run directories any more.

    Args:
        arguments: The command line behind `maze-pl`: a command and its options.

    Returns:
        The command line that jsonargparse gets.

    Raises:
        ConfigurationError: A configuration or run directory does not exist, or options contradict each other.
    """
    command, options = arguments[0], _split(arguments[1:])
    options = _from_run_directory(command, options)
    experiment = None
    prepared: list[str] = []
    for option, value in options:
        if option in _CONFIG_OPTIONS and value is not None and not value.lstrip().startswith("{"):
            path = resolve(value)
            if path.name != RUN_CONFIG:
                experiment = path.stem
            value = _as_argument(path)
        elif option is not None and value is not None and _is_group(option, value):
            value = _as_argument(resolve(value))
        prepared += [token for token in (option, value) if token is not None]
    named = ["--experiment", experiment] if experiment is not None and command == "fit" else []
    return [command, *named, *prepared]


def _is_group(option: str, value: str) -> bool:
    """Whether the value of a model or data option names a group file: its folder is one of those searched."""
    if not option.startswith(("--model", "--data", "--trainer")) or not _GROUP_NAME.fullmatch(value):
        return False
    if value.endswith(_SUFFIXES) or Path(value).exists():
        return False
    group = value.split("/", maxsplit=1)[0]
    return any((folder / group).is_dir() for folder in search_folders())


def _split(arguments: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """Options with their values; a value without an option has None before it."""
    options: list[tuple[str | None, str | None]] = []
    for argument in arguments:
        if argument.startswith("-") and not re.fullmatch(r"-[\d.].*", argument):
            name, equals, value = argument.partition("=")
            options.append((name, value if equals else None))
        elif options and options[-1][0] is not None and options[-1][1] is None:
            options[-1] = (options[-1][0], argument)
        else:
            options.append((None, argument))
    return options


def _from_run_directory(
    command: str, options: list[tuple[str | None, str | None]]
) -> list[tuple[str | None, str | None]]:
    """Put the configuration that a run directory holds before the options that the user gave."""
    names = [option.replace("-", "_") for option, _ in options if option is not None]
    if command in _TRAINED_RUN_COMMANDS and options and options[0][0] is None:
        options = [("--run", options[0][1]), *options[1:]]
        names.append("__run")
    options = [("--warm_start" if option == "--warm-start" else option, value) for option, value in options]
    if "__resume" in names and "__warm_start" in names:
        raise ConfigurationError("--resume continues a run and --warm-start begins another one: give one of them")
    if "__resume" in names and "__run_dir" in names:
        raise ConfigurationError("--resume goes on in the run directory that it names: leave --run_dir out")
    given = [value for option, value in options if option in ("--resume", "--warm_start", "--run")]
    if not given:
        return options
    return [("--config", str(run_config(given[-1]))), *options]


def run_config(run_directory: str | None) -> Path:
    """The configuration kept in a run directory.

    Raises:
        ConfigurationError: This is not a run directory.
    """
    if run_directory is None:
        raise ConfigurationError("--resume and --warm-start need the run directory of a former run")
    path = Path(run_directory) / RUN_CONFIG
    if not path.is_file():
        raise ConfigurationError(f"{run_directory} is not a run directory: it has no {RUN_CONFIG}")
    return path


def checkpoint_path(location: str | Path, preference: Sequence[str] = ("best", "last")) -> Path:
    """The checkpoint file that a path means.

    Args:
        location: A checkpoint, or a run directory.
        preference: Which of a run's checkpoints to take; the first one that exists.

    Raises:
        ConfigurationError: There is none.
    """
    location = Path(location)
    if location.is_file():
        return location
    folder = location / "checkpoints"
    for name in preference:
        if (folder / f"{name}.ckpt").is_file():
            return folder / f"{name}.ckpt"
    wanted = " nor ".join(f"{name}.ckpt" for name in preference)
    raise ConfigurationError(f"there is no checkpoint in {location}: neither a file, nor {wanted} in {folder}")
