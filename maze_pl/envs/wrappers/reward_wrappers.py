"""Rewards on a scale that is easy to learn from, whatever the environment's own scale is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from maze_pl.envs.structured_env import Action, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import RewardWrapper


class RewardClippingWrapper(RewardWrapper):
    """Clips the reward of each act to a range.

    Args:
        env: The environment to wrap.
        min_val: Lower end of the range.
        max_val: Upper end of the range.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = RewardClippingWrapper.wrap(GymMazeEnv("CartPole-v1"), min_val=-0.5, max_val=0.5)
        >>> _ = env.reset(seed=1)
        >>> env.step({"action": 1})[1]
        0.5
    """

    def __init__(self, env: StructuredEnv, min_val: float, max_val: float) -> None:
        super().__init__(env)
        if not min_val <= max_val:
            raise ValueError(f"min_val={min_val} must not be above max_val={max_val}")
        self.min_val, self.max_val = min_val, max_val

    def reward(self, reward: float) -> float:
        """The nearest reward within the range."""
        return min(max(reward, self.min_val), self.max_val)


class RewardScalingWrapper(RewardWrapper):
    """Multiplies rewards by a factor.

    Args:
        env: The environment to wrap.
        scale: The factor.

    Raises:
        ValueError: The factor is not finite.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = RewardScalingWrapper.wrap(GymMazeEnv("CartPole-v1"), scale=0.1)
        >>> _ = env.reset(seed=1)
        >>> env.step({"action": 1})[1]
        0.1
    """

    def __init__(self, env: StructuredEnv, scale: float) -> None:
        super().__init__(env)
        if not math.isfinite(scale):
            raise ValueError(f"RewardScalingWrapper: scale={scale} must be a finite number")
        self.scale = scale

    def reward(self, reward: float) -> float:
        """The reward times the factor."""
        return reward * self.scale


class Moments(NamedTuple):
    """Mean and spread of the numbers seen so far.

    Attributes:
        n: How many.
        mean: Their mean.
        m2: Sum of their squared differences from the mean.
    """

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def add(self, value: float) -> Moments:
        """With one more number (Welford 1962)."""
        n = self.n + 1
        difference = value - self.mean
        mean = self.mean + difference / n
        return Moments(n, mean, self.m2 + difference * (value - mean))

    def merge(self, other: Moments) -> Moments:
        """With all the numbers of another set (Chan, Golub and LeVeque 1979)."""
        if not other.n or not self.n:
            return other if other.n else self
        n = self.n + other.n
        difference = other.mean - self.mean
        mean = self.mean + difference * other.n / n
        return Moments(n, mean, self.m2 + other.m2 + difference**2 * self.n * other.n / n)


class ReturnNormalizationRewardWrapper(RewardWrapper):
    """Divides rewards by the running standard deviation of the discounted return.

        R_t = r_t + gamma * R_{t-1},    reward_t = r_t / sqrt(Var(R) + epsilon)

    Time is environment time: the rewards of the sub-steps of one environment step are added up. R starts at 0 in each
    episode. As long as all returns were equal, rewards stay as they are.

    What was learned is kept as what all copies knew when they were last brought together, and what this copy has seen
    since, so that merging counts nothing twice. The order of merging is fixed, and with it the result.

    Args:
        env: The environment to wrap.
        gamma: Discount factor of the return.
        epsilon: Added to the variance.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv("CartPole-v1"), gamma=0.5)
        >>> _ = env.reset(seed=1)
        >>> [round(env.step({"action": 1})[1], 3) for _ in range(3)]  # returns of 1, 1.5 and 1.75
        [1.0, 4.0, 3.207]
    """

    def __init__(self, env: StructuredEnv, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(env)
        if not 0 <= gamma <= 1 or not 0 <= epsilon < math.inf:
            raise ValueError(f"gamma={gamma} must be between 0 and 1, and {epsilon=} finite and not negative")
        self.gamma, self.epsilon = gamma, epsilon
        self._base = self._delta = Moments()
        self._return = self._step_reward = 0.0  # the latter of the environment step that is not complete yet
        self._env_time, self._frozen, self._scale = 0, False, 1.0

    def reward(self, reward: float) -> float:
        """The reward over the standard deviation of the return, as known now."""
        return reward / self._scale

    def step(self, action: Action) -> StepResult:
        """Step, learn from the reward, and normalise it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not self._frozen:
            self._learn(reward, terminated or truncated)
        return observation, self.reward(reward), terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and a new return."""
        result = self.env.reset(seed=seed, options=options)
        self._return = self._step_reward = 0.0
        self._env_time = self.env.get_env_time()
        return result

    def _learn(self, reward: float, ended: bool) -> None:
        self._step_reward += reward
        env_time = self.env.get_env_time()
        if env_time == self._env_time and not ended:
            return
        self._return = self._step_reward + self.gamma ** max(env_time - self._env_time, 1) * self._return
        self._delta = self._delta.add(self._return)
        self._step_reward, self._env_time = 0.0, env_time
        self._update_scale()

    def _update_scale(self) -> None:
        moments = self._base.merge(self._delta)
        self._scale = (moments.m2 / moments.n + self.epsilon) ** 0.5 if moments.m2 > 0 else 1.0

    def state_dict(self) -> dict[str, Any]:
        """What was learned, and the return of the running episode."""
        return {**self.shared_state(), "return": self._return, "step_reward": self._step_reward}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the result of `state_dict`."""
        self.load_shared_state(state)
        self._return, self._step_reward = float(state["return"]), float(state["step_reward"])

    def shared_state(self) -> dict[str, Any]:
        """What all copies knew when they were last brought together, and what this one has seen since."""
        return {"base": list(self._base), "delta": list(self._delta)}

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What was known together, and after that what each copy has seen, in their order.

        Raises:
            ValueError: The copies were not brought together in the same way before.
        """
        merged = Moments(*states[0]["base"])
        if any(Moments(*state["base"]) != merged for state in states):
            raise ValueError("the copies start from different statistics; give all of them the same shared state first")
        for state in states:
            merged = merged.merge(Moments(*state["delta"]))
        return {"base": list(merged), "delta": list(Moments())}

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Take over what was learned, and count from there."""
        self._base, self._delta = Moments(*state["base"]), Moments(*state["delta"])
        self._update_scale()

    def freeze(self) -> None:
        """Normalise by what is known now, for good."""
        self._frozen = True
