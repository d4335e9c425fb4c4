"""The earlier run in the `run_dir` of a context: its components, and its first command."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from maze_pl.config.factories import add_arguments
from maze_pl.config.given_objects import GIVEN, given_nodes, is_given
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, read
from maze_pl.config.summary import configured_value
from maze_pl.config.trust import class_paths
from maze_pl.core.class_path import import_object
from maze_pl.migration.documented import (
    component_options,
    option_value,
    resume_options,
    translated_key,
)
from maze_pl.migration.documented_names import FIT
from maze_pl.runs.run_directory import has_failed

_OF_DATA: Final = {"env": 0, "wrappers": 1}
"""Group that is compared with the run -> number of arguments that are given in each call."""
_OTHERS: Final = {"env": "another env", "wrappers": "other wrappers"}


class EarlierRun:
    """A run that a context may continue, or start from.

    Args:
        run_dir: Its directory.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def others_of(self, groups: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, str]:
        """Return the components with which the run cannot be continued: group -> name in a message.

        It can be continued with objects, such as a lambda, where it was given objects: with the same
        class of algorithm, and with an environment and wrappers that are equal to its after all
        overrides, except for the objects.

        Args:
            groups: Group -> component as YAML.
            keys: Dotted key of an override -> value as YAML.
        """
        content = read(self._run_dir / RUN_CONFIG)
        given = {node["name"].partition(".")[0] for node in given_nodes(content)}
        data = ((content or {}).get("data") or {}).get("init_args") or {}
        model = (content or {}).get("model") or {}
        has_failed = self.has_failed
        chosen = {} if has_failed else self._resolved(groups, keys)
        others: dict[str, str] = {}
        for name, component in groups.items():
            below = [value for key, value in keys.items() if key.startswith(f"{name}.")]
            has_objects = any(list(given_nodes(part)) for part in [component, *below])
            takes_place = has_objects and name in given
            if name in _OF_DATA and not has_failed:
                is_same = name in chosen and _is_same(chosen[name], data.get(name), _OF_DATA[name])
            elif name == "algorithm" and takes_place:
                is_same = _are_of_one_class(self._algorithm_path(component), str(model.get("class_path")))
            else:
                is_same = takes_place
            if not is_same:
                others[name] = _OTHERS.get(name, f"a {name}")
                if has_objects and not takes_place:
                    others[name] = f"an object as {name}"
                elif name in _OF_DATA and name not in chosen and "${" in str([component, keys]):
                    others[name] = f"references in {name}, which cannot be compared"
        return others

    def _algorithm_path(self, component: Any) -> str:
        """Return the class path of an algorithm, described as YAML or by the name of a file."""
        words = resume_options(str(self._run_dir), {"algorithm": component}, {})
        return str((configured_value(["fit", *words], "model") or {}).get("class_path"))

    def require_script_classes(self) -> None:
        """Refuse to continue the run without the classes of the script or notebook that started it.

        Raises:
            ConfigurationError: One is not defined in the running script or notebook.
        """
        for path in class_paths(read(self._run_dir / RUN_CONFIG)):
            module, _, name = path.partition(".")
            if module == "__main__" and not hasattr(sys.modules[module], name):
                fault = f"run_dir={self._run_dir} needs the class {name} of the script or notebook that started the run"
                remedy = "define it before the context is made; a class in a file can be used everywhere"
                raise ConfigurationError(f"{fault}: {remedy}")

    def _resolved(self, groups: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the components that are compared, with files read and overrides applied.

        Raises:
            ConfigurationError: A component has the name of no file.
        """
        compared = {name: groups[name] for name in _OF_DATA if name in groups}
        words = ["fit", *component_options(compared)]
        for key, value in keys.items():
            if key.removeprefix("data.").partition(".")[0] in compared:
                option = translated_key(key, FIT)
                words += [f"--{option}", option_value(option, value)]
        try:
            found = configured_value(words, "data") or {}
        except ConfigurationError:  # references to other options
            return {}
        return {name: found.get(name) for name in compared}

    @property
    def has_failed(self) -> bool:
        """True if it has failed before its first epoch ended."""
        return has_failed(self._run_dir)

    def was_started_by(self, words: Sequence[str]) -> bool:
        """True if the first command of the run began with these words after `maze-pl`."""
        try:
            commands = (self._run_dir / "command.txt").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        command = shlex.join(["maze-pl", *words])
        return commands.startswith((f"{command} ", f"{command}\n"))


def _is_same(component: Any, of_run: Any, skip: int) -> bool:
    """True if a component, described as YAML, is that of a run, which has all arguments.

    An object is the same as any other one, since objects cannot be compared.
    """
    if is_given(component) or is_given(of_run):
        return is_given(component) and is_given(of_run)
    if isinstance(component, list) and isinstance(of_run, list):
        pairs = zip(component, of_run, strict=False)
        are_same = all(_is_same(one, other, skip) for one, other in pairs)
        return are_same and len(component) == len(of_run)
    if not isinstance(component, Mapping) or "class_path" not in component:
        return bool(component == of_run)
    if isinstance(of_run, str):  # a path alone stands for the default arguments
        defaults = _complete_arguments({"class_path": component["class_path"]}, skip)
        of_run = {"class_path": of_run, "init_args": defaults}
    if not isinstance(of_run, Mapping):
        return False
    if not _are_of_one_class(component["class_path"], str(of_run.get("class_path"))):
        return False
    if _masked(component.get("dict_kwargs") or {}) != _masked(of_run.get("dict_kwargs") or {}):
        return False
    return bool(_masked(_complete_arguments(component, skip)) == _masked(of_run.get("init_args") or {}))


def _masked(part: Any) -> Any:
    """Return a part of a configuration with the same text in place of each object."""
    if is_given(part):
        return GIVEN
    if isinstance(part, Mapping):
        return {key: _masked(value) for key, value in part.items()}
    return [_masked(item) for item in part] if isinstance(part, list) else part


def _are_of_one_class(path: str, path_of_run: str) -> bool:
    """True if two class paths name the same object; nothing is imported for the path of a run."""
    if path == path_of_run:
        return True
    module, _, name = path_of_run.rpartition(".")
    try:
        return getattr(sys.modules.get(module), name, None) is import_object(path)
    except ImportError:
        return False


def _complete_arguments(component: Mapping[str, Any], skip: int) -> Any:
    """Return the arguments of a component with defaults; None if they are wrong.

    Args:
        component: Class path and arguments.
        skip: Number of its first arguments that are not among them.
    """
    parser = ArgumentParser(exit_on_error=False)
    given = component.get("init_args") or {}
    try:
        add_arguments(parser, import_object(component["class_path"]), "it", skip={skip})
        config = parser.parse_object({"it": given} if given else {})
    except (ArgumentError, ImportError, TypeError, ValueError):
        return None
    return (yaml.safe_load(parser.dump(config, skip_unset=False)) or {}).get("it", {})
