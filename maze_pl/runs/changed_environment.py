"""Message about a run that continues in another environment than that of its checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_utilities.core.rank_zero import rank_zero_info

from maze_pl.config.search_path import as_values
from maze_pl.core.changed_spaces import changed_spaces, shortened
from maze_pl.core.checkpoint_content import CheckpointEntry
from maze_pl.runs.other_environment import (
    are_same,
    options_of_parts,
    parts_of_environment,
    value_text,
)


def tell_changed_environment(
    path: str | Path, entry: CheckpointEntry, config: Mapping[str, Any], spec: Mapping[str, Any]
) -> None:
    """Tell the user if a run continues in another environment than that of its checkpoint.

    Args:
        path: The checkpoint.
        entry: Its entry.
        config: Content of the configuration with which the run continues.
        spec: `Spec.to_dict()` of the data module.
    """
    changes = _changed_options(entry.get("config"), config)
    changed = changed_spaces(entry["spec"], spec)
    if not changes:  # wrappers may have changed the bounds of observations since the run began
        changed = [one for one in changed if one.startswith("action ")]
    if changes or changed:
        differences = "; ".join(shortened(one) for one in (changes, changed) if one)
        effect = "episodes that cannot be continued in the new one begin again"
        rank_zero_info(f"{path} was written in another environment: {differences}; {effect}")


def _changed_options(then: Any, now: Any) -> list[str]:
    """Return texts on the options of environment and wrappers that differ between two configurations.

    Configurations hold all arguments of components, so that those which only the later one has are
    new in the code, with a default. They are left out.
    """
    saved, current = (parts_of_environment(as_values(config)) for config in (then, now))
    if saved is None or current is None:
        return []
    earlier = options_of_parts(_with_new_arguments(saved, current))
    later = options_of_parts(current)
    changes = []
    for name in {**earlier, **later}:
        before, after = earlier.get(name), later.get(name)
        if not are_same(before, after):
            changes.append(f"{name} was {value_text(before)} and is {value_text(after)}")
    return changes


def _with_new_arguments(saved: Any, current: Any) -> Any:
    """Return a part of a saved configuration with the arguments that only the current one has."""
    if isinstance(saved, list) and isinstance(current, list):
        shared = [_with_new_arguments(*pair) for pair in zip(saved, current, strict=False)]
        return [*shared, *saved[len(current) :]]
    if not (isinstance(saved, Mapping) and isinstance(current, Mapping)):
        return saved
    whole = {key: _with_new_arguments(value, current.get(key)) for key, value in saved.items()}
    if isinstance(arguments := current.get("init_args"), Mapping):
        whole["init_args"] = {**arguments, **(whole.get("init_args") or {})}
    return whole
