"""Assembling of configurations: commands are rewritten before anything heavy is imported.

`maze-pl fit --config ppo_cartpole --data.env env/gym_env` uses names. The result is a command line
that jsonargparse understands directly: without names, references and run directories.

- A value `group/name` is replaced by the content of the file of this name, on the command line and
  in files.
- `base: ppo_cartpole` (or a list) at the top of a file: the file only gives the differences from
  its bases.
- `${data.n_envs}` stands for another value of the assembled configuration, no matter which file or
  option sets it; `init_args` may be omitted in its path. A later mapping that is an argument
  replaces an earlier one, but evaluators and components in it keep options of those of equal names.
  The section `variables` holds values that only exist to be referred to.
- A run directory stands for the configuration saved in it; for `--warm-start` only if no other one
  is named. Without `--trust` this configuration may only name parts of maze_pl, gymnasium, torch.nn
  and torch.optim; see `maze_pl.config.trust`.
"""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeGuard

from maze_pl.config import search_path
from maze_pl.config.merging import assembled, value_at
from maze_pl.config.pieces import (
    CONFIG_OPTIONS,
    GROUP_NAME,
    RUN_CONFIG,
    Piece,
    from_file,
    require_run_directory,
    with_bases,
)
from maze_pl.config.references import Fill, interpolate
from maze_pl.config.replaced_environments import Dropped, adapt_replaced_environments
from maze_pl.config.search_path import ConfigurationError, as_values, dump, parse, read, resolve
from maze_pl.config.trust import (
    Trust,
    extend_import_path,
    foreign_names,
    import_folders,
    may_name_foreign,
    refusal,
    require_modules,
)

SEEDS_FILE = "seeds.json"
"""File in a folder with the run directories of several seeds."""
SWEEP_FILE = "sweep.yaml"
"""File in the folder of a sweep that describes it completely."""
TRUST_OPTION = "--trust"
_COMPONENT_OPTIONS = ("--model", "--data", "--trainer", "--env", "--wrappers", "--policy", "--runner", "--same_as")
_Option = tuple[str | None, str | None]

_CHECKED = ("env", "wrappers", "action_masks")
_ENVIRONMENT_OPTIONS = {"check": _CHECKED, "rollout": (*_CHECKED, "max_agents"), "compare": (*_CHECKED, "max_agents")}
_WRAPPERS_OF_EVALUATOR: Final = re.compile(r"--(data\.(?:init_args\.)?evaluators\.[^.]+\.wrappers)\+")
_OF_DATA: Final = re.compile(r"^--data\.(init_args\.)?")
_OF_TRAINING: Final = frozenset(
    (
        *("model", "data", "trainer", "seed_everything", "hyperparameters"),
        *("best_checkpoint", "last_checkpoint", "early_stopping", "stop_at_return"),
        *("run_dir", "resume", "warm_start", "ckpt_path", "experiment", "print_model", "wandb", "view"),
    )
)
"""Sections of a training configuration, and options of `maze-pl fit` that no other command has."""
_SPELLED_OUT: dict[_Option, str] = {
    ("--deterministic", None): "true",
    ("--event_logs", None): "true",
    ("--render", None): "true",
    ("--runner", "sequential"): "runner/sequential",
    ("--runner", "parallel"): "runner/parallel",
}


class Prepared(list[str]):
    """A command line that jsonargparse understands.

    Attributes:
        trust: The classes that it may instantiate.
        objects: Name -> object from Python that its configuration stands for.
        written: The assembled configuration as it was written, whose texts jsonargparse may read as
            something else.
        dropped: Further arguments of environments that are replaced.
        is_debugged: Whether errors of the command are shown with a traceback.
    """

    is_debugged = False
    trust = Trust()
    objects: Mapping[str, Any] = {}
    written: Mapping[str, Any] = {}
    dropped: Sequence[Dropped] = ()


