"""Where configurations come from: commands are rewritten before anything heavy is imported.

`maze-pl fit --config ppo_cartpole --data.env env/gym_env` speaks in names. This module turns them into paths (or into
the YAML itself, where files refer to others or to each other's values), and turns a *run directory* into the
configuration that is kept in it. What comes out is a command line that jsonargparse understands as it is.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from maze_pl.composition import Piece, from_file, interpolate, is_group_name, with_bases
from maze_pl.search_path import SUFFIXES, ConfigurationError, project_folder, resolve, search_folders
from maze_pl.yaml_text import parse

RUN_CONFIG = "config.yaml"
_CONFIG_OPTIONS = ("--config", "-c")
_Option = tuple[str | None, str | None]

_CHECKED = "env", "wrappers", "action_masks"
_ENVIRONMENT_OPTIONS = {"check": _CHECKED, "rollout": (*_CHECKED, "max_agents")}
_SPELLED_OUT: dict[_Option, str] = {(flag, None): "true" for flag in ("--deterministic", "--event_logs", "--render")}
_SPELLED_OUT |= {("--runner", name): f"runner/{name}" for name in ("sequential", "parallel")}


def prepare(arguments: Sequence[str]) -> list[str]:
    """Rewrite a command so that it holds no names, no references and no run directories any more.

    Args:
        arguments: The command line behind `maze-pl`: a command and its options.

    Returns:
        The command line that jsonargparse gets.

    Raises:
        ConfigurationError: A configuration or run directory does not exist, a reference leads nowhere, or options
            contradict each other.
    """
    command, options = arguments[0], _from_run_directory(arguments[0], _split(arguments[1:]))
    experiments = [path.stem for path in _config_files(options) if path.name != RUN_CONFIG]
    prepared: list[str] = []
    for piece in interpolate(_pieces(options)):
        if command in _ENVIRONMENT_OPTIONS:
            piece = _of_environment(piece, command)
        value = piece.argument
        if piece.option == "--print_config" and value is not None:  # which belongs to the same word
            prepared.append(f"{piece.option}={value}")
        else:
            prepared += [token for token in (piece.option, value) if token is not None]
    named = ["--experiment", experiments[-1]] if experiments and command == "fit" else []
    return [command, *named, *prepared]


def _of_environment(piece: Piece, command: str) -> Piece:
    """What an option says of the environment and its wrappers, as the options of the command have it."""
    if piece.option in _CONFIG_OPTIONS and isinstance(piece.content, dict):
        if command == "rollout" and "data" not in piece.content:  # a configuration of its own
            return piece
        data = piece.content.get("data") or {}
        whole = {**piece.content, **data, **(data.get("init_args") or {})}
        checked = {key: whole[key] for key in _ENVIRONMENT_OPTIONS[command] if key in whole}
        return replace(piece, content=checked)
    if piece.option == "--policy" and piece.content is not None:  # spelled out, so that arguments may be added
        whole = piece.content if isinstance(piece.content, dict) else {"class_path": piece.content}
        return replace(piece, content=whole, raw=None)
    if piece.option == "--run" and command == "check":  # whose configuration comes before
        return Piece(None, None)
    return replace(piece, option=piece.option and piece.option.replace("--data.", "--", 1))


def project_folders(arguments: Sequence[str]) -> list[str]:
    """Folders from which a command may import what its configurations name, beside what is installed.

    Returns:
        The current folder and those of the projects that its configuration files belong to.
    """
    pieces = _pieces(_from_run_directory(arguments[0], _split(arguments[1:])))
    found = [project_folder(piece.path) for piece in pieces if piece.path is not None]
    return list(dict.fromkeys(str(folder) for folder in (Path.cwd(), *found) if folder is not None))


def _config_files(options: Sequence[_Option]) -> Iterator[Path]:
    """Files that options name as configurations of the whole command."""
    for option, value in options:
        if option in _CONFIG_OPTIONS and value is not None and not value.lstrip().startswith("{"):
            yield resolve(value)


def _pieces(options: Sequence[_Option]) -> list[Piece]:
    """What each option brings, with what files name and are based on."""
    beside = list(_config_files(options))
    pieces: list[Piece] = []
    for option, value in options:
        if option is None or value is None:
            pieces.append(Piece(option, value))
        elif option in _CONFIG_OPTIONS and not value.lstrip().startswith("{"):
            pieces += with_bases(option, resolve(value))
        elif _is_group(option, value, beside):
            pieces.append(from_file(option, resolve(value, beside)))
        else:
            pieces.append(Piece(option, value, _parsed(value), _parsed(value)))
    return pieces


def _parsed(text: str) -> object:
    """An option's value as YAML, or as text where it is none; jsonargparse says what is wrong with it."""
    try:
        return parse(text)
    except yaml.YAMLError:
        return text


def _is_group(option: str, value: str, beside: Sequence[Path]) -> bool:
    """Whether the value of a model, data or trainer option names a group file: its folder is one of those searched."""
    if not is_group_name(value) or value.endswith(SUFFIXES) or Path(value).exists():
        return False
    is_component = option.startswith(("--model", "--data", "--trainer", "--env", "--wrappers", "--policy", "--runner"))
    return is_component and any((folder / value.split("/")[0]).is_dir() for folder in search_folders(beside))


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
    if command in ("validate", "test", "predict", "check", "rollout") and options and options[0][0] is None:
        options = [("--run", options[0][1]), *options[1:]]
    options = [("--warm_start" if option == "--warm-start" else option, value) for option, value in options]
    names = {option for option, _ in options}
    if {"--resume", "--warm_start"} <= names:
        raise ConfigurationError("--resume continues a run and --warm-start begins another one: give one of them")
    if {"--resume", "--run_dir"} <= names:
        raise ConfigurationError("--resume goes on in the run directory that it names: leave --run_dir out")
    given = [value for option, value in options if option in ("--resume", "--warm_start", "--run")]
    return [*(("--config", str(run_config(value))) for value in given[-1:]), *options]


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
    paths = [Path(location), *(Path(location, "checkpoints", f"{name}.ckpt") for name in preference)]
    for path in paths:
        if path.is_file():
            return path
    raise ConfigurationError(f"there is no checkpoint: none of {', '.join(map(str, paths))} is a file")
