"""Division of rewards by the standard deviation of discounted returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.return_normalization_array_wrapper import ReturnNormalizationArrayWrapper
from maze_pl.envs.contract import finite_rewards
from maze_pl.envs.structured_env import Action, Array, ResetResult, StepParts, StepResult, StructuredEnv
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

    @classmethod
    def of(cls, values: Array) -> Moments:
        """Return the moments of numbers [n], added up in their order, as in arrays."""
        mean = float(np.cumsum(values)[-1]) / len(values)
        difference = values - mean
        return Moments(len(values), mean, float(np.cumsum(difference * difference)[-1]))

    @property
    def variance(self) -> float:
        """Variance of the numbers; 0 without any."""
        return self.m2 / max(self.n, 1)


FIRST_RETURN: Final = Moments(n=1)
"""The return of 0 with which statistics begin."""


class Gathered(NamedTuple):
    """Statistics in two parts, so that merging counts nothing twice.

    Attributes:
        base: Those of all copies at their last merge.
        delta: Those that this copy has gathered since.
    """

    base: Moments = FIRST_RETURN
    delta: Moments = Moments()

    def add(self, moments: Moments) -> Gathered:
        """Return the statistics with further numbers."""
        return Gathered(self.base, self.delta.merge(moments))

    def merged(self) -> Moments:
        """Return the moments of both parts."""
        return self.base.merge(self.delta)

    def state_dict(self) -> dict[str, Any]:
        """Return both parts as lists."""
        return {"base": list(self.base), "delta": list(self.delta)}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Gathered:
        """Read the result of `state_dict`."""
        return Gathered(Moments(*state["base"]), Moments(*state["delta"]))


_ACTS: Final = "acts"  # statistics of attributed rewards in a state; those of 0.2.0 have none
_NO_ACTS: Final = Gathered().state_dict()


class ReturnNormalizationRewardWrapper(RewardWrapper):
    """Divides rewards by the running standard deviation of the discounted return.

        R_t = r_t + gamma * R_{t-1},    reward_t = r_t / sqrt(Var(R) + epsilon)

    Time is environment time: the rewards of the sub-steps of one environment step are summed. R
    starts at 0 in each episode. A first return of 0 counts, too, so that the first reward is divided
    by a number of its order: what is learned does not depend on the unit of rewards. Rewards are
    left unchanged as long as all returns were 0.

    Where rewards are attributed to acts, the acts at the same place of each environment step, such as
    those of one agent, have returns, too. Var(R) is then the larger one of the variance of the sum's
    returns and that of all these returns together, so that neither depends on how far the rewards of
    agents cancel out: in a zero-sum game, the sum is always 0.

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
        self._of_sums, self._of_acts = Gathered(), Gathered()
        self._returns_of_acts: Array = np.zeros(0)  # by place in the environment step
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
        self._returns_of_acts = np.zeros(0)
        self._env_time = self.env.get_env_time()
        return result

    def _learn(self, reward: float, ended: bool) -> None:
        self._step_reward += reward
        env_time = self.env.get_env_time()
        if env_time == self._env_time and not ended:
            return
        discount = self.gamma ** max(env_time - self._env_time, 1)
        self._return = self._step_reward + discount * self._return
        self._of_sums = self._of_sums._replace(delta=self._of_sums.delta.add(self._return))
        self._step_reward, self._env_time = 0.0, env_time
        self._learn_of_acts(discount)
        self._update_scale()

    def _learn_of_acts(self, discount: float) -> None:
        """Add the returns of the acts of a complete environment step, if rewards are attributed to them."""
        rewards = finite_rewards(self.env.get_actor_rewards(), self.env)
        if rewards is None or not len(rewards):
            return
        returns = np.array(rewards, np.float64)
        before = self._returns_of_acts[: len(returns)]
        returns[: len(before)] += discount * before
        self._returns_of_acts = returns
        self._of_acts = self._of_acts.add(Moments.of(returns))

    def _update_scale(self) -> None:
        variance = max(self._of_sums.merged().variance, self._of_acts.merged().variance)
        self._scale = math.sqrt(variance + self.epsilon) if variance > 0 else 1.0

    def state_dict(self) -> dict[str, Any]:
        """Statistics, and the returns of the running episode."""
        running = {"return": self._return, "step_reward": self._step_reward}
        if len(self._returns_of_acts):
            running["returns_of_acts"] = self._returns_of_acts.tolist()
        return {**self.shared_state(), **running}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        self.load_shared_state(state)
        self._return, self._step_reward = float(state["return"]), float(state["step_reward"])
        self._returns_of_acts = np.array(state.get("returns_of_acts", []), np.float64)

    def shared_state(self) -> dict[str, Any]:
        """Common statistics of all copies at their last merge, and those of this one since."""
        state = self._of_sums.state_dict()
        if self._of_acts != Gathered():
            state[_ACTS] = self._of_acts.state_dict()
        return state

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge the common statistics with those that each copy has gathered since, in their order.

        Raises:
            ValueError: The copies do not have the same common statistics.
        """
        merged = _merged(states)
        if any(_ACTS in state for state in states):
            merged[_ACTS] = _merged([state.get(_ACTS, _NO_ACTS) for state in states])
        return merged

    @classmethod
    def rebase_shared_state(cls, state: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
        """Put the statistics since the last merge on top of the current common ones."""
        rebased: dict[str, Any] = {"base": list(current["base"]), "delta": list(state["delta"])}
        if _ACTS in state or _ACTS in current:
            rebased[_ACTS] = {
                "base": list(current.get(_ACTS, _NO_ACTS)["base"]),
                "delta": list(state.get(_ACTS, _NO_ACTS)["delta"]),
            }
        return rebased

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Take over statistics, and continue from there."""
        self._of_sums = Gathered.from_state_dict(state)
        self._of_acts = Gathered.from_state_dict(state.get(_ACTS, _NO_ACTS))
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


def _merged(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge statistics in two parts, in their order.

    Raises:
        ValueError: Their common parts differ.
    """
    merged = Moments(*states[0]["base"])
    if any(Moments(*state["base"]) != merged for state in states):
        raise ValueError("the copies start from different statistics; give all of them the same shared state first")
    for state in states:
        merged = merged.merge(Moments(*state["delta"]))
    return Gathered(base=merged).state_dict()