def prepare(
    arguments: Sequence[str], original: Sequence[str] | None = None, *, is_from_python: bool = False
) -> Prepared:
    """Rewrite a command, and make the projects of its configuration files importable.

    Args:
        arguments: The command line after `maze-pl`: a command and its options.
        original: The command line that messages repeat; None means `arguments`.
        is_from_python: Whether messages name arguments in Python instead.

    Returns:
        The command line for jsonargparse.

    Raises:
        ConfigurationError: A configuration or run directory does not exist, a reference is
            unresolved, options contradict each other, or a run directory names something that needs
            `--trust`.
    """
    command = arguments[0]
    is_trusted = TRUST_OPTION in arguments
    run_dir, pieces = run_and_pieces(arguments)
    users = [piece for piece in pieces if not piece.of_run]
    trust = Trust()
    if not is_trusted and (len(users) < len(pieces) or command == "view"):  # which loads runs itself
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
            users_names.update(_foreign_names(piece))

    def take_part(piece: Piece, fill: Fill) -> None:
        is_users = piece.option in CONFIG_OPTIONS and not piece.of_run  # all of a run's configuration needs trust
        if is_users and command in _ENVIRONMENT_OPTIONS:
            _take_environment(piece, command, fill)

    complete = interpolate(pieces, take_part, _ENVIRONMENT_OPTIONS.get(command, ()))
    if run_dir is not None and not is_trusted:
        repeated = None if is_from_python else original or arguments
        for piece in complete:
            _require_trust(piece, run_dir, set() if piece.of_run else users_names, repeated)
    prepared.dropped = adapt_replaced_environments(complete)  # which imports them
    _refuse_appending_to_nothing(complete)
    for piece in complete:
        if run_dir is not None and is_trusted and piece.of_run:
            require_modules(piece.content, run_dir)
        if command in _ENVIRONMENT_OPTIONS:
            _take_environment(piece, command)
        word = "=".join(token for token in (piece.option, piece.word) if token is not None)
        prepared += [word] if word else []
    prepared.written = as_values(assembled(complete))
    if is_trusted and command != "check":
        prepared.append(f"{TRUST_OPTION}=true")
    return prepared


def _refuse_appending_to_nothing(pieces: Sequence[Piece]) -> None:
    """Refuse further wrappers for an evaluator that has those of training, as they would replace them.

    Args:
        pieces: In the order in which they take effect.

    Raises:
        ConfigurationError: An option appends to a list that is not there.
    """
    for place, piece in enumerate(pieces):
        match = _WRAPPERS_OF_EVALUATOR.fullmatch(piece.option or "")
        if match is not None and value_at(match[1].split("."), assembled(pieces[:place])) is None:
            fault = f"{piece.option} would replace the wrappers of training, which this evaluator has"
            first = f"begin with --{match[1]} '${{data.wrappers}}'"
            raise ConfigurationError(f"{fault}: {first}, or with '[]' if there are none")


def _experiment(pieces: Sequence[Piece]) -> str | None:
    """Return the name of the last configuration file that the user named, None without one."""
    names = [piece.path.stem for piece in pieces if piece.is_users_config and piece.path]
    return names[-1] if names else None


def run_and_pieces(arguments: Sequence[str]) -> tuple[Path | None, list[Piece]]:
    """Return the run directory that a command starts from, if any, and all its pieces."""
    run_dir, options = _from_run_directory(arguments[0], _split(arguments[1:]))
    return run_dir, _pieces(options, run_dir, TRUST_OPTION in arguments)


def _extend_import_path(pieces: Sequence[Piece], run_dir: Path | None, trust: Trust) -> None:
    """Make the projects of configuration files, the current folder and a run's folders importable.

    The project that contains the run comes first, so that its code is that of `maze_pl.load`. The
    current folder may belong to an untrusted run; then it is only added if the user names a class
    that may be in it.
    """
    is_trusted = trust.names is None
    folders = _projects([piece for piece in pieces if piece.of_run])
    if is_trusted or any(may_name_foreign(piece.content) for piece in pieces):
        folders.append(str(Path.cwd()))
    folders += _projects(pieces)
    if run_dir is not None and is_trusted:
        folders += import_folders(run_dir)
    extend_import_path(folders)


