"""Messages about failed commands: one line instead of a traceback if a request cannot be satisfied.

Bugs, in the user's code or in maze_pl, keep their traceback. The origin of an exception tells the
two
apart: it becomes a message if maze_pl or a library that it is built on raised it on purpose, and no
user code was running.
"""

import errno
import importlib
import linecache
import re
import sys
import threading
from collections.abc import Iterable
from traceback import walk_tb
from types import FrameType
from typing import Final

from maze_pl.config.search_path import ConfigurationError, find, known_names, suggestion
from maze_pl.core.class_path import import_object
from maze_pl.system.atomic_files import output_folder
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.signals import StoppedBySignal

_LIGHTNING: Final = {"pytorch_lightning", "lightning_fabric", "lightning_utilities"}
_LIBRARIES: Final = {
    *("maze_pl", "jsonargparse", "yaml", "gymnasium", "numpy", "torch", "torchmetrics", "tensorboard", "wandb"),
    *("fsspec", "cloudpickle", "typeshed_client", "docstring_parser", "Box2D", "mujoco"),
    *(*_LIGHTNING, *sys.stdlib_module_names),
}
_PUBLIC: Final = (
    *("pytorch_lightning.callbacks", "pytorch_lightning.loggers", "maze_pl.callbacks", "maze_pl.perception"),
    *("maze_pl.envs", "maze_pl.envs.wrappers", "maze_pl.datamodules", "maze_pl.modules"),
)
_MOST_LINES, _MOST_LETTERS, _MOST_OF_A_VALUE = 10, 400, 80


def message_of(error: BaseException) -> str | None:
    """Return the message for an exception that ended a command; None if its traceback is needed.

    While a configuration is read and instantiated, any error outside of the user's code is due to
    the configuration. Later only errors that are raised on purpose are.
    """
    if isinstance(error, ConfigurationError | LostProcessError):
        return str(error)
    if isinstance(error, RecursionError) and user_frame(error) is None:
        return "the configuration refers to itself, or is nested too deeply"
    root, steps = error, list(walk_tb(error.__traceback__))
    while root.__cause__ is not None and _package(steps[-1][0]) == "jsonargparse":
        root = root.__cause__  # the constructor's error, without jsonargparse's wrapping
        steps += walk_tb(root.__traceback__)
    frame, line = steps[-1]
    package = _package(frame)
    is_refusal = linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("raise")
    if not (package == "maze_pl" and is_refusal) and any(_package(frame) not in _LIBRARIES for frame, _ in steps):
        return None
    if isinstance(root, OSError) and root.strerror:
        is_full = root.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the system does not name the file
        where = root.filename or (output_folder("") if is_full else "")
        return f"{where}: {root.strerror}" if where else root.strerror
    text = _shortened(explain(str(root)) if package == "jsonargparse" else str(root))
    if isinstance(root, MemoryError | OverflowError):
        return f"not enough memory: {text}"
    if not any(frame.f_code.co_name == "_run_subcommand" for frame, _ in steps):
        is_refusal = is_refusal and not isinstance(root, AssertionError | LookupError | AttributeError)
        return text if is_refusal else f"{type(root).__name__}: {text}\n`--debug` prints the traceback"
    kinds = (ValueError, TypeError, ImportError, OSError) if package == "maze_pl" else (Exception,)
    return text if is_refusal and package in {"maze_pl", *_LIGHTNING} and isinstance(root, kinds) else None


def user_frame(error: BaseException) -> str | None:
    """Return the `file:line` of an exception in user code; None if only libraries were running."""
    places = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if _package(frame) not in _LIBRARIES
    ]
    return places[-1] if places else None


def exit_message(error: SystemExit) -> str | None:
    """Return the message about user code that ended the process by `sys.exit`.

    Returns:
        The message; None if a library ended the process, as after `--help`, or a signal did.
    """
    place = user_frame(error)
    if place is None or isinstance(error, StoppedBySignal):
        return None
    return (
        f"{place} called sys.exit({'' if error.code is None else repr(error.code)}), which ends the whole command; "
        "code that maze_pl calls must raise an exception to report a problem"
    )


