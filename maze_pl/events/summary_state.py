"""Episode summaries as primitives, so that an epoch cut by a checkpoint is resumed without a loss."""

from dataclasses import fields
from typing import Any

import numpy as np

from maze_pl.core.episode import EpisodeSummary


def summary_to_dict(summary: EpisodeSummary) -> dict[str, Any]:
    """An episode summary in lists, tuples, dicts, strings and numbers only; exact to the bit."""
    return {field.name: _to_state(getattr(summary, field.name)) for field in fields(summary)}


def summary_from_dict(state: dict[str, Any]) -> EpisodeSummary:
    """The episode summary that `summary_to_dict` was given."""
    return EpisodeSummary(**_from_state(state))


def _to_state(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_state(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), value.ravel().tolist()]
    return value.item() if isinstance(value, np.generic) else value


def _from_state(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _from_state(part) for key, part in state.items()}
    if isinstance(state, list):
        dtype, shape, values = state
        return np.array(values, dtype).reshape(shape)
    return state
