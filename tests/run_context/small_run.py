"""Options of a short run."""

from __future__ import annotations

from typing import Any

from maze_pl.datamodules import RolloutEvaluator

SMALL: dict[str, Any] = {
    "env.name": "CartPole-v1",
    "data.n_envs": 1,
    "data.n_rollout_steps": 20,
    "data.epoch_length": 1,
    "data.evaluators": {"eval": RolloutEvaluator(n_episodes=1)},
}
