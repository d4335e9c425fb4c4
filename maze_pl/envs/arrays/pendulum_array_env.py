"""Gymnasium's Pendulum in arrays."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.arrays.closed_attributes import ClosedAttributes
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.structured_env import Array

_MOST_SPEED: Final = 8.0
_MOST_TORQUE: Final = 2.0
_SECONDS: Final = 0.05


class PendulumArrayEnv(ClosedAttributes, ArrayEnv):
    """`Pendulum-v1`: a pendulum is swung up and held upright by a weak torque.

    For the same seeds and actions, all numbers equal those of gymnasium's environment, which raises
    single numbers to powers by the C library: `x**2` of an array is rounded differently. The
    pendulum is a rod of 1 m and 1 kg.

    Args:
        max_episode_steps: Steps after which an episode is truncated.
        gravity: Acceleration of gravity in m/s^2.
    """

    attribute_remedy = "use the form of the environment for single episodes, or a subclass that reads it"

    def __init__(self, max_episode_steps: int = 200, gravity: float = 10.0) -> None:
        super().__init__()
        if max_episode_steps < 1:
            raise ValueError(f"max_episode_steps={max_episode_steps} must be at least 1")
        self.max_episode_steps = max_episode_steps
        self.gravity = gravity
        highest = np.array([1.0, 1.0, _MOST_SPEED], np.float32)
        self._observation_space = spaces.Dict({"observation": spaces.Box(-highest, highest, dtype=np.float32)})
        self._action_space = spaces.Dict({"action": spaces.Box(-_MOST_TORQUE, _MOST_TORQUE, (1,), np.float32)})

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Cosine and sine of the angle, and the angular velocity."""
        return {0: self._observation_space}

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """The torque in N m."""
        return {0: self._action_space}

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.angle = np.zeros(n_envs)
        self.speed = np.zeros(n_envs)
        self.n_steps = np.zeros(n_envs, np.int64)
        self.random = RandomStreams(np.zeros(n_envs, np.int64))
        self.close_attributes(PendulumArrayEnv)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start with any angle and a speed between -1 and 1 rad/s."""
        self.random.seed(seeds, which)
        self.angle[which] = self.random.uniform(-np.pi, np.pi, which=which)
        self.speed[which] = self.random.uniform(-1.0, 1.0, which=which)
        self.n_steps[which] = 0
        return ArrayStep(self._observations())

    def step(self, actions: Mapping[StepKey, Mapping[str, Any]], which: EnvIndex) -> ArrayStep:
        """Apply the torques."""
        angle, speed = self.angle[which], self.speed[which]
        torque = np.clip(actions[0]["action"][which][:, 0], -_MOST_TORQUE, _MOST_TORQUE)
        deviation = (angle + np.pi) % (2 * np.pi) - np.pi
        reward = np.zeros(self.n_envs)
        costs = np.float_power(deviation, 2.0) + 0.1 * np.float_power(speed, 2.0)
        reward[which] = -(costs + np.float32(0.001) * _squares(torque))
        acceleration = 3 * self.gravity / 2 * np.sin(angle) + 3.0 * torque
        new_speed = np.clip(speed + acceleration * _SECONDS, -_MOST_SPEED, _MOST_SPEED)
        self.speed[which] = new_speed
        self.angle[which] = angle + new_speed * _SECONDS
        self.n_steps[which] += 1
        return ArrayStep(self._observations(), reward=reward, truncated=self.n_steps >= self.max_episode_steps)

    def _observations(self) -> dict[StepKey, dict[str, Array]]:
        numbers = np.stack([np.cos(self.angle), np.sin(self.angle), self.speed], axis=-1)
        return {0: {"observation": numbers.astype(np.float32)}}


def _squares(numbers: Array) -> Array:
    """Squares of float32, rounded as the C library's power of single numbers rounds them.

    That is exact rounding, except for squares that lie nearly in the middle between two float32; of
    these, about one in fifty, the C library is asked.

    Args:
        numbers: [n] float32.
    """
    exact = numbers.astype(np.float64) ** 2
    rounded = exact.astype(np.float32)
    spacing = np.spacing(rounded).astype(np.float64)
    from_middle = 0.5 * spacing - np.abs(exact - rounded)
    unclear = np.flatnonzero(from_middle < 0.01 * spacing)
    rounded[unclear] = [number**2 for number in numbers[unclear]]
    return rounded
