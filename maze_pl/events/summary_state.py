"""Episode summaries as primitives, so that an epoch cut by a checkpoint is resumed without a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.episode import EpisodeSummary, StatKey


def summary_to_dict(summary: EpisodeSummary) -> dict[str, Any]:
    """An episode summary in lists, dicts, strings and numbers only; exact to the bit."""
    return {
        "statistics": _entries_to_state(summary.statistics),
        "samples": _entries_to_state(summary.samples),
        "env_steps": int(summary.env_steps),
        "reward": float(summary.reward),
        "kpis": {name: float(value) for name, value in summary.kpis.items()},
        "env_index": int(summary.env_index),
        "episode_index": int(summary.episode_index),
    }


def summary_from_dict(state: dict[str, Any]) -> EpisodeSummary:
    """The episode summary that `summary_to_dict` was given."""
    return EpisodeSummary(
        statistics=_entries_from_state(state["statistics"]),
        samples=_entries_from_state(state.get("samples", [])),
        env_steps=state["env_steps"],
        reward=state["reward"],
        kpis=dict(state["kpis"]),
        env_index=state["env_index"],
        episode_index=state["episode_index"],
    )


def _entries_to_state(entries: Mapping[StatKey, Any]) -> list[Any]:
    return [[[*key[:3], list(key[3])], _value_to_state(value)] for key, value in entries.items()]


def _entries_from_state(state: list[Any]) -> dict[StatKey, Any]:
    return {(topic, event, name, tuple(groups)): _value_from_state(v) for (topic, event, name, groups), v in state}


def _value_to_state(value: float | np.ndarray) -> float | dict[str, Any]:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": list(value.shape), "values": value.ravel().tolist()}
    return float(value)


def _value_from_state(state: float | dict[str, Any]) -> float | np.ndarray:
    if isinstance(state, dict):
        return np.array(state["values"], dtype=state["dtype"]).reshape(state["shape"])
    return state
