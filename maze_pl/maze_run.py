"""maze-run: command lines as Maze's documentation writes them, run by maze-pl.

usage: maze-run [-cn conf_train|conf_rollout|conf_rllib|CONFIG] [-cd FOLDER] [GROUP=NAME ...] [KEY=VALUE ...]
                [--multirun] [--trust]

Prints the equivalent maze-pl command, and runs it. Groups are env, wrappers, algorithm, model, critic, policy, runner
and +experiment. Without -cn, episodes are played. --trust is that of maze-pl.

  maze-run -cn conf_train env.name=CartPole-v1 algorithm=a2c algorithm.n_epochs=5
  maze-run env.name=CartPole-v1 policy=torch_policy input_dir=RUN_DIR
  maze-run -cn conf_train algorithm=ppo algorithm.n_epochs=5 algorithm.lr=0.0001,0.0005,0.001 --multirun
"""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from maze_pl.__main__ import main as maze_pl_main
from maze_pl.config.assembling import TRUST_OPTION
from maze_pl.config.search_path import (
    OUTPUT_FOLDER,
    SEARCH_PATH_VARIABLE,
    ConfigurationError,
    dump,
    find,
    known_names,
    parse,
    read,
    suggestion,
)
from maze_pl.migration.documented import (
    ROLLOUTS,
    TRAINING,
    fit_options,
    option_value,
    product,
    rollout_options,
)
from maze_pl.migration.documented_names import GROUPS
from maze_pl.migration.documented_rllib import RLLIB, rllib_options
from maze_pl.runs.run_directory import new_directory

_OPTIONS: Final = {
    "-cn": "root",
    "--config-name": "root",
    "-cd": "folder",
    "--config-dir": "folder",
}
_SWITCHES: Final = ("--multirun", "-m")
_SEARCHES: Final = {"nevergrad": "hyperparameter_search"}
"""Experiment of Maze's documentation -> experiment of maze_pl."""
_OF_SWEEPS: Final = {
    "hydra.sweep.dir": "run_dir",
    "hydra.launcher.n_jobs": "n_parallel",
    "hydra.sweeper.optim.num_workers": "n_parallel",
    "hydra.sweeper.optim.budget": "n_trials",
}
"""Keys of a search -> options of `maze-pl sweep`."""
_IMPOSSIBLE: Final = 2


@dataclass
class _Request:
    """A command line of maze-run.

    Attributes:
        root: Name of the root configuration.
        folder: Folder of further configurations; "" for none.
        is_multirun: Whether lists of values mean one run for each of them.
        is_trusted: Whether run directories may name any class.
        groups: Group -> name.
        keys: Dotted key -> value.
    """

    root: str = ROLLOUTS
    folder: str = ""
    is_multirun: bool = False
    is_trusted: bool = False
    groups: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `maze-run`.

    Args:
        arguments: The command line without the program's name; that of the process if None.

    Returns:
        The exit status: that of `maze-pl`, or 2 if something cannot be translated.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        (sys.stdout if words else sys.stderr).write(f"{__doc__}")
        return 0 if words else _IMPOSSIBLE
    with ExitStack() as undo:
        try:
            request = _parsed(words)
            if request.folder:
                _search_in(request.folder, undo)
            commands = _commands(request, undo)
        except ConfigurationError as error:
            sys.stderr.write(f"maze-run: error: {error}\n")
            return _IMPOSSIBLE
        prefix = f"{SEARCH_PATH_VARIABLE}={shlex.quote(request.folder)} " if request.folder else ""
        statuses = []
        for command in commands:
            sys.stdout.write(f"{prefix}maze-pl {shlex.join(command)}\n")
            sys.stdout.flush()
            statuses.append(maze_pl_main(command))
            if statuses[-1] >= 128:  # a signal stopped it
                break
        return max(statuses)


def _parsed(words: Sequence[str]) -> _Request:
    """Read a command line.

    Raises:
        ConfigurationError: A word is not one of `maze-run`.
    """
    request = _Request()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in _OPTIONS:
            if not equals and not rest:
                raise ConfigurationError(f"{name} needs a value")
            setattr(request, _OPTIONS[name], value if equals else rest.pop(0))
        elif word in _SWITCHES:
            request.is_multirun = True
        elif word == TRUST_OPTION:
            request.is_trusted = True
        elif word.startswith("-"):
            known = (*_OPTIONS, *_SWITCHES, TRUST_OPTION)
            near = suggestion(word, known) or f"; maze-run has {', '.join(known)}"
            raise ConfigurationError(f"{word} is not an option of maze-run{near}")
        elif word.startswith("~"):
            remedy = "write the run as a configuration of maze-pl, and omit it there"
            raise ConfigurationError(f"{word} removes a part of the configuration, which maze-pl cannot do: {remedy}")
        elif not equals:
            raise ConfigurationError(f"{word} is neither GROUP=NAME nor KEY=VALUE")
        else:
            name = name.lstrip("+")
            (request.groups if name in GROUPS else request.keys)[name] = _unquoted(value)
    return request


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if is_quoted else value


