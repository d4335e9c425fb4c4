"""Acts of a recorded episode as columns: trees of arrays of equal length."""

from typing import Any, cast

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import mapped
from maze_pl.records.record_files import SpacesTrajectoryRecord

Columns = dict[str, Any]
"""Fields of `TransitionBatch`, as arrays, or trees of arrays, of equal length."""


def columns_of(record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
    """Observation, action and agent of each act, by sub-step; views if possible."""
    keys = record.spec.step_keys
    columns = {}
    for index, key in enumerate(keys):
        agent_id = record.agent_id
        if len(keys) > 1:
            agent_id = agent_id[record.key_index == index]
        columns[key] = {
            "observation": record.observation[key],
            "action": record.action[key],
            "agent_id": agent_id,
        }
    return columns


def taken(columns: Columns, rows: Any) -> Columns:
    """Select rows of a tree of arrays."""
    return cast(Columns, mapped(lambda array: array[rows], columns))
