"""Objects that a run is given from Python, such as a lambda that makes environments, in configurations.

YAML cannot hold them. A node with a class path in `maze_pl.run_context.given` and the object's name
stands for one; the object takes its place after parsing, before anything is instantiated.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonargparse import Namespace

from maze_pl.config.search_path import ConfigurationError

GIVEN: Final = "maze_pl.run_context.given"
"""Module of the functions whose class paths stand for objects."""
_OPTIONS: Final = ("data.", "trainer.", "early_stopping.", "best_checkpoint.", "last_checkpoint.")
"""Beginnings of names that are options of `maze-pl fit`, rather than components and their parts."""
_BELOW_LIST: Final = re.compile(r"\.\d+(?:\..*)?$")
"""End of the name of an object in a list, which only the whole list is an option for."""


def is_given(node: Any) -> bool:
    """True if a part of a configuration stands for an object."""
    path = node.get("class_path") if isinstance(node, dict | Namespace) else None
    return isinstance(path, str) and path.startswith(f"{GIVEN}.")


def given_nodes(content: Any) -> Iterator[Any]:
    """Yield the nodes of a configuration, parsed or not, that stand for objects."""
    if is_given(content):
        yield content["init_args"]
        return
    items: list[Any] = []
    if isinstance(content, Namespace):
        items = list(vars(content).values())
    elif isinstance(content, dict):
        items = list(content.values())
    elif isinstance(content, list):
        items = content
    for item in items:
        yield from given_nodes(item)


def put_objects(config: Any, objects: Mapping[str, Any]) -> Any:
    """Copy a parsed configuration with objects in place of the nodes that stand for them.

    Args:
        config: Parsed, not yet instantiated; or a part of it.
        objects: Name -> object, which is copied, so that each run starts from the same one.

    Raises:
        ConfigurationError: Objects are missing.
        TypeError: An object cannot be copied.
    """
    absent = {node["name"]: node["description"] for node in given_nodes(config) if node["name"] not in objects}
    if absent:
        raise ConfigurationError(missing(absent))
    return _with_objects(config, objects)


def _with_objects(config: Any, objects: Mapping[str, Any]) -> Any:
    if is_given(config):
        name = config["init_args"]["name"]
        return _copied(name, objects[name])
    if isinstance(config, list):
        return [_with_objects(item, objects) for item in config]
    if isinstance(config, dict):
        return {key: _with_objects(item, objects) for key, item in config.items()}
    if not isinstance(config, Namespace):
        return config
    replaced = config.clone()
    for key, value in list(vars(replaced).items()):
        replaced[key] = _with_objects(value, objects)
    return replaced


def missing(absent: Mapping[str, str]) -> str:
    """Return the message that objects are needed.

    Args:
        absent: Name -> description.
    """
    listed = ", ".join(f"{name} ({description})" for name, description in absent.items())
    options = list(dict.fromkeys(_BELOW_LIST.sub("", name) for name in absent if name.startswith(_OPTIONS)))
    groups = dict.fromkeys(name.partition(".")[0] for name in absent if not name.startswith(_OPTIONS))
    given = [f"{group}=..." for group in groups]
    if options:
        given.append("overrides={" + ", ".join(f"{name!r}: ..." for name in options) + "}")
    arguments = ", ".join(given)
    fault = f"this run was given {listed} from Python, which its configuration cannot hold"
    return f"{fault}: use RunContext(run_dir=..., {arguments}) in Python, or replace it by options"


def _copied(name: str, value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:
        fault = f"{name}={value!r} cannot be copied ({error})"
        raise TypeError(f"{fault}: give a function or a class that makes it") from error
