"""Truncation of episodes after a number of environment steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.time_limit_array_wrapper import TimeLimitArrayWrapper
from maze_pl.envs.structured_env import Action, StepParts, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper

if TYPE_CHECKING:
    from maze_pl.envs.tensors.tensor_env import TensorEnv


class TimeLimitWrapper(Wrapper):
    """Truncates an episode in the act that completes a given number of environment steps.

    The limit is in environment time: sub-steps do not count, but steps that inner wrappers make by
    themselves do. A step that terminates the episode does not truncate it as well.

    Args:
        env: The environment to wrap.
        max_episode_steps: Environment steps after which an episode is truncated.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = TimeLimitWrapper.wrap(GymMazeEnv("Pendulum-v1"), max_episode_steps=2)
        >>> _ = env.reset(seed=1)
        >>> [env.step(env.action_space.sample())[3] for _ in range(2)]
        [False, True]
    """

    def __init__(self, env: StructuredEnv, max_episode_steps: int) -> None:
        super().__init__(env)
        if max_episode_steps < 1:
            raise ValueError(f"max_episode_steps={max_episode_steps} must be at least 1")
        self.max_episode_steps = max_episode_steps

    def step(self, action: Action) -> StepResult:
        """Step, and truncate the episode if its time is over."""
        return self._limited(self.env.step(action))

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        return self._limited((yield action))

    def _limited(self, result: StepResult) -> StepResult:
        observation, reward, terminated, truncated, info = result
        if self.env.get_env_time() >= self.max_episode_steps and self.context.env_step_incremented and not terminated:
            truncated = True
        return observation, reward, terminated, truncated, info

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return TimeLimitArrayWrapper(env, self.max_episode_steps)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the environment, with this limit if it has a higher one."""
        env.limit_steps(self.max_episode_steps)
        return env
