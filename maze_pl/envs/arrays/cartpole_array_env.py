"""Gymnasium's CartPole in arrays."""

from collections.abc import Mapping
from math import pi
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.arrays.closed_attributes import ClosedAttributes
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.structured_env import Array

GRAVITY: Final = 9.8
MASS_OF_POLE: Final = 0.1
TOTAL_MASS: Final = MASS_OF_POLE + 1.0
HALF_LENGTH: Final = 0.5
POLE_MASS_LENGTH: Final = MASS_OF_POLE * HALF_LENGTH
FORCE: Final = 10.0
SECONDS: Final = 0.02
MOST_POSITION: Final = 2.4
MOST_ANGLE: Final = 12 * 2 * pi / 360


class CartPoleArrayEnv(ClosedAttributes, ArrayEnv):
    """`CartPole-v1`: a pole on a cart is balanced by pushing the cart to the left or to the right.

    For the same seeds and actions, all numbers equal those of gymnasium's environment. The dynamics
    are those of A. G. Barto, R. S. Sutton and C. W. Anderson 1983, doi:10.1109/TSMC.1983.6313077, in
    the form of R. V. Florian 2007, https://coneural.org/florian/papers/05_cart_pole.pdf, integrated
    by Euler's method.

    Args:
        max_episode_steps: Steps after which an episode is truncated.
    """

    attribute_remedy = "use the form of the environment for single episodes, or a subclass that reads it"
    heuristic_policy = "maze_pl.agents.DummyCartPolePolicy"

    def __init__(self, max_episode_steps: int = 500) -> None:
        super().__init__()
        if max_episode_steps < 1:
            raise ValueError(f"max_episode_steps={max_episode_steps} must be at least 1")
        self.max_episode_steps = max_episode_steps
        highest = np.array([2 * MOST_POSITION, np.inf, 2 * MOST_ANGLE, np.inf], np.float32)
        self._observation_space = spaces.Dict({"observation": spaces.Box(-highest, highest, dtype=np.float32)})
        self._action_space = spaces.Dict({"action": spaces.Discrete(2)})

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Position, velocity, angle and angular velocity."""
        return {0: self._observation_space}

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """0 pushes to the left, 1 to the right."""
        return {0: self._action_space}

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.position = np.zeros(n_envs)
        self.velocity = np.zeros(n_envs)
        self.angle = np.zeros(n_envs)
        self.angular_velocity = np.zeros(n_envs)
        self.n_steps = np.zeros(n_envs, np.int64)
        self.random = RandomStreams(np.zeros(n_envs, np.int64))
        self.close_attributes(CartPoleArrayEnv)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start with all four numbers between -0.05 and 0.05."""
        self.random.seed(seeds, which)
        numbers = self.random.uniform(-0.05, 0.05, size=4, which=which)
        self.position[which] = numbers[:, 0]
        self.velocity[which] = numbers[:, 1]
        self.angle[which] = numbers[:, 2]
        self.angular_velocity[which] = numbers[:, 3]
        self.n_steps[which] = 0
        return ArrayStep(self._observations())

    def step(self, actions: Mapping[StepKey, Mapping[str, Any]], which: EnvIndex) -> ArrayStep:
        """Push the carts."""
        angle = self.angle[which]
        velocity, angular_velocity = self.velocity[which], self.angular_velocity[which]
        force = np.where(actions[0]["action"][which] == 1, FORCE, -FORCE)
        cosine, sine = np.cos(angle), np.sin(angle)
        pushed = (force + POLE_MASS_LENGTH * np.square(angular_velocity) * sine) / TOTAL_MASS
        inertia = HALF_LENGTH * (4.0 / 3.0 - MASS_OF_POLE * np.square(cosine) / TOTAL_MASS)
        angular_acceleration = (GRAVITY * sine - cosine * pushed) / inertia
        acceleration = pushed - POLE_MASS_LENGTH * angular_acceleration * cosine / TOTAL_MASS
        self.position[which] += SECONDS * velocity
        self.velocity[which] = velocity + SECONDS * acceleration
        self.angle[which] = angle + SECONDS * angular_velocity
        self.angular_velocity[which] += SECONDS * angular_acceleration
        self.n_steps[which] += 1
        return ArrayStep(
            self._observations(),
            reward=np.ones(self.n_envs),
            terminated=(np.abs(self.position) > MOST_POSITION) | (np.abs(self.angle) > MOST_ANGLE),
            truncated=self.n_steps >= self.max_episode_steps,
        )

    def _observations(self) -> dict[StepKey, dict[str, Array]]:
        observations = np.empty((self.n_envs, 4), np.float32)
        observations[:, 0] = self.position
        observations[:, 1] = self.velocity
        observations[:, 2] = self.angle
        observations[:, 3] = self.angular_velocity
        return {0: {"observation": observations}}

    def maze_state(self, env: int) -> dict[str, Any]:
        """Return the state of one environment, with the observation for rules."""
        return {**super().maze_state(env), "observation": self._observations()[0]["observation"][env]}