def tell_writer(arguments: threading.ExceptHookArgs) -> None:
    """Report in one line that TensorBoard's thread cannot write; the training thread fails next."""
    if isinstance(arguments.exc_value, OSError) and type(arguments.thread).__module__.startswith("tensorboard"):
        sys.stderr.write(f"maze-pl: TensorBoard events cannot be written: {arguments.exc_value.strerror}\n")
    else:
        threading.__excepthook__(arguments)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__package__") or frame.f_globals.get("__name__", "")).partition(".")[0]


def _shortened(text: str) -> str:
    """Shorten a library's message to a readable length."""
    lines = [line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]} ..." for line in text.splitlines()]
    return "\n".join(lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], "..."])


# ------------------------------------------------------------------------------------------- jsonargparse's messages

_NOISE: Final = (
    *("Does not validate against", "Problem with given", "Subtypes:", "Errors:", "Given value", "expected NoneType"),
    *("Expected a path but", "a dict without class_path", "a dict with parameters accepted", "Subclass types expect"),
)
_REQUIRED: Final = re.compile(r"the following arguments are required: (.*)")
_STRAY: Final = re.compile(r"unrecognized arguments: ([^-\s]\S*)")
_ELSEWHERE: Final = {  # names of our options in other libraries and papers
    **{"learning_rate": "lr", "alpha": "lr", "n_steps": "n_rollout_steps", "num_steps": "n_rollout_steps"},
    **{"rollout_fragment_length": "n_rollout_steps", "num_envs": "n_envs", "num_env": "n_envs"},
    **{"ent_coef": "entropy_coef", "vf_coef": "value_loss_coef", "pg_coef": "policy_loss_coef"},
    **{"discount": "gamma", "discount_factor": "gamma", "lambda": "gae_lambda", "lam": "gae_lambda"},
    **{"clip_coef": "clip_range", "clip_param": "clip_range", "clip_ratio": "clip_range"},
    **{"clip_range_vf": "value_clip_range", "vf_clip_param": "value_clip_range", "max_norm": "max_grad_norm"},
    **{"update_epochs": "n_optimization_epochs", "n_epochs": "n_optimization_epochs"},
    **{"num_epochs": "n_optimization_epochs", "minibatch_size": "batch_size", "mini_batch_size": "batch_size"},
    **{"buffer_size": "replay_buffer_size", "learning_starts": "initial_buffer_size", "polyak": "tau"},
    **{"total_timesteps": "trainer.max_epochs", "timesteps": "trainer.max_epochs"},
}
_DATA_OPTIONS: Final = ("n_rollout_steps", "n_envs", "replay_buffer_size", "initial_buffer_size")
_UNKNOWN_OPTION: Final = re.compile(r"(?:[Oo]ption '|unrecognized arguments: --)([^\s'=]+)")
_UNKNOWN_CLASS: Final = re.compile(r"Expected a dot import path string: (\S+)|No module named|has no attribute")
_OWNER: Final = re.compile(r"Problem with given class_path '(.*)':|Got value: Namespace\(class_path='([^']*)'")
_REPLACED: Final = (
    (re.compile(r"^- |Type \S.*? expects a function or a callable class: |\.* G\w+ value: Namespace\(.*"), ""),
    (re.compile(r"NestedArg\(key='(.*?)', val=(.*)\)"), r"\1=\2"),
    (re.compile(r"(a function that returns (\w+))\[Any, Any\]\.?"), r"\1, and whose annotation says so (-> \2)"),
    (re.compile(r"Expected a <class '(?:\w+\.)*(\w+)'>"), r"expected \1"),
    (re.compile(r"Expected a typing\.Literal\[(.*)\]"), r"expected one of \1"),
)


