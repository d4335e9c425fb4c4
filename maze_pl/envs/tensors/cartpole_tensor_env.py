"""CartPole in torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.cartpole_array_env import (
    FORCE,
    GRAVITY,
    HALF_LENGTH,
    MASS_OF_POLE,
    MOST_ANGLE,
    MOST_POSITION,
    POLE_MASS_LENGTH,
    SECONDS,
    TOTAL_MASS,
)
from maze_pl.envs.tensors.tensor_env import Outcome, TensorEnv, Tensors
from maze_pl.envs.tensors.tensor_streams import uniform


class CartPoleTensorEnv(TensorEnv):
    """`CartPole-v1` on any device: the dynamics of `CartPoleArrayEnv`, with start states from another random stream.

    Args:
        max_episode_steps: Steps after which an episode is truncated.
    """

    heuristic_policy = "maze_pl.agents.DummyCartPolePolicy"

    def __init__(self, max_episode_steps: int = 500) -> None:
        super().__init__(max_episode_steps)
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

    def make_tensors(self, n_envs: int) -> None:
        """Make the state: position, velocity, angle and angular velocity."""
        self.state = torch.zeros(n_envs, 4, dtype=torch.float64, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        """Start with all four numbers between -0.05 and 0.05."""
        start = uniform(seeds, 4) * 0.1 - 0.05
        self.state.copy_(torch.where(which.unsqueeze(1), start, self.state))

    def observe(self, step_key: StepKey) -> Tensors:
        """Return the state."""
        return {"observation": self.state.float()}

    def act(self, step_key: StepKey, action: Tensors) -> Outcome:
        """Push the carts."""
        position, velocity, angle, angular_velocity = self.state.unbind(1)
        force = torch.where(action["action"] == 1, FORCE, -FORCE).double()
        cosine, sine = angle.cos(), angle.sin()
        pushed = (force + POLE_MASS_LENGTH * angular_velocity.square() * sine) / TOTAL_MASS
        inertia = HALF_LENGTH * (4.0 / 3.0 - MASS_OF_POLE * cosine.square() / TOTAL_MASS)
        angular_acceleration = (GRAVITY * sine - cosine * pushed) / inertia
        acceleration = pushed - POLE_MASS_LENGTH * angular_acceleration * cosine / TOTAL_MASS
        change = torch.stack([velocity, acceleration, angular_velocity, angular_acceleration], 1)
        self.state.add_(SECONDS * change)
        is_over = (self.state[:, 0].abs() > MOST_POSITION) | (self.state[:, 2].abs() > MOST_ANGLE)
        return Outcome(torch.ones_like(position), is_over)

    def maze_state(self, env: int) -> dict[str, Any]:
        """Return the state of one environment, with the observation [4] for rules."""
        return {**super().maze_state(env), "observation": self.state[env].float().cpu().numpy()}
