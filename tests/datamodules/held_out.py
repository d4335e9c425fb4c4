"""Environments and evaluators of which some differ from those of training."""

from __future__ import annotations

from functools import partial
from typing import Any

from maze_pl.core.random_policy import RandomPolicy
from maze_pl.datamodules import RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from tests.datamodules.drift import Drift

CARTPOLE = partial(GymMazeEnv, "CartPole-v1")
SHORT = partial(GymMazeEnv, "CartPole-v1", max_episode_steps=5)
LIMIT = partial(TimeLimitWrapper, max_episode_steps=5)


class Shifted(Drift):
    """Starts are larger than 10, as no start of training is."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.start += 10
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.time == 3, truncated, info


def both(n_episodes: int = 3, **options: Any) -> dict[str, RolloutEvaluator]:
    """An evaluator of the environment of training, and one of another."""
    return {
        "eval": RolloutEvaluator(n_episodes=n_episodes, n_envs=2),
        "held_out": RolloutEvaluator(n_episodes=n_episodes, n_envs=2, **options),
    }


def lengths(data: Any, name: str = "held_out") -> list[int]:
    """The lengths of the episodes of an evaluator with random actions."""
    policy = RandomPolicy({key: step.action_space for key, step in data.spec.steps.items()})
    summaries = data.evaluate(name, policy).summaries
    data.teardown("validate")
    return [summary.env_steps for summary in summaries]
