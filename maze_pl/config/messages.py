"""Messages about failed commands: one line instead of a traceback if a request cannot be satisfied.

Bugs, in the user's code or in maze_pl, keep their traceback. The origin of an exception tells the
two apart: it becomes a message if maze_pl or a library that it is built on raised it on purpose, and no
user code was running.
"""

import errno
import linecache
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Final

from maze_pl.config.nearest_names import in_python_file, nearest_name
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError
from maze_pl.system.atomic_files import output_folder, shown_path
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.signals import StoppedBySignal

_LIGHTNING: Final = {"pytorch_lightning", "lightning_fabric", "lightning_utilities"}
_LIBRARIES: Final = {
    *("maze_pl", "maze_pl_runtime", "jsonargparse", "yaml", "gymnasium", "numpy", "torch", "torchmetrics"),
    *("tensorboard", "wandb", "fsspec", "cloudpickle", "typeshed_client", "docstring_parser"),
    *("Box2D", "envpool", "mujoco", *_LIGHTNING, *sys.stdlib_module_names),
}
_FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the system does not name the file
UNKNOWN_VALUE: Final = "evaluations do not have this value"
"""Part of the message about a callback that monitors something that does not exist."""
_MOST_LINES: Final = 10
_MOST_LETTERS: Final = 400
_MOST_OF_A_VALUE: Final = 80


def message_of(error: BaseException) -> str | None:
    """Return the message for an exception that ended a command; None if its traceback is needed.

    While a configuration is read and instantiated, any error outside of the user's code is due to
    the configuration. Later only errors that are raised on purpose are.
    """
    if isinstance(error, ConfigurationError | LostProcessError):
        return str(error)
    if isinstance(error, RecursionError) and user_frame(error) is None:
        return "the configuration refers to itself, or is nested too deeply"
    root = error
    steps = list(walk_tb(error.__traceback__))
    while root.__cause__ is not None and _package(steps[-1][0]) == "jsonargparse":
        root = root.__cause__  # the constructor's error, without jsonargparse's wrapping
        steps += walk_tb(root.__traceback__)
    frame, line = steps[-1]
    package = _package(frame)
    source = linecache.getline(frame.f_code.co_filename, line)
    is_refusal = source.lstrip().startswith("raise")
    has_user_code = any(_package(frame) not in _LIBRARIES for frame, _ in steps)
    if has_user_code and not (package in ("maze_pl", "maze_pl_runtime") and is_refusal):
        return None
    if isinstance(root, OSError) and root.strerror:
        file = root.filename or (output_folder("") if root.errno in _FULL_DISK else "")
        name = shown_path(file) if isinstance(file, str | Path) else file
        return f"{name}: {root.strerror}" if file else root.strerror
    text = _shortened(explain(str(root)) if package == "jsonargparse" else str(root))
    if isinstance(root, MemoryError):
        return f"not enough memory: {text}"
    if isinstance(root, OverflowError):
        return f"a number is too large: {text}"
    if not any(frame.f_code.co_name == "_run_subcommand" for frame, _ in steps):
        if is_refusal and not isinstance(root, AssertionError | LookupError | AttributeError):
            return text
        return f"{type(root).__name__}: {text}\n`--debug` prints the traceback"
    if not is_refusal:
        return None
    if package == "maze_pl" and isinstance(root, ValueError | TypeError | ImportError | OSError):
        return text
    return text if package in _LIGHTNING and isinstance(root, Exception) else None


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
    code = "" if error.code is None else repr(error.code)
    fault = f"{place} called sys.exit({code}), which ends the whole command"
    return f"{fault}; code that maze_pl calls must raise an exception to report a problem"


def tell_writer(arguments: threading.ExceptHookArgs) -> None:
    """Report in one line that TensorBoard's thread cannot write; the training thread fails next."""
    error = arguments.exc_value
    if isinstance(error, OSError) and type(arguments.thread).__module__.startswith("tensorboard"):
        sys.stderr.write(f"maze-pl: TensorBoard events cannot be written: {error.strerror}\n")
    else:
        threading.__excepthook__(arguments)