def _projects(pieces: Sequence[Piece]) -> list[str]:
    """Return the folders of the projects that contain the files of some pieces."""
    paths = [piece.path for piece in pieces if piece.path is not None]
    projects = [search_path.project_folder(path) for path in paths]
    return [str(project) for project in projects if project is not None]


def _require_trust(
    piece: Piece,
    run_dir: Path,
    allowed: Collection[str],
    command: Sequence[str] | None,
) -> None:
    """Refuse untrusted names from a run directory, also via references.

    Args:
        piece: A piece of the command.
        run_dir: The run directory.
        allowed: Names that the user wrote.
        command: The command, to be repeated with `--trust`; None in Python.
    """
    folders = [str(Path.cwd()), *import_folders(run_dir)]
    foreign = [name for name in _foreign_names(piece, folders) if name not in allowed]
    if foreign:
        remedy = "pass trust=True"
        if command is not None:
            repeated = shlex.join(["maze-pl", *command, TRUST_OPTION])
            remedy = f"repeat the command with {TRUST_OPTION}:\n  {repeated}"
        fault = refusal(run_dir / RUN_CONFIG, foreign, run_dir)
        raise ConfigurationError(f"{fault}; if you trust the origin of this run, {remedy}")


def _take_environment(piece: Piece, command: str, fill: Fill = lambda value: value) -> None:
    """Turn an option about the environment and its wrappers, or a training configuration, into options of the command.

    Files with options of the command itself stay as they are.

    Args:
        piece: The option.
        command: The command.
        fill: Replaces the references in a value.
    """
    content = piece.content
    if piece.option in ("--policy", "--same_as") and content is not None:  # so that arguments may be added
        piece.text = dump(content if isinstance(content, dict) else {"class_path": content})
    elif piece.option == "--run" and command == "check":  # its configuration precedes the options
        piece.option = piece.text = None
    elif piece.option not in CONFIG_OPTIONS:
        piece.option = piece.option and _OF_DATA.sub("--", piece.option)
    elif isinstance(content, dict) and _OF_TRAINING.intersection(content):
        whole = dict(content)
        for name in ("data", "init_args"):
            part = whole.get(name)
            part = fill(part) if isinstance(part, str) else part
            whole |= part if isinstance(part, dict) else {}  # a class path alone has no arguments
        piece.put({key: whole[key] for key in _ENVIRONMENT_OPTIONS[command] if key in whole})


def _pieces(options: Sequence[_Option], run_dir: Path | None, is_trusted: bool) -> list[Piece]:
    """Return the pieces of a run directory's configuration, then of each option, bases included.

    Args:
        options: The user's options.
        run_dir: The run directory whose configuration precedes them, if any.
        is_trusted: Whether names in the options may also refer to files next to that configuration.
    """
    config_files = [resolve(value) for option, value in options if _is_config(value, option)]
    pieces: list[Piece] = []
    if run_dir is not None:
        path = run_dir / RUN_CONFIG
        config_files = [path, *config_files] if is_trusted else config_files
        pieces = [replace(piece, of_run=True) for piece in with_bases("--config", path)]
    for option, value in options:
        if option is None or value is None:
            pieces.append(Piece(option, value))
        elif _is_config(value, option):
            pieces += with_bases(option, resolve(value))
        elif _is_group(option, value, config_files):
            path = resolve(value, config_files)
            pieces.append(from_file(option, path, read(path)))
        else:
            pieces.append(Piece(option, value, parse(value) if value.strip() else value))
    return pieces


