"""Wrappers around environment time: where episodes begin and end, and how often agents decide."""

import copy
from typing import Any, Literal, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import environment_action
from maze_pl.envs.structured_env import Action, Array, Observation, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, Wrapper, wrappers_of

_MOST_ATTEMPTS = 100


class TimeLimitWrapper(Wrapper):
    """Truncates an episode once it has taken a number of environment steps, in the act that completes the last one.

    Environment time counts, so that sub-steps do not, and steps that wrappers further in make by themselves do. A step
    that terminates the episode is not truncated as well.

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
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.env.get_env_time() >= self.max_episode_steps and self.context.env_step_incremented and not terminated:
            truncated = True
        return observation, reward, terminated, truncated, info


class StepSkipWrapper(Wrapper):
    """Takes several environment steps with each decision: the first with the agents' actions, the others by itself.

    All sub-steps of an environment step are decided on before the others follow. Environment time, and so time limits
    and discounting, counts all steps. Rewards are summed up, where they are attributed for each actor, at its last act.
    Events belong to the step that the agent sees. Nothing is done after the end of an episode.

    In skipped steps masks are not looked at. An actor that has not acted in the decided step does nothing, and its
    rewards are nobody's. Where the number of agents changes during an episode, nobody would see their ends.

    Args:
        env: The environment to wrap.
        n_steps: Environment steps for each decision, the decided one included.
        skip_mode: What actors do in the other ones: `sticky`, the same once more, or `noop`, what their action
            conversion's `noop_action` returns.

    Raises:
        TypeError: An action conversion knows no action that does nothing, and it is needed.
        ValueError: An argument is out of range, or the number of agents changes during an episode.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = StepSkipWrapper(GymMazeEnv("Pendulum-v1"), n_steps=4)
        >>> _ = env.reset(seed=1)
        >>> _ = env.step(env.action_space.sample())
        >>> env.get_env_time()
        4
    """

    def __init__(self, env: StructuredEnv, n_steps: int, skip_mode: Literal["sticky", "noop"] = "sticky") -> None:
        super().__init__(env)
        if n_steps < 1 or skip_mode not in ("sticky", "noop"):
            raise ValueError(f"n_steps={n_steps} must be at least 1, and skip_mode={skip_mode!r} 'sticky' or 'noop'")
        if min(env.agent_counts_dict.values()) < 1:
            raise ValueError("StepSkipWrapper needs numbers of agents that do not change: nobody would see their ends")
        self.n_steps = n_steps
        self._noops = {key: self._noop(key) for key in env.agent_counts_dict} if skip_mode == "noop" else {}
        self._acted: list[ActorID] = []  # in the environment step that agents decide on
        self._actions: dict[ActorID, Action] = {}  # which they repeat
        self._rewards: Array | None = None
        self._complete, self._is_done = True, False

    def _noop(self, key: StepKey) -> Action:
        action = self.env.action_conversion_dict[key].noop_action()  # type: ignore[attr-defined]
        for wrapper in reversed([w for w in wrappers_of(self.env) if issubclass(type(w), ActionWrapper)]):
            action = cast(ActionWrapper, wrapper).reverse_action(action)
        return cast(Action, action)

    def step(self, action: Action) -> StepResult:
        """Perform an act, and if it completes an environment step, the steps that are skipped."""
        env, time, actor = self.env, self.env.get_env_time(), self.env.actor_id()
        if self._complete:
            self._acted, self._actions = [], {}
        self._acted.append(actor)
        if not self._noops:
            self._actions[actor] = action
        observation, total, terminated, truncated, info = env.step(action)
        self._is_done = env.is_actor_done()
        self._complete = bool(env.get_env_time() != time or terminated or truncated)
        if self._complete:
            self._rewards = env.get_actor_rewards()
            for _ in range(self.n_steps - 1):
                acted, time = list[ActorID](), env.get_env_time()
                while env.get_env_time() == time and not (terminated or truncated):
                    acted.append(actor := env.actor_id())
                    action = self._actions.get(actor) or self._noops.get(actor.step_key) or self._noop(actor.step_key)
                    observation, reward, terminated, truncated, info = env.step(action)
                    total += reward
                self._credit(acted)
        return observation, total, terminated, truncated, info

    def _credit(self, acted: list[ActorID]) -> None:
        """Add the rewards of a skipped step to those of its actors' last acts in the decided one."""
        rewards = self.env.get_actor_rewards() if acted else None
        if rewards is not None and self._rewards is not None:
            last, self._rewards = {actor: i for i, actor in enumerate(self._acted)}, self._rewards.copy()
            for actor, reward in zip(acted, rewards, strict=True):
                if actor in last:
                    self._rewards[last[actor]] += reward

    def is_actor_done(self) -> bool:
        """Whether the actor that just acted was done before the skipped steps."""
        return self._is_done

    def get_actor_rewards(self) -> Array | None:
        """Rewards of the acts of the decided step, with those of the skipped ones, if they are attributed."""
        return self._rewards

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode."""
        self._complete, self._is_done = True, False
        return self.env.reset(seed=seed, options=options)


class RandomResetWrapper(Wrapper):
    """Starts episodes with a random number of environment steps in which all actors act at random.

    Everything random depends on the seed of `reset` alone. Masked actions are not taken. The steps count in environment
    time, and so in time limits; their rewards and events are those of the first step that the agent sees, and so in the
    episode's statistics. An attempt in which the episode ends is dropped altogether, and another one made.

    Args:
        env: The environment to wrap.
        min_skip_steps: Smallest number of environment steps to skip.
        max_skip_steps: Largest number; every number in between is equally likely.

    Raises:
        ValueError: The numbers are negative or not in order.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = RandomResetWrapper(GymMazeEnv("Pendulum-v1"), min_skip_steps=5, max_skip_steps=10)
        >>> _ = env.reset(seed=1)
        >>> 5 <= env.get_env_time() <= 10
        True
    """

    def __init__(self, env: StructuredEnv, min_skip_steps: int, max_skip_steps: int) -> None:
        super().__init__(env)
        if not 0 <= min_skip_steps <= max_skip_steps:
            raise ValueError(f"{min_skip_steps=} must be at least 0 and at most {max_skip_steps=}")
        self.min_skip_steps, self.max_skip_steps = min_skip_steps, max_skip_steps
        self._generator = np.random.default_rng()
        self._spaces = copy.deepcopy(dict(env.action_spaces_dict))  # to sample without changing what others do

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and skip its first steps.

        Raises:
            ValueError: The episode ended in every attempt.
        """
        if seed is not None:
            self._generator = np.random.default_rng(derive_seed(seed, "random_reset"))
        for attempt in range(_MOST_ATTEMPTS):
            own = seed if seed is None or not attempt else derive_seed(seed, "attempt", attempt)
            observation, info = self.env.reset(seed=own, options=options)
            n_steps, ended = self._generator.integers(self.min_skip_steps, self.max_skip_steps + 1), False
            until = self.env.get_env_time() + n_steps
            for space in self._spaces.values() if n_steps else ():
                space.seed(int(self._generator.integers(2**31)))
            while self.env.get_env_time() < until and not ended:
                observation, _, terminated, truncated, info = self.env.step(self._random_action(observation))
                ended = terminated or truncated
            if not ended:
                return observation, info
            self.env.pubsub.discard()
        skipped = f"the first {self.min_skip_steps} to {self.max_skip_steps} steps in {_MOST_ATTEMPTS} attempts"
        raise ValueError(f"RandomResetWrapper: the episode ended within {skipped}; make max_skip_steps smaller")

    def _random_action(self, observation: Observation) -> Action:
        key = self.env.actor_id().step_key
        names, heads = self.env.action_masks_dict.get(key, {}), self._spaces[key].spaces
        masks = {head: _mask(space, observation[names[head]]) for head, space in heads.items() if head in names}
        return {head: environment_action(space, space.sample(masks.get(head))) for head, space in heads.items()}


def _mask(space: spaces.Space[Any], allowed: Any) -> Any:
    """A mask as gymnasium's spaces take it."""
    allowed = (np.asarray(allowed).ravel() != 0).astype(np.int8)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(np.split(allowed, np.cumsum(space.nvec)[:-1]))
    return 2 * allowed.reshape(space.shape) if isinstance(space, spaces.MultiBinary) else allowed  # 2: either
