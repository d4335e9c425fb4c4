"""Episode summaries as primitives, so that an epoch cut by a checkpoint is resumed without a loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.core.episode import EpisodeSummary


def summary_to_dict(summary: EpisodeSummary) -> dict[str, Any]:
    """An episode summary in lists, dicts, strings and numbers only; exact to the bit."""
    return {
        "statistics": [
            [[topic, event, name, list(groups)], _value_to_state(value)]
            for (topic, event, name, groups), value in summary.statistics.items()
        ],
        "env_steps": int(summary.env_steps),
        "reward": float(summary.reward),
        "kpis": {name: float(value) for name, value in summary.kpis.items()},
        "env_index": int(summary.env_index),
        "episode_index": int(summary.episode_index),
    }


def summary_from_dict(state: dict[str, Any]) -> EpisodeSummary:
    """The episode summary that `summary_to_dict` was given."""
    return EpisodeSummary(
        statistics={
            (topic, event, name, tuple(groups)): _value_from_state(value)
            for (topic, event, name, groups), value in state["statistics"]
        },
        env_steps=state["env_steps"],
        reward=state["reward"],
        kpis=dict(state["kpis"]),
        env_index=state["env_index"],
        episode_index=state["episode_index"],
    )


def _value_to_state(value: float | np.ndarray) -> float | dict[str, Any]:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": list(value.shape), "values": value.ravel().tolist()}
    return float(value)


def _value_from_state(state: float | dict[str, Any]) -> float | np.ndarray:
    if isinstance(state, dict):
        return np.array(state["values"], dtype=state["dtype"]).reshape(state["shape"])
    return state