def _package(frame: FrameType) -> str:
    """Return the top-level package of the code that runs in a frame."""
    module = frame.f_globals.get("__package__") or frame.f_globals.get("__name__", "")
    return str(module).partition(".")[0]


def _shortened(text: str) -> str:
    """Shorten a library's message to a readable length."""
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = ["..."]
    for index, line in enumerate(lines):
        if len(line) > _MOST_LETTERS:
            lines[index] = f"{line[:_MOST_LETTERS]} ..."
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------- jsonargparse's messages

_NOISE: Final = (
    "Does not validate against",
    "Problem with given",
    "Subtypes:",
    "Errors:",
    "Given value",
    "expected NoneType",
    "Expected a path but",
    "a dict without class_path",
    "a dict with parameters accepted",
    "Subclass types expect",
)
_REQUIRED: Final = re.compile(r"the following arguments are required: (.*)")
_WITHOUT_VALUE: Final = re.compile(r"argument (?:-c/)?(--\S+): expected one argument")
_NOT_ACCEPTED: Final = re.compile(r"Option ('[^']+') is not accepted")
_NO_CLASS_PATH: Final = re.compile(r"(?:Expected a dot import path string|Unexpected import path format): (.*)")
_HAS_VALUE: Final = re.compile(r"Got value|expected a class path|is a file of Python")
_TEXT_FOR_OPTIONS: Final = re.compile(r"Unable to load config '(\w+\s[^':]*)'")
_PYTHON_FILE: Final = re.compile(r"Invalid content in sub-config file (\S+\.py):")
_WITHOUT_CLASS: Final = ("pytorch_lightning.LightningDataModule", "pytorch_lightning.LightningModule")
"""Classes of Lightning that sections without a class path have."""
_OWNER: Final = re.compile(
    r"Problem with given class_path '(.*)':|Got value: Namespace\((?:class_path='([^']*)'|.*, class_path='([^']*)'\)$)"
)
_REPLACED: Final = (
    (re.compile(r"^- "), ""),
    (re.compile(r"Type \S.*? expects a function or a callable class: "), ""),
    (re.compile(r"\.* G\w+ value: Namespace\(.*"), ""),
    (re.compile(r"NestedArg\(key='(.*?)', val=(.*)\)"), r"\1=\2"),
    (
        re.compile(r"'([\w.]+)' object has no attribute '__name__'"),
        r"an object of type \1 is neither a class nor a function",
    ),
    (re.compile(r"(a function that returns (\w+))\[Any, Any\]\.?"), r"\1, and whose annotation says so (-> \2)"),
    (
        re.compile(r"(a function that returns )Union\[Env\[Any, Any\], ArrayEnv\]\.*"),
        r"\1an environment, and whose annotation says so, such as -> MazeEnv.",
    ),
    (re.compile(r"(to be a subclass of )Union\[Env\[Any, Any\], ArrayEnv\]"), r"\1Env or ArrayEnv"),
    (re.compile(r"Expected a <class '(?:\w+\.)*(\w+)'>"), r"expected \1"),
    (re.compile(r"Expected a typing\.Literal\[([^]]*)\]"), r"expected one of \1"),
)


