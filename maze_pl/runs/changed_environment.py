"""Message about a run that continues in another environment than that of its checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_utilities.core.rank_zero import rank_zero_info

from maze_pl.config.factories import Factory
from maze_pl.config.search_path import as_values
from maze_pl.core.changed_spaces import changed_spaces, shortened
from maze_pl.core.checkpoint import CheckpointEntry
from maze_pl.runs.other_environment import PARTS, dotted_options, value_text


def tell_changed_environment(
    path: str | Path,
    entry: CheckpointEntry,
    rollout_options: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> None:
    """Tell the user if a run continues in another environment than that of its checkpoint.

    Parts that do not come from a configuration are not compared.

    Args:
        path: The checkpoint.
        entry: Its entry.
        rollout_options: Environment and wrappers of the data module, as arguments of `rollout`.
        spec: `Spec.to_dict()` of the data module.
    """
    arguments = (entry["config"]["data"].get("init_args") or {}) if "config" in entry else {}
    changes = []
    for part in PARTS:
        node = _node(rollout_options.get(part))
        if node is None or arguments.get(part) is None:
            continue
        saved, now = (dotted_options(as_values(one), f"data.{part}") for one in (arguments[part], node))
        for name in {**saved, **now}:
            if saved.get(name) != now.get(name):
                changes.append(f"{name} was {value_text(saved.get(name))} and is {value_text(now.get(name))}")
    changed = changed_spaces(entry["spec"], spec)
    if not changes:  # wrappers may have changed the bounds of observations since the run began
        changed = [one for one in changed if one.startswith("action ")]
    if changes or changed:
        differences = "; ".join(shortened(one) for one in (changes, changed) if one)
        effect = "episodes that cannot be continued in the new one begin again"
        rank_zero_info(f"{path} was written in another environment: {differences}; {effect}")


def _node(part: Any) -> Any:
    """Return environment or wrappers as in a configuration; None if they were made in Python."""
    if isinstance(part, Factory):
        arguments = {"init_args": part.init_args, "dict_kwargs": part.dict_kwargs}
        return {"class_path": part.class_path, **arguments}
    if not isinstance(part, list | tuple):
        return None
    nodes = [_node(one) for one in part]
    return None if None in nodes else nodes