def _search_in(folder: str, undo: ExitStack) -> None:
    """Look up configurations in a folder, too, until `undo` is closed."""
    if not Path(folder).is_dir():
        raise ConfigurationError(f"-cd {folder}: there is no such folder")
    previous = os.environ.get(SEARCH_PATH_VARIABLE)
    os.environ[SEARCH_PATH_VARIABLE] = folder if previous is None else f"{folder}{os.pathsep}{previous}"
    if previous is None:
        undo.callback(os.environ.pop, SEARCH_PATH_VARIABLE, None)
    else:
        undo.callback(os.environ.__setitem__, SEARCH_PATH_VARIABLE, previous)


def _commands(request: _Request, undo: ExitStack) -> list[list[str]]:
    """Return the command lines of maze-pl that do what is asked for.

    Raises:
        ConfigurationError: Something cannot be translated.
    """
    search = _search(request.groups.get("experiment", ""))
    if search is not None:
        return [_sweep(request, search)]
    folder = request.keys.pop("hydra.sweep.dir", None)
    asked = {**request.groups, **request.keys}
    chosen = product(asked, _values)
    if not request.is_multirun:
        for name, value in asked.items():
            if len(_values(value)) > 1:
                remedy = f"add --multirun for one run each, or write {name}=[{value}] for a list"
                raise ConfigurationError(f"{name}={value} names several values: {remedy}")
        return [_command(request, chosen[0])]
    if "hydra.run.dir" in request.keys:
        raise ConfigurationError("hydra.run.dir is the directory of one run: use hydra.sweep.dir with --multirun")
    commands = [_command(request, combination) for combination in chosen]
    if folder is None:
        folder = str(new_directory(Path(OUTPUT_FOLDER, "multirun"), True, undo))
    for number, command in enumerate(commands):
        command += [
            "--run_dir" if command[0] in ("fit", "rllib") else "--output_dir",
            str(Path(folder, f"run_{number}")),
        ]
    return commands


def _search(experiment: str) -> str | None:
    """Return the name of the sweep file that an experiment is; None for the configuration of a run."""
    name = f"experiment/{_SEARCHES.get(experiment, experiment)}"
    path = find(name) if experiment else None
    content = None if path is None else read(path)
    return name if isinstance(content, dict) and "search" in content else None


def _sweep(request: _Request, search: str) -> list[str]:
    """Return the command line of `maze-pl sweep` for a search; lists of values replace its options.

    Raises:
        ConfigurationError: It is not one of training, several components are to be searched, or two keys are the
            same option.
    """
    if not request.is_multirun or request.root == ROLLOUTS:
        raise ConfigurationError(f"+experiment={request.groups['experiment']} searches: add -cn {TRAINING} --multirun")
    groups = {"algorithm": "ppo", **{name: value for name, value in request.groups.items() if name != "experiment"}}
    keys = dict(request.keys)
    of_sweep = {option: keys.pop(key) for key, option in _OF_SWEEPS.items() if key in keys}
    words = ["sweep", search]
    for option, value in of_sweep.items():
        words += [f"--{option}", value]
    for name, value in groups.items():
        if len(_values(value)) > 1:
            remedy = "run one search for each"
            raise ConfigurationError(
                f"{name}={value} names several components, which a search cannot compare: {remedy}"
            )
    searched: dict[str, Any] = {}
    targets = _values(keys.get("env._target_", ""))
    if len(targets) > 1:
        del keys["env._target_"]
        # the arguments are those of the chosen environment
        searched["data.env"] = [{"class_path": target} for target in targets]
    options = fit_options(groups, keys, request.root)
    config, options = options[1], options[2:]
    words += ["--config", config]
    for name, value in zip(options[::2], options[1::2], strict=True):
        option, values = name.removeprefix("--"), _values(value)
        if len(values) > 1:
            searched[option] = [parse(option_value(option, one)) for one in values]
        else:
            is_flag = isinstance(parse(value), bool)
            is_word = is_flag and value.lower() not in ("true", "false")  # off, no, ...
            words += [f"--options.{option}", f"'{value}'" if is_word else value]
    if searched:  # in place of the options that the file searches
        words += ["--search", dump(searched)]
    return [*words, TRUST_OPTION] if request.is_trusted else words


def _command(request: _Request, chosen: dict[str, str]) -> list[str]:
    """Return the command line of maze-pl for one value of each group and key."""
    groups = {name: value for name, value in chosen.items() if name in request.groups and value != "null"}
    keys = {name: value for name, value in chosen.items() if name in request.keys}
    trust = [TRUST_OPTION] if request.is_trusted else []
    if request.root == ROLLOUTS:
        return ["rollout", *rollout_options(groups, keys), *trust]
    if request.root == RLLIB:
        return ["rllib", *rllib_options(groups, keys), *trust]
    if request.root != TRAINING and find(request.root) is None:
        known = [TRAINING, ROLLOUTS, RLLIB, *(name for name in known_names() if "/" not in name)]
        raise ConfigurationError(f"there is no root configuration {request.root!r}{suggestion(request.root, known)}")
    return ["fit", *fit_options(groups, keys, request.root), *trust]


def _values(text: str) -> list[str]:
    """Split a list at the commas outside of brackets, braces and quotes."""
    values = [""]
    depth, quote = 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        elif letter == "," and depth == 0:
            values.append("")
            continue
        values[-1] += letter
    return [value.strip() for value in values]


if __name__ == "__main__":
    sys.exit(main())
