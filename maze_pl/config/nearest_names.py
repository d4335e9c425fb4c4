"""Names that were probably meant: the ends of messages about unknown names."""

import ast
import difflib
import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from maze_pl.config.search_path import find, known_names, suggestion
from maze_pl.core.class_path import import_object

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
    "value_clip_range": "clip_range_vf",
    "max_grad_norm": "max_norm",
    "n_optimization_epochs": "update_epochs n_epochs num_epochs",
    "batch_size": "minibatch_size mini_batch_size",
    "replay_buffer_size": "buffer_size",
    "initial_buffer_size": "learning_starts",
    "tau": "polyak",
    "trainer.max_epochs": "total_timesteps timesteps",
    "seed_everything": "seed random_seed",
    "output_dir": "to run_dir",
}
_ELSEWHERE: dict[str, str] = {}
for _ours, _theirs in _NAMES_ELSEWHERE.items():
    _ELSEWHERE |= dict.fromkeys(_theirs.split(), _ours)
_WITHOUT_COUNTERPART: Final = {
    "vf_clip_param": "squared errors of critics have no limit; max_grad_norm limits gradients"
}
"""Options of other libraries whose names resemble ours but whose meaning does not."""
_COUNTERPARTS: Final = {"n_envs": "num_actors", "num_actors": "n_envs", "output_dir": "run_dir"}
"""Options of one data module or command, and those of others with the same meaning."""
_DATA_OPTIONS: Final = ("n_rollout_steps", "n_envs", "replay_buffer_size", "initial_buffer_size")
_COMMAND_OPTIONS: Final = ("trainer.max_epochs", "seed_everything", "output_dir")
_UNKNOWN_OPTION: Final = re.compile(
    r"(?:[Oo]ption '|unrecognized arguments: --|unrecognized arguments: -(?=\w\w))"
    r"([^\s'=]+)"
)
_UNKNOWN_CLASS: Final = re.compile(
    r"(?:Expected a dot import path string|Unexpected import path format): (\S+)"
    r"|No module named|has no attribute '(\w+)'|has no attribute"
)
_GROUPS: Final = {
    "model": "algorithm",
    "networks": "model",
    "critic": "critic",
    "env": "env",
    "wrappers": "wrappers",
    "policy": "policy",
    "runner": "runner",
}
"""Options that take the names of files in a folder of configurations, and this folder."""


