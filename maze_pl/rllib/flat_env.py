"""Flat environments as gymnasium environments for RLlib's single-agent workers."""

from typing import Any

import gymnasium

from maze_pl.envs.structured_env import Observation
from maze_pl.rllib.training_env import TrainingEnv, action_of, rllib_action_space


class FlatEnv(gymnasium.Env[Observation, Any]):
    """A flat environment of maze_pl with plain actions if there is only one action head.

    Episodes have the seeds of the run; seeds that RLlib passes to `reset` have no effect.

    Args:
        training_env: The environment.
    """

    def __init__(self, training_env: TrainingEnv) -> None:
        self.training_env = training_env
        ((self._key, step),) = training_env.spec.steps.items()
        self._heads = step.action_space
        self.observation_space = step.observation_space  # type: ignore[assignment]
        self.action_space = rllib_action_space(step.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start the next episode of the run."""
        return self.training_env.reset(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Perform an action.

        Args:
            action: Value of the only head, or head -> value.
        """
        result = self.training_env.step(action_of(action, self._heads))
        return result.observation, result.reward, result.terminated, result.truncated, {}

    def close(self) -> None:
        """Close the environment."""
        self.training_env.close()