def explain(message: str, options: Iterable[str] = ()) -> str:
    """Shorten a message of jsonargparse: location, problem, given value and similar names.

    Args:
        message: The message of jsonargparse.
        options: The names of all options of the command.
    """
    location: list[str] = []
    owner, given, details = "", "", list[str]()
    for line in message.splitlines():
        if (node := _OWNER.search(line)) and not details:
            owner = node[1] or node[2]
        text = line.strip()
        for pattern, replacement in _REPLACED:
            text = pattern.sub(replacement, text)
        if key := re.match(r'Parser key "([^"]*)":\s*', text):
            location += [key[1]] * (not details)
            text = text[key.end() :]
        given = given or text.partition("Given value: ")[2]
        if text and not text.startswith(_NOISE) and text not in details:
            details.append(text)
    where = ".".join(location) + (f" ({owner})" if owner else "")
    whole = "\n  or ".join(details) or message.splitlines()[-1]
    got = f"; got {given}" if 0 < len(given) <= _MOST_OF_A_VALUE and "Got value" not in whole else ""
    if (required := _REQUIRED.search(whole)) and not where:
        return _what_to_give(required[1].split(", "))
    return _shortened(f"{where}: {whole}{got}{_nearest(whole, owner, list(options))}".removeprefix(": "))


def _what_to_give(missing: list[str]) -> str:
    """Return the remedy for missing required options, as the user would type it."""
    commands = {name.partition(".")[0] for name in missing if name.endswith((".data", ".model"))}
    if "fit" in commands:
        example = "maze-pl fit --config ppo_cartpole"
        return f"no configuration given: use --config NAME (`{example}`; `maze-pl list configs` lists the names)"
    if commands:
        command = commands.pop()
        return f"no run given: use the RUN_DIR of a trained agent (`maze-pl {command} RUN_DIR`)"
    if "env" in missing:
        example = "--env env/gym_env --env.name CartPole-v1"
        return f"no environment given: use --env, such as {example}, or RUN_DIR, or --config NAME"
    return f"missing required options: {', '.join(f'--{name}' for name in missing)}"


def _nearest(text: str, owner: str, options: list[str]) -> str:
    """Return the end of a message about an unknown name: the name that was probably meant."""
    if stray := _STRAY.search(text):
        return _option_for(stray[1])
    if option := _UNKNOWN_OPTION.search(text):
        if owner:
            from jsonargparse import ArgumentParser

            from maze_pl.config.factories import add_arguments

            options = add_arguments(ArgumentParser(), import_object(owner))
        name = option[1].lower()
        elsewhere = _ELSEWHERE.get(name.rpartition(".")[2])
        if elsewhere is not None:
            named_so = [known for known in options if f".{known}".endswith(f".{elsewhere}")]
            if named_so:
                return f"; did you mean {named_so[0]}?"
            if not owner:
                group = "data" if elsewhere in _DATA_OPTIONS else "model"
                return f"; did you mean --{group}.{elsewhere}?"
        return suggestion(name, options) or suggestion(name.partition(".")[0], options)
    if not (unknown := _UNKNOWN_CLASS.search(text)):
        return ""
    name = unknown[1] or owner
    if name in importlib.import_module("gymnasium").registry:
        return f"; for a gymnasium environment use env/gym_env with its option `name`: {name}"
    known = {key: path for path in _PUBLIC for key, one in vars(importlib.import_module(path)).items() if callable(one)}
    return suggestion(name.rpartition(".")[2], known, lambda key: f"{known[key]}.{key}")


def _option_for(stray: str) -> str:
    """Suggest the option for a bare value: a configuration or a gymnasium environment."""
    if find(stray) is not None:
        return f"; did you mean --config {stray}?"
    if stray in importlib.import_module("gymnasium").registry:
        return f"; did you mean --config ppo_cartpole --data.env env/gym_env --data.env.name {stray}?"
    return suggestion(stray, known_names(), lambda name: f"--config {name}")
