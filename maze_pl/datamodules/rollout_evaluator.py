"""How a policy is evaluated: how many episodes, and whether it takes its most likely actions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RolloutEvaluator:
    """Plays whole episodes in environments of their own, with the same seeds every time.

    Episodes are played to their end: put a `TimeLimitWrapper` around environments whose episodes may never end.

    Args:
        n_episodes: Number of episodes, over all ranks.
        deterministic: Whether the policy takes its most likely action instead of sampling.
        n_envs: Number of environments that play at the same time; 0 means one for each episode, at most 8.
    """

    n_episodes: int = 8
    deterministic: bool = True
    n_envs: int = 0

    def __post_init__(self) -> None:
        if self.n_episodes < 1:
            raise ValueError(f"n_episodes={self.n_episodes} of an evaluator must be at least 1")
        if self.n_envs < 0:
            raise ValueError(f"n_envs={self.n_envs} of an evaluator must not be negative")
