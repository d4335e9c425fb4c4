"""Wrappers around environment time: where episodes begin and end, how often agents decide, what they still see."""

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import environment_action
from maze_pl.envs.structured_env import Action, Array, Dicts, Observation, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, ObservationWrapper, Wrapper, wrappers_of

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


History = dict[str, Array]
"""Name of each stack -> [stack_steps, ...] the latest observations, the newest last."""


@dataclass(frozen=True)
class StackConfig:
    """One stack; see `ObservationStackWrapper`."""

    observation: str
    stack_steps: int
    keep_original: bool = False
    tag: str | None = None
    delta: bool = False

    @property
    def name(self) -> str:
        """What the stack is called."""
        return self.observation if self.tag is None else f"{self.observation}-{self.tag}"

    def space(self, space: spaces.Space[Any]) -> spaces.Box:
        """Space of the stack."""
        if not isinstance(space, spaces.Box) or self.stack_steps < 1:
            wrong = f"{self.observation!r}, {space}, cannot be stacked {self.stack_steps} times"
            raise ValueError(f"observation {wrong}; stack at least 1, of a Box (PreProcessingWrapper encodes others)")
        low, high = (np.repeat(bound[np.newaxis], self.stack_steps, axis=0) for bound in (space.low, space.high))
        if self.delta:
            low, high = (bound.astype(np.result_type(bound, np.float32)) for bound in (low, high))
            with np.errstate(over="ignore"):  # bounds that are the largest numbers that there are become infinite
                low[:-1], high[:-1] = low[-1] - high[-1], high[-1] - low[-1]
        return spaces.Box(low, high, dtype=low.dtype.type)

    def next(self, history: History, observation: Array) -> Array:
        """The stack with one more observation, which also becomes part of the history."""
        earlier = history.get(self.name)
        if earlier is None:
            earlier = np.repeat(observation[np.newaxis], self.stack_steps, axis=0)
        latest = history[self.name] = np.concatenate([earlier[1:], observation[np.newaxis]])
        if self.delta:
            latest = latest.astype(np.result_type(latest, np.float32))
            latest[:-1] = latest[-1] - latest[:-1]
        return latest


class ObservationStackWrapper(ObservationWrapper):
    """Stacks an actor's latest observations along a new first axis, the newest last.

    Each actor (sub-step and agent) has stacks of its own. They start with its first observation of an episode, which
    then fills all entries. Entries of `stack_config`:

    - `observation`: which observation (a Box); in every sub-step that has it
    - `keep_original`: whether the single observation stays beside the stack, which then needs a tag; no by default
    - `tag`: the stack is called `<observation>-<tag>`, or as the observation itself if None, the default
    - `delta`: whether all entries but the newest are the newest minus an earlier one, as floats; no by default
    - `stack_steps`: number of observations in a stack, the newest included

    Args:
        env: The environment to wrap.
        stack_config: One entry for each stack.

    Raises:
        TypeError: An option is unknown or missing.
        ValueError: An observation is unknown or no Box, `stack_steps` is below 1, or a name would be there twice.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> stack = {"observation": "observation", "keep_original": True, "tag": "stacked", "stack_steps": 3}
        >>> env = ObservationStackWrapper(GymMazeEnv("CartPole-v1"), stack_config=[stack])
        >>> {name: space.shape for name, space in env.observation_space.items()}
        {'observation': (4,), 'observation-stacked': (3, 4)}
    """

    def __init__(self, env: StructuredEnv, stack_config: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(env)
        self._stacks = [StackConfig(**entry) for entry in stack_config]
        self._dropped = {stack.observation for stack in self._stacks if not stack.keep_original}
        known = {name for space in env.observation_spaces_dict.values() for name in space.spaces}
        if unknown := {stack.observation for stack in self._stacks} - known:
            raise ValueError(f"stack_config names {sorted(unknown)}, which are not among {sorted(known)}")
        self._observation_spaces = {}
        for key, space in env.observation_spaces_dict.items():
            stacked = {name: part for name, part in space.items() if name not in self._dropped}
            for stack in [stack for stack in self._stacks if stack.observation in space.spaces]:
                if stack.name in stacked:
                    raise ValueError(f"stack_config makes two observations {stack.name!r} in {key!r}; use tags")
                stacked[stack.name] = stack.space(space[stack.observation])
            self._observation_spaces[key] = spaces.Dict(stacked)
        self._live: dict[Hashable, History] = {}  # by actor
        self._recorded: dict[Hashable, History] = {}  # by sub-step

    def observation(self, observation: Observation) -> Observation:
        """Stack what the actor that acts next sees."""
        return self._stacked(self._live.setdefault(self.env.actor_id(), {}), observation)

    def _stacked(self, history: History, observation: Observation) -> Observation:
        """What is shown after these earlier observations, which this one joins."""
        stacked = {name: value for name, value in observation.items() if name not in self._dropped}
        for stack in self._stacks:
            if stack.observation in observation:
                stacked[stack.name] = stack.next(history, observation[stack.observation])
        return stacked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and the stacks anew."""
        self._live.clear()
        return super().reset(seed=seed, options=options)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert recorded states, one after the other as they were recorded, with stacks of their own.

        All agents of a sub-step share them, as a state does not tell whose it is.
        """
        seen, done = self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        if first_step_in_episode:
            self._recorded.clear()
        return seen and {key: self._stacked(self._recorded.setdefault(key, {}), seen[key]) for key in seen}, done
