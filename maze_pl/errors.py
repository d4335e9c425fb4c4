"""What the user is told when a command fails: one message where something was asked for that cannot be had.

Whatever is broken instead, in code of the user or here, keeps its trace. The two are told apart by where an exception
comes from: it is a message if maze_pl or a library that it is built on refused on purpose, and if no code of the user
was running.
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

from maze_pl.core.class_path import import_object
from maze_pl.core.output_folder import output_folder
from maze_pl.search_path import ConfigurationError, suggestion

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
    """What to tell the user about an exception that ended a command; None if only its trace says what is wrong.

    While a configuration is read and its objects are made, whatever goes wrong outside of the user's code is due to
    what it says. Later only what is refused on purpose is.
    """
    if isinstance(error, ConfigurationError):
        return str(error)
    if isinstance(error, RecursionError):
        return "the configuration refers to itself, or is nested too deeply"
    root, steps = error, list(walk_tb(error.__traceback__))
    while root.__cause__ is not None and _package(steps[-1][0]) == "jsonargparse":
        root = root.__cause__  # what a constructor said, without what jsonargparse makes of it
        steps += walk_tb(root.__traceback__)
    frame, line = steps[-1]
    package = _package(frame)
    is_refusal = linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("raise")
    if not (package == "maze_pl" and is_refusal) and any(_package(frame) not in _LIBRARIES for frame, _ in steps):
        return None
    if isinstance(root, OSError) and root.strerror:
        is_full = root.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of which the system does not say where
        where = root.filename or (output_folder("") if is_full else "")
        return f"{where}: {root.strerror}" if where else root.strerror
    text = _shortened(explain(str(root)) if package == "jsonargparse" else str(root))
    if isinstance(root, MemoryError | OverflowError):
        return f"this takes more memory than there is: {text}"
    if not any(frame.f_code.co_name == "_run_subcommand" for frame, _ in steps):
        is_refusal = is_refusal and not isinstance(root, AssertionError | LookupError | AttributeError)
        return text if is_refusal else f"{type(root).__name__}: {text}\n`--debug` shows where that comes from"
    kinds = (ValueError, TypeError, ImportError, OSError) if package == "maze_pl" else (Exception,)
    return text if is_refusal and package in {"maze_pl", *_LIGHTNING} and isinstance(root, kinds) else None


def tell_writer(arguments: threading.ExceptHookArgs) -> None:
    """Say in a line that TensorBoard's thread cannot write, without its trace; the thread that trains fails next."""
    if isinstance(arguments.exc_value, OSError) and type(arguments.thread).__module__.startswith("tensorboard"):
        sys.stderr.write(f"maze-pl: TensorBoard's events cannot be written: {arguments.exc_value.strerror}\n")
    else:
        threading.__excepthook__(arguments)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__package__") or frame.f_globals.get("__name__", "")).partition(".")[0]


def _shortened(text: str) -> str:
    """A message of some library as far as somebody will read it."""
    lines = [line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]} ..." for line in text.splitlines()]
    return "\n".join(lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], "..."])


# ------------------------------------------------------------------------------------------- jsonargparse's messages

_NOISE: Final = (
    *("Does not validate against", "Problem with given", "Subtypes:", "Errors:", "Given value", "expected NoneType"),
    *("Expected a path but", "a dict without class_path", "a dict with parameters accepted", "Subclass types expect"),
)
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
    """Say in few words what jsonargparse says in many: where, what is wrong there, what came, and what is near.

    Args:
        message: Its message.
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
    return _shortened(f"{where}: {whole}{got}{_nearest(whole, owner, list(options))}".removeprefix(": "))


def _nearest(text: str, owner: str, options: list[str]) -> str:
    """Which names are close to the unknown one that a message is about."""
    if option := _UNKNOWN_OPTION.search(text):
        if owner:
            from jsonargparse import ArgumentParser

            from maze_pl.instantiation import add_arguments

            options = add_arguments(ArgumentParser(), import_object(owner))
        name = option[1].lower()
        return suggestion(name, options) or suggestion(name.partition(".")[0], options)
    if not (unknown := _UNKNOWN_CLASS.search(text)):
        return ""
    name = unknown[1] or owner
    if name in importlib.import_module("gymnasium").registry:
        return f"; for an environment of gymnasium give env/gym_env, and {name} as its option `name`"
    known = {key: path for path in _PUBLIC for key, one in vars(importlib.import_module(path)).items() if callable(one)}
    return suggestion(name.rpartition(".")[2], known, lambda key: f"{known[key]}.{key}")
