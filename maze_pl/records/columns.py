"""Acts of a recorded episode as columns: trees of arrays of equal length."""

from typing import Any, cast

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import mapped
from maze_pl.records.record_files import SpacesTrajectoryRecord

Columns = dict[str, Any]
"""Fields of `TransitionBatch`, as arrays, or trees of arrays, of equal length."""


def columns_of(record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
    """Observation, action and agent of each act, by sub-step; views if possible."""
    keys, is_single = record.spec.step_keys, len(record.spec.steps) == 1
    ids = {key: record.agent_id if is_single else record.agent_id[record.key_index == i] for i, key in enumerate(keys)}
    names = "observation", "action", "agent_id"
    return {key: dict(zip(names, (record.observation[key], record.action[key], ids[key]), strict=True)) for key in keys}


def taken(columns: Columns, rows: Any) -> Columns:
    """Select rows of a tree of arrays."""
    return cast(Columns, mapped(lambda array: array[rows], columns))