def explain(message: str, options: Iterable[str] = (), words: Sequence[str] = ()) -> str:
    """Shorten a message of jsonargparse: location, problem, given value and similar names.

    Args:
        message: The message of jsonargparse.
        options: The names of all options of the command.
        words: The command line, which has options of components that the message does not name.
    """
    if (without_value := _WITHOUT_VALUE.fullmatch(message)) is not None:
        option = without_value[1]
        named = [word for word in words if word.startswith(f"{option}.") and "=" not in word]
        return f"{named[0] if named else option} needs a value"
    location: list[str] = []
    details: list[str] = []
    owner = ""
    value = ""
    for line in message.splitlines():
        node = _OWNER.search(line)
        if node is not None and not details:
            owner = node[1] or node[2] or node[3]
        text = line.strip()
        for pattern, replacement in _REPLACED:
            text = pattern.sub(replacement, text)
        key = re.match(r'Parser key "([^"]*)":\s*', text)
        if key is not None:
            if not details:
                location.append(key[1])
            text = text[key.end() :]
        value = value or text.partition("Given value: ")[2]
        if text and not text.startswith(_NOISE) and text not in details:
            details.append(text)
    option = ".".join(location)
    place = f"{option} ({owner})" if owner else option
    details = _reworded(details, value)
    whole = "\n  or ".join(details) or message.splitlines()[-1]
    required = _REQUIRED.search(whole)
    if required is not None and not place:
        return _what_to_give(required[1].split(", "), words)
    if owner in _WITHOUT_CLASS and (unknown := _NOT_ACCEPTED.search(whole)) is not None:
        remedy = "name one, or begin with a complete configuration (`base: ppo_cartpole`)"
        return f"{option} has an option {unknown[1]}, but no class_path: {remedy}"
    near = nearest_name(whole, owner, option, list(options))
    whole = _NO_CLASS_PATH.sub(r"expected a class path (package.module.Class), got \1", whole)
    if 0 < len(value) <= _MOST_OF_A_VALUE and not _HAS_VALUE.search(whole):
        whole = f"{whole}; got {value}"
    return _shortened(f"{place}: {whole}{near}" if place else f"{whole}{near}")


def _reworded(details: list[str], value: str) -> list[str]:
    """Replace some problems by a sentence that says what to change.

    Args:
        details: The problems.
        value: The value that has them; "" if it is unknown.
    """
    if any(detail.startswith("expected float") for detail in details):
        others = [detail for detail in details if not detail.startswith("expected float")]
        if len(others) == 1 and _NO_CLASS_PATH.match(others[0]):
            return ["expected a number, or a schedule such as {class_path: maze_pl.schedules.Linear}"]
        return details
    first = details[0] if details else ""
    if first.startswith("Not a valid subclass") and "'init_args': None" in value:
        return ["init_args is empty: indent the options of the class below it"]
    if first == "expected list" and value.startswith("{"):
        return ["expected a list: write `- ` before the first line of each entry, and indent its other lines"]
    if text := _TEXT_FOR_OPTIONS.match(first):
        example = text[1].replace(" ", ": ", 1)
        return [f"expected options, such as `{example}`, but {text[1]!r} has no colon"]
    if file := _PYTHON_FILE.match(first):
        return [f"{file[1]} is a file of Python code, not of options{in_python_file(file[1])}"]
    return details


def _what_to_give(missing: list[str], words: Sequence[str]) -> str:
    """Return the remedy for missing required options, as the user would type it.

    Args:
        missing: The options.
        words: The command line.
    """
    commands = {name.partition(".")[0] for name in missing if name.endswith((".data", ".model"))}
    runs = [word.partition("=")[2] for word in words if word.startswith(("--run=", "--resume="))]
    if commands and runs:
        sections = " and ".join(name.partition(".")[2] for name in missing)
        return f"{Path(runs[-1], RUN_CONFIG)} is damaged: it has no {sections}"
    if "fit" in commands and any(word.startswith(("--config=", "-c=")) for word in words):
        names = [name.partition(".")[2] for name in missing if name.startswith("fit.")]
        example = f"`{names[0]}: {{class_path: ..., init_args: {{...}}}}` in a file of --config"
        return f"the configuration has no {' and no '.join(names)}: use {example}, or --{names[0]}"
    if "fit" in commands:
        example = "maze-pl fit --config ppo_cartpole"
        listed = "`maze-pl list configs` lists the names"
        return f"no configuration given: use --config NAME (`{example}`; {listed})"
    if commands:
        command = commands.pop()
        remedy = f"use the RUN_DIR of a trained agent (`maze-pl {command} RUN_DIR`)"
        return f"no run given: {remedy}"
    if "env" in missing:
        example = "--env env/gym_env --env.name CartPole-v1"
        remedy = f"use --env, such as {example}, or RUN_DIR, or --config NAME"
        return f"no environment given: {remedy}"
    return f"missing required options: {', '.join(f'--{name}' for name in missing)}"
