"""A rule-based policy that balances CartPole: a first agent for trying out rollouts."""

from typing import Any

import numpy as np

from maze_pl.agents.rule_observations import rule_observation
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep


class DummyCartPolePolicy(MazeStatePolicy):
    """Pushes the cart towards the side to which the pole is about to fall.

    It reads angles in radians from the state of the environment, so that wrappers of observations do not matter.
    A batch without states, or with states of another kind, must have the observation as it is.

    Args:
        observation: Name of the observation [B, 4] (position, velocity, angle, angular velocity).
        action: Name of the action head, 0 for left and 1 for right.
        look_ahead: Seconds for which the pole's angle is extrapolated.
    """

    def __init__(
        self,
        observation: str = "observation",
        action: str = "action",
        look_ahead: float = 1.0,
    ) -> None:
        self.observation = observation
        self.action = action
        self.look_ahead = look_ahead

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Choose a side for each actor; options are ignored because the rule is deterministic.

        Raises:
            ValueError: There is no state to read, and the observation has another shape.
        """
        observation = rule_observation(batch, self.observation, 4, self)
        angle_to_come = observation[:, 2] + self.look_ahead * observation[:, 3]
        return PolicyStep({self.action: (angle_to_come > 0).astype(np.int64)})
