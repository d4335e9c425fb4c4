"""Messages about failed commands: one line instead of a traceback if a request cannot be satisfied.

Bugs, in the user's code or in maze_pl, keep their traceback. The origin of an exception tells the
two apart: it becomes a message if maze_pl or a library that it is built on raised it on purpose, and no
user code was running.
"""

import errno
import importlib
import inspect
import linecache
import pkgutil
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import Final

from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, find, known_names, suggestion
from maze_pl.core.class_path import import_object
from maze_pl.system.atomic_files import output_folder, shown_path
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.signals import StoppedBySignal

_LIGHTNING: Final = {"pytorch_lightning", "lightning_fabric", "lightning_utilities"}
_LIBRARIES: Final = {
    *("maze_pl", "maze_pl_runtime", "jsonargparse", "yaml", "gymnasium", "numpy", "torch", "torchmetrics"),
    *("tensorboard", "wandb", "fsspec", "cloudpickle", "typeshed_client", "docstring_parser"),
    *("Box2D", "envpool", "mujoco", *_LIGHTNING, *sys.stdlib_module_names),
}
_PUBLIC: Final = (
    "pytorch_lightning.callbacks",
    "pytorch_lightning.loggers",
    "maze_pl.callbacks",
    "maze_pl.perception",
    "maze_pl.envs",
    "maze_pl.envs.wrappers",
    "maze_pl.datamodules",
    "maze_pl.modules",
    "maze_pl.schedules",
)
_PACKAGES: Final = {path.partition(".")[0] for path in _PUBLIC}
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
_STRAY: Final = re.compile(r"unrecognized arguments: ([^-\s]\S*)")
_NAMES_ELSEWHERE: Final = {  # options of ours and their names in other libraries and papers
    "lr": "learning_rate alpha",
    "n_rollout_steps": "n_steps num_steps rollout_fragment_length",
    "n_envs": "num_envs num_env",
    "entropy_coef": "ent_coef",
    "value_loss_coef": "vf_coef",
    "policy_loss_coef": "pg_coef",
    "gamma": "discount discount_factor",
    "gae_lambda": "lambda lam",
    "clip_range": "clip_coef clip_param clip_ratio",
    "value_clip_range": "clip_range_vf vf_clip_param",
    "max_grad_norm": "max_norm",
    "n_optimization_epochs": "update_epochs n_epochs num_epochs",
    "batch_size": "minibatch_size mini_batch_size",
    "replay_buffer_size": "buffer_size",
    "initial_buffer_size": "learning_starts",
    "tau": "polyak",
    "trainer.max_epochs": "total_timesteps timesteps",
}
_ELSEWHERE: dict[str, str] = {}
for _ours, _theirs in _NAMES_ELSEWHERE.items():
    _ELSEWHERE |= dict.fromkeys(_theirs.split(), _ours)
_COUNTERPARTS: Final = {"n_envs": "num_actors", "num_actors": "n_envs"}
"""Options of one data module, and those of others with the same meaning."""
_DATA_OPTIONS: Final = ("n_rollout_steps", "n_envs", "replay_buffer_size", "initial_buffer_size")
_UNKNOWN_OPTION: Final = re.compile(r"(?:[Oo]ption '|unrecognized arguments: --)([^\s'=]+)")
_UNKNOWN_CLASS: Final = re.compile(
    r"Expected a dot import path string: (\S+)|No module named|has no attribute '(\w+)'|has no attribute"
)
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
    place = ".".join(location) + (f" ({owner})" if owner else "")
    details = _of_coefficient(details)
    whole = "\n  or ".join(details) or message.splitlines()[-1]
    required = _REQUIRED.search(whole)
    if required is not None and not place:
        return _what_to_give(required[1].split(", "), words)
    near = _nearest(whole, owner, list(options)) or _further_option(whole, owner, ".".join(location))
    if 0 < len(value) <= _MOST_OF_A_VALUE and "Got value" not in whole:
        whole = f"{whole}; got {value}"
    return _shortened(f"{place}: {whole}{near}" if place else f"{whole}{near}")


def _of_coefficient(details: list[str]) -> list[str]:
    """Replace the problems with a value that is neither a number nor a schedule by one sentence."""
    if not any(detail.startswith("expected float") for detail in details):
        return details
    others = [detail for detail in details if not detail.startswith("expected float")]
    if len(others) == 1 and others[0].startswith("Expected a dot import path string"):
        return ["expected a number, or a schedule such as {class_path: maze_pl.schedules.Linear}"]
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
        last = name.rpartition(".")[2]
        elsewhere = _ELSEWHERE.get(last)
        counterpart = _COUNTERPARTS.get(elsewhere or last)
        for meant in (elsewhere, counterpart):
            named_so = [known for known in options if f".{known}".endswith(f".{meant}")]
            if named_so:
                return f"; did you mean {named_so[0]}?"
        if elsewhere is not None and not owner:
            group = "data" if elsewhere in _DATA_OPTIONS else "model"
            return f"; did you mean --{group}.{elsewhere}?"
        return suggestion(name, options) or suggestion(name.partition(".")[0], options)
    if not (unknown := _UNKNOWN_CLASS.search(text)):
        return ""
    name = unknown[1] or owner
    if unknown[2] and unknown[2] not in owner.split("."):  # a class nested in the owner's options
        name = unknown[2]
    if name in importlib.import_module("gymnasium").registry:
        return f"; for a gymnasium environment use env/gym_env with its option `name`: {name}"
    if "." in name and name.partition(".")[0] not in _PACKAGES:
        return _nearest_of_user(name)
    known: dict[str, str] = {}
    for path in _PUBLIC:
        for key, value in vars(importlib.import_module(path)).items():
            if callable(value):
                known[key] = path
    return suggestion(name.rpartition(".")[2], known, lambda key: f"{known[key]}.{key}")


def _nearest_of_user(path: str) -> str:
    """Return the end of a message about a path in a user's package: names in the module that was found.

    Args:
        path: Dotted path of a class or function, whose import has failed.
    """
    module, _, name = path.rpartition(".")
    while module and module not in sys.modules:
        module, _, name = module.rpartition(".")
    if not module:
        return ""
    found = sys.modules[module]
    known = [key for key, value in vars(found).items() if callable(value) or isinstance(value, ModuleType)]
    known += [one.name for one in pkgutil.iter_modules(getattr(found, "__path__", ()))]
    return suggestion(name, dict.fromkeys(known), lambda key: f"{module}.{key}")


def _further_option(text: str, owner: str, place: str) -> str:
    """Return the end of a message about an option that a class or function takes by a `**kwargs` argument.

    Args:
        text: The message.
        owner: Class path of the class or function; "" if there is none.
        place: Its option, such as `data.env`.
    """
    option = _UNKNOWN_OPTION.search(text)
    if option is None or not owner:
        return ""
    try:
        parameters = inspect.signature(import_object(owner)).parameters.values()
    except (TypeError, ValueError):  # compiled code may have no signature
        return ""
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
        return ""
    return f"; further options go to {place}.dict_kwargs.{option[1]}"


def _option_for(stray: str) -> str:
    """Suggest the option for a bare value: a configuration or a gymnasium environment."""
    if find(stray) is not None:
        return f"; did you mean --config {stray}?"
    if stray in importlib.import_module("gymnasium").registry:
        options = f"--config ppo_cartpole --data.env env/gym_env --data.env.name {stray}"
        return f"; did you mean {options}?"
    return suggestion(stray, known_names(), lambda name: f"--config {name}")