def nearest_name(text: str, owner: str, place: str, options: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: the name that was probably meant.

    Args:
        text: The message.
        owner: Class path of the class or function that the option belongs to; "" if there is none.
        place: Its option, such as `data.env`; "" if there is none.
        options: The options of the command.
    """
    if stray := _STRAY.search(text):
        return _option_for(stray[1])
    if option := _UNKNOWN_OPTION.search(text):
        if owner:
            from jsonargparse import ArgumentParser

            from maze_pl.config.factories import add_arguments

            options = add_arguments(ArgumentParser(), import_object(owner))
        near = nearest_option(option[1], options, "--" if text.startswith("unrecognized") else "")
        return near or _further_option(option[1], owner, place)
    if not (unknown := _UNKNOWN_CLASS.search(text)):
        return ""
    name = unknown[1] or owner
    if unknown[2] and unknown[2] not in owner.split("."):  # a class nested in the owner's options
        name = unknown[2]
    if name in importlib.import_module("gymnasium").registry:
        return f"; for a gymnasium environment use env/gym_env with its option `name`: {name}"
    if near := _nearest_in_group(name, place.rpartition(".")[2]) or in_python_file(name):
        return near
    if "." in name and name.partition(".")[0] not in _PACKAGES:
        return _nearest_of_user(name)
    known: dict[str, str] = {}
    for path in _PUBLIC:
        for key, value in vars(importlib.import_module(path)).items():
            if callable(value):
                known[key] = path
    return suggestion(name.rpartition(".")[2], known, lambda key: f"{known[key]}.{key}")


def nearest_option(name: str, options: Iterable[str], prefix: str = "") -> str:
    """Return the end of a message about an unknown option: the option that was probably meant.

    That is one with this name in another section, under another library's name, or one that is
    spelled similarly.

    Args:
        name: The unknown option.
        options: Those that exist.
        prefix: Written before the option that was meant, such as `--`.
    """
    known = sorted(options, key=len)
    name = name.lower().replace("init_args.", "")
    last = name.rpartition(".")[2]
    if last in _WITHOUT_COUNTERPART:
        return f"; {_WITHOUT_COUNTERPART[last]}"
    elsewhere = _ELSEWHERE.get(last, last if last in _NAMES_ELSEWHERE else None)
    for meant in (elsewhere, _COUNTERPARTS.get(elsewhere or last), name):
        named_so = [option for option in known if f".{option}".endswith(f".{meant}")]
        if named_so:
            return f"; did you mean {prefix}{named_so[0]}?"
    is_training = any(option.startswith("trainer.") for option in known)
    if elsewhere is not None and prefix and is_training and elsewhere not in _COMMAND_OPTIONS:
        group = "data" if elsewhere in _DATA_OPTIONS else "model"
        return f"; did you mean {prefix}{group}.{elsewhere}?"
    if "." not in name:
        first = {option.partition(".")[0]: option.partition(".")[0] for option in known}
        shortest = {option.rpartition(".")[2]: option for option in reversed(known)}
        for names in (first, shortest):
            if close := difflib.get_close_matches(name, names, n=1, cutoff=0.8):
                return f"; did you mean {prefix}{names[close[0]]}?"

    def written(option: str) -> str:
        return f"{prefix}{option}"

    return suggestion(name, known, written) or suggestion(name.partition(".")[0], known, written)


def in_python_file(name: str) -> str:
    """Return the end of a message about a class that is named by its file: the class path.

    Args:
        name: A text such as `my_env.py`, `./my_env.MyEnv` or `my_env:MyEnv`.

    Returns:
        Nothing if there is no such file in the current folder or below it.
    """
    parts = [part for part in re.split(r"[/\\:.]+", re.sub(r"\.py(?=$|[:.])", "", name)) if part]
    for length in range(len(parts), 0, -1):
        file = f"{'/'.join(parts[:length])}.py"
        if os.path.isfile(file):
            near = _in_file(Path(file), ".".join(parts[:length]), parts[length:])
            return "" if near.endswith(f" {name}?") else near  # a class path with another fault
    return ""


def _in_file(file: Path, module: str, names: Sequence[str]) -> str:
    """Return the end of a message about a class in a file, which is not executed.

    Args:
        file: The file.
        module: Its name as a module.
        names: The class, with parts of it; none if only the file is named.
    """
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ""
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    public = [name for name in defined if not name.startswith("_")]
    if names and names[0] in defined:
        return f"; did you mean {'.'.join([module, *names])}?"
    if names:
        return suggestion(names[0], public, lambda name: f"{module}.{name}")
    shown = " or ".join(f"{module}.{name}" for name in public[:3])
    return f"; name a class or function with its module, such as {shown}" if shown else ""


def _nearest_in_group(name: str, option: str) -> str:
    """Return the end of a message about a name that may be that of a file, such as `env/gym_env`.

    Args:
        name: The name, with or without the folder.
        option: The option that has it as its value.
    """
    if option not in _GROUPS:
        return ""
    folder = f"{_GROUPS[option]}/"
    known = [known for known in known_names() if known.startswith(folder)]
    if "/" in name:
        return suggestion(name, known)
    return f"; did you mean {folder}{name.lower()}?" if f"{folder}{name.lower()}" in known else ""


def _nearest_of_user(path: str) -> str:
    """Return the end of a message about a path in a user's package: names in the found module.

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


def _further_option(name: str, owner: str, place: str) -> str:
    """Return the end of a message about an option that a class or function takes by `**kwargs`.

    Args:
        name: The option.
        owner: Class path of the class or function; "" if there is none.
        place: Its option, such as `data.env`.
    """
    if not owner:
        return ""
    try:
        parameters = inspect.signature(import_object(owner)).parameters.values()
    except (TypeError, ValueError):  # compiled code may have no signature
        return ""
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
        return ""
    return f"; further options go to {place}.dict_kwargs.{name}"


def _option_for(stray: str) -> str:
    """Suggest the option for a bare value: a configuration or a gymnasium environment."""
    if find(stray) is not None:
        return f"; did you mean --config {stray}?"
    if stray in importlib.import_module("gymnasium").registry:
        options = f"--config ppo_cartpole --data.env env/gym_env --data.env.name {stray}"
        return f"; did you mean {options}?"
    return suggestion(stray, known_names(), lambda name: f"--config {name}")
