"""Random steps at the beginning of each episode."""

import copy
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import allowed_entries, environment_action
from maze_pl.envs.structured_env import Action, Observation, ResetResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper

_MOST_ATTEMPTS = 100


class RandomResetWrapper(Wrapper):
    """Starts episodes with a random number of environment steps in which all actors act at random.

    All randomness depends on the seed of `reset` alone. Masked actions are not taken. The steps
    count in environment time, and thus in time limits; their rewards and events count in the
    episode's statistics. Records assign their events to the first decision. If the episode ends
    during these steps, the attempt is dropped and another one is made.

    Args:
        env: The environment to wrap.
        min_skip_steps: Smallest number of environment steps to skip.
        max_skip_steps: Largest number; every number in between is equally likely.

    Raises:
        ValueError: A number is negative, or the smallest exceeds the largest.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = RandomResetWrapper(GymMazeEnv("Pendulum-v1"), min_skip_steps=5, max_skip_steps=10)
        >>> _ = env.reset(seed=1)
        >>> 5 <= env.get_env_time() <= 10
        True
    """

    takes_steps = True

    def __init__(self, env: StructuredEnv, min_skip_steps: int, max_skip_steps: int) -> None:
        super().__init__(env)
        if not 0 <= min_skip_steps <= max_skip_steps:
            raise ValueError(f"{min_skip_steps=} must be at least 0 and at most {max_skip_steps=}")
        self.min_skip_steps, self.max_skip_steps = min_skip_steps, max_skip_steps
        self._generator = np.random.default_rng()
        self._read_spaces()

    def _read_spaces(self) -> None:
        """Read the spaces of the wrapped environment, which is another one in a copy around it."""
        self._described_env = self.env
        self._spaces = copy.deepcopy(dict(self.env.action_spaces_dict))  # sampling changes generators

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and skip its first steps.

        Raises:
            ValueError: The episode ended in every attempt.
        """
        if self.env is not self._described_env:
            self._read_spaces()
        if seed is not None:
            self._generator = np.random.default_rng(derive_seed(seed, "random_reset"))
        for attempt in range(_MOST_ATTEMPTS):
            own = seed if seed is None or not attempt else derive_seed(seed, "attempt", attempt)
            observation, info = self.env.reset(seed=own, options=options)
            n_steps = self._generator.integers(self.min_skip_steps, self.max_skip_steps + 1)
            until = self.env.get_env_time() + n_steps
            ended = False
            if n_steps:
                for space in self._spaces.values():
                    space.seed(int(self._generator.integers(2**31)))
            self.context.is_decision = False
            while self.env.get_env_time() < until and not ended:
                observation, _, terminated, truncated, info = self.env.step(self._random_action(observation))
                ended = terminated or truncated
            self.context.is_decision = True
            if not ended:
                return observation, info
            self.env.pubsub.discard()
        skipped = f"the first {self.min_skip_steps} to {self.max_skip_steps} steps in {_MOST_ATTEMPTS} attempts"
        raise ValueError(f"RandomResetWrapper: the episode ended within {skipped}; reduce max_skip_steps")

    def prepare_deployment(self) -> None:
        """Skip no steps: episodes begin where the real system begins them."""
        self.min_skip_steps = self.max_skip_steps = 0

    def _random_action(self, observation: Observation) -> Action:
        key = self.env.actor_id().step_key
        names, heads = self.env.action_masks_dict.get(key, {}), self._spaces[key].spaces
        masks = {}
        for head, name in names.items():
            allowed = allowed_entries(observation[name], (spaces.flatdim(heads[head]),), name, head)
            masks[head] = _mask(heads[head], allowed)
        return {head: environment_action(space, space.sample(masks.get(head))) for head, space in heads.items()}


def _mask(space: spaces.Space[Any], allowed: Any) -> Any:
    """Convert a mask [number of entries] to the form that gymnasium's spaces expect."""
    allowed = allowed.astype(np.int8)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(np.split(allowed, np.cumsum(space.nvec)[:-1]))
    return 2 * allowed.reshape(space.shape) if isinstance(space, spaces.MultiBinary) else allowed  # 2: either
