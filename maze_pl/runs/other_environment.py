"""Message about a run whose configuration file names another environment than its checkpoint."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, as_values, dump, read
from maze_pl.core.checkpoint_content import checkpoint_entry
from maze_pl.runs.run_checkpoints import directory_of_run

_PARTS: Final = ("env", "wrappers")
_MOST_LETTERS: Final = 60


def tell_other_environment(
    file: Path, checkpoint: dict[str, Any], counting: Literal["configuration", "checkpoint"]
) -> None:
    """Tell the user if `config.yaml` of a run has another environment than a checkpoint, and which one counts.

    The file may have been edited, or the run resumed with other options since the checkpoint was written.

    Args:
        file: The checkpoint.
        checkpoint: Its content.
        counting: The one whose environment the command plays in.
    """
    config_file = directory_of_run(file) / RUN_CONFIG
    config = dict(checkpoint_entry(checkpoint) or {}).get("config")
    if config is None or not config_file.is_file():
        return
    try:
        written = as_values(read(config_file))
    except ConfigurationError:  # the command says so if it needs the file
        return
    saved, own = options_of_environment(written), options_of_environment(as_values(config))
    if saved is None or own is None:  # the file of another program, next to a copy of the checkpoint
        return
    names = [name for name in {**saved, **own} if not are_same(saved.get(name), own.get(name))]
    if not names:
        return
    n_more = len(names) - 1
    more = f" and {n_more} more option{'s' if n_more > 1 else ''}" if n_more else ""
    values = " and ".join(value_text(found.get(names[0])) for found in (saved, own))
    option = names[0] if names[0].isprintable() else repr(names[0])
    from_file = f"{RUN_CONFIG} and the options of the command count here"
    which = from_file if counting == "configuration" else f"{file.name} counts here"
    sys.stderr.write(f"maze-pl: {config_file} and {file} differ in {option}{more}: {values}; {which}\n")


def options_of_environment(config: Any) -> dict[str, Any] | None:
    """Return the options of environment and wrappers by their dotted names; None if it is not the file of a run."""
    parts = parts_of_environment(config)
    return None if parts is None else options_of_parts(parts)


def parts_of_environment(config: Any) -> dict[str, Any] | None:
    """Return the components of environment and wrappers by name; None for no file of a run."""
    data = config.get("data") if isinstance(config, Mapping) else None
    if not isinstance(data, Mapping) or "class_path" not in data:
        return None
    arguments = data.get("init_args")
    if not isinstance(arguments, Mapping):
        return {}
    parts = {name: arguments.get(name) for name in _PARTS}
    if isinstance(parts["env"], str):
        parts["env"] = {"class_path": parts["env"]}
    return parts


def options_of_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of components by their dotted names; those that are not set are left out.

    Args:
        parts: The components of the data module, see `parts_of_environment`.
    """
    options: dict[str, Any] = {}
    for name, part in parts.items():
        options |= _leaves(part, f"data.{name}")
    return options


def _leaves(node: Any, name: str) -> dict[str, Any]:
    """Return the values in a component, by their dotted names; those that are not set are left out.

    Args:
        node: The component.
        name: Its dotted name.
    """
    if isinstance(node, list):
        node = {str(place): item for place, item in enumerate(node)}
    if not isinstance(node, Mapping):
        return {} if node is None else {name: node}
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        leaves |= _leaves(value, name if key in ("init_args", "dict_kwargs") else f"{name}.{key}")
    return leaves


def are_same(one: Any, other: Any) -> bool:
    """True for equal values of options, also for two that are not a number."""
    return bool(one == other) or dump(one) == dump(other)


def value_text(value: Any) -> str:
    """Return a value for the message."""
    text = "no value" if value is None else dump(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} ..."