def _is_config(value: str | None, option: str | None) -> TypeGuard[str]:
    """True if an option's value names a file that configures the whole command."""
    return option in CONFIG_OPTIONS and value is not None and not value.lstrip().startswith("{")


def _is_group(option: str, value: str, config_files: Sequence[Path]) -> bool:
    """True if an option's value names a group file, in one of the searched folders."""
    if not option.startswith(_COMPONENT_OPTIONS) or not GROUP_NAME.fullmatch(value):
        return False
    if Path(value).exists():
        return False
    group = value.split("/")[0]
    return any((folder / group).is_dir() for folder in search_path.search_folders(config_files))


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
    options = [(_underscored(option), value) for option, value in options]
    names = {option for option, _ in options}
    if {"--resume", "--warm_start"} <= names:
        fault = "--resume continues a run and --warm-start starts a new one"
        raise ConfigurationError(f"{fault}: use only one of them")
    if {"--resume", "--run_dir"} <= names:
        raise ConfigurationError("--resume continues in its run directory: omit --run_dir")
    sources = {"--resume", "--run"}
    if not names.intersection(CONFIG_OPTIONS):
        sources.add("--warm_start")
    runs = [value for option, value in options if option in sources and value]
    if not runs:
        return None, options
    run_dir = runs[-1]
    require_single_run(run_dir)
    require_run_directory(Path(run_dir))
    return Path(run_dir), options


def require_single_run(folder: str | Path) -> None:
    """Refuse a folder of several runs, where one is needed.

    Args:
        folder: The folder, as it is named in the message.

    Raises:
        ConfigurationError: It holds the runs of several seeds, or the trials of a sweep.
    """
    if Path(folder, SEEDS_FILE).is_file():
        known = ", ".join(str(run) for run in sorted(Path(folder).glob("seed_*[0-9]"))) or "there is none yet"
        raise ConfigurationError(f"{folder} holds the runs of several seeds: name one of them ({known})")
    if Path(folder, SWEEP_FILE).is_file():
        remedy = f"name one of them, such as {Path(folder, 'trial_0000')}; `maze-pl sweep --show` lists them"
        raise ConfigurationError(f"{folder} holds the trials of a sweep: {remedy}")


def _underscored(option: str | None) -> str | None:
    """Spell the options that are documented with hyphens as jsonargparse knows them."""
    if option is None:
        return None
    return re.sub(r"^--(warm-start|same-as)(?=$|\.)", lambda name: name[0][:2] + name[1].replace("-", "_"), option)


def foreign_options(arguments: Sequence[str]) -> list[str]:
    """Return the names in a command, and in the files that it names, for which `--trust` would be needed.

    Args:
        arguments: The command line after `maze-pl`, as for `prepare`.
    """
    pieces = run_and_pieces(arguments)[1]
    if all(piece.keys != ["run_dir"] for piece in pieces):
        pieces.append(Piece("--run_dir", "run", "run"))  # to which references may refer
    folders = [str(Path.cwd())]
    names = [name for piece in pieces for name in _foreign_names(piece, folders)]
    if not names:  # as otherwise the next line might import what they name
        names = [name for piece in interpolate(pieces) for name in _foreign_names(piece, folders)]
    return list(dict.fromkeys(names))


def _foreign_names(piece: Piece, folders: Sequence[str] = ()) -> list[str]:
    """Return the names in a piece for which `--trust` would be needed; see `foreign_names`."""
    is_whole = piece.option in CONFIG_OPTIONS
    return foreign_names(piece.content if is_whole else {".".join(piece.keys): piece.content}, folders)


def options_of(command: Sequence[str]) -> list[str]:
    """Return the option names in a command line, such as `--config` and `--model.lr`."""
    return [option for option, _ in _split(command) if option is not None]


def names_configuration(command: Sequence[str]) -> bool:
    """True if a command line names a configuration."""
    return any(option in CONFIG_OPTIONS for option in options_of(command))
