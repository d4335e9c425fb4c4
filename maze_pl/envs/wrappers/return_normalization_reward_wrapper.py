"""Division of rewards by the standard deviation of discounted returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.return_normalization_array_wrapper import ReturnNormalizationArrayWrapper
from maze_pl.envs.structured_env import Action, ResetResult, StepParts, StepResult, StructuredEnv
from maze_pl.envs.wrapper import RewardWrapper

if TYPE_CHECKING:
    from maze_pl.envs.tensors.tensor_env import TensorEnv


class Moments(NamedTuple):
    """Mean and spread of the numbers seen so far.

    Attributes:
        n: Number of them.
        mean: Their mean.
        m2: Sum of their squared differences from the mean.
    """

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def add(self, value: float) -> Moments:
        """Return the moments with one more number (Welford 1962)."""
        n = self.n + 1
        difference = value - self.mean
        mean = self.mean + difference / n
        return Moments(n, mean, self.m2 + difference * (value - mean))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of numbers (Chan, Golub and LeVeque 1979)."""
        if not other.n or not self.n:
            return other if other.n else self
        n = self.n + other.n
        difference = other.mean - self.mean
        mean = self.mean + difference * other.n / n
        return Moments(n, mean, self.m2 + other.m2 + difference * difference * self.n * other.n / n)


FIRST_RETURN: Final = Moments(n=1)
"""The return of 0 with which statistics begin."""


class ReturnNormalizationRewardWrapper(RewardWrapper):
    """Divides rewards by the running standard deviation of the discounted return.

        R_t = r_t + gamma * R_{t-1},    reward_t = r_t / sqrt(Var(R) + epsilon)

    Time is environment time: the rewards of the sub-steps of one environment step are summed. R
    starts at 0 in each episode. A first return of 0 counts, too, so that the first reward is divided
    by a number of its order: what is learned does not depend on the unit of rewards. Rewards are
    left unchanged as long as all returns were 0.

    The statistics have two parts: the common ones of all copies at their last merge, and those that
    this copy has gathered since. Merging thus counts nothing twice. The order of merging is fixed,
    and so is the result.

    Args:
        env: The environment to wrap.
        gamma: Discount factor of the return.
        epsilon: Added to the variance.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv("CartPole-v1"), gamma=0.5)
        >>> _ = env.reset(seed=1)
        >>> [round(env.step({"action": 1})[1], 3) for _ in range(3)]  # returns of 0, 1, 1.5 and 1.75
        [2.0, 1.604, 1.492]
    """

    def __init__(self, env: StructuredEnv, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(env)
        if not 0 <= gamma <= 1 or not 0 <= epsilon < math.inf:
            raise ValueError(f"gamma={gamma} must be between 0 and 1, and {epsilon=} finite and not negative")
        self.gamma, self.epsilon = gamma, epsilon
        self._base, self._delta = FIRST_RETURN, Moments()
        self._return = self._step_reward = 0.0  # _step_reward: of the incomplete environment step
        self._env_time = 0
        self._frozen = False
        self._scale = 1.0

    def reward(self, reward: float) -> float:
        """Divide the reward by the current standard deviation of the return."""
        return reward / self._scale

    def step(self, action: Action) -> StepResult:
        """Step, update the statistics by the reward, and normalise it."""
        return self._normalised(self.env.step(action))

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        return self._normalised((yield action))

    def _normalised(self, result: StepResult) -> StepResult:
        """Update the statistics by the reward of a step, and normalise it."""
        observation, reward, terminated, truncated, info = result
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
        self._scale = math.sqrt(moments.m2 / moments.n + self.epsilon) if moments.m2 > 0 else 1.0

    def state_dict(self) -> dict[str, Any]:
        """Statistics, and the return of the running episode."""
        return {**self.shared_state(), "return": self._return, "step_reward": self._step_reward}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        self.load_shared_state(state)
        self._return, self._step_reward = float(state["return"]), float(state["step_reward"])

    def shared_state(self) -> dict[str, Any]:
        """Common statistics of all copies at their last merge, and those of this one since."""
        return {"base": list(self._base), "delta": list(self._delta)}

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge the common statistics with those that each copy has gathered since, in their order.

        Raises:
            ValueError: The copies do not have the same common statistics.
        """
        merged = Moments(*states[0]["base"])
        if any(Moments(*state["base"]) != merged for state in states):
            raise ValueError("the copies start from different statistics; give all of them the same shared state first")
        for state in states:
            merged = merged.merge(Moments(*state["delta"]))
        return {"base": list(merged), "delta": list(Moments())}

    @classmethod
    def rebase_shared_state(cls, state: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
        """Put the statistics since the last merge on top of the current common ones."""
        return {"base": list(current["base"]), "delta": list(state["delta"])}

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Take over statistics, and continue from there."""
        self._base, self._delta = Moments(*state["base"]), Moments(*state["delta"])
        self._update_scale()

    def freeze(self) -> None:
        """Normalise by the current statistics from now on, without updating them."""
        self._frozen = True

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return ReturnNormalizationArrayWrapper(env, self.gamma, self.epsilon)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the form for environments in tensors."""
        from maze_pl.envs.tensors.return_normalization_tensor_wrapper import ReturnNormalizationTensorWrapper

        return ReturnNormalizationTensorWrapper(env, self.gamma, self.epsilon)
