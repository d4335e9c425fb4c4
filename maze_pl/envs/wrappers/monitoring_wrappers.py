"""Shows what an agent sees, does and gets: distributions and pictures of a sample, once per epoch."""

import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_object
from maze_pl.core.episode import StatKey
from maze_pl.envs.contract import bounds
from maze_pl.envs.structured_env import Action, Array, Observation, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.events import EventRecord, Subscriber, topics
from maze_pl.events.display import require_matplotlib
from maze_pl.events.statistics import group_label

Shown = tuple[StatKey, Any]
"""The name of the statistic that a value adds to, and the value."""


class SamplingWrapper(Wrapper):
    """Watches a random sample of the acts of each episode, which ends up in the episode's statistics.

    The choice depends on an episode's seed and length alone, so an episode that is played again to resume a run has the
    same sample as before.

    Args:
        env: The environment to wrap.
        size: How many acts of each sub-step are watched in an episode.
    """

    def __init__(self, env: StructuredEnv, size: int) -> None:
        super().__init__(env)
        self._size, self._random = size, random.Random(0)
        self._begin({})

    @abstractmethod
    def watch(self, step_key: StepKey, observation: Observation, action: Action) -> Iterator[Shown]:
        """What is to be shown of an act; it is copied."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and a sample of it."""
        if seed is not None:
            self._random.seed(seed)
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin(observation)
        return observation, info

    def _begin(self, observation: Observation) -> None:
        self._observation = observation
        self._sample: dict[tuple[Hashable, int], list[Shown]] = {}
        self._n_seen: Counter[Hashable] = Counter()

    def step(self, action: Action) -> StepResult:
        """Step, after watching the act if it is picked."""
        step_key = self.env.actor_id().step_key
        place = self.pick(step_key)
        if place is not None:
            shown = self.watch(step_key, self._observation, action)
            self._sample[place] = [(name, np.array(value)) for name, value in shown]
        result = self.env.step(action)
        self._observation = result[0]
        return result

    def pick(self, stream: Hashable) -> tuple[Hashable, int] | None:
        """Where in the sample this moment of a stream belongs; None if it is left out."""
        place = n_seen = self._n_seen[stream]
        self._n_seen[stream] += 1
        if n_seen >= self._size:  # reservoir sampling: in the end, each of n moments is kept with probability size / n
            place = int(self._random.random() * (n_seen + 1))
        return (stream, place) if place < self._size else None

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """What was kept, `[n, ...]` for each name."""
        kept: dict[StatKey, list[Any]] = {}
        for name, value in chain.from_iterable(self._sample.values()):
            kept.setdefault(name, []).append(value)
        return {name: np.array(values) for name, values in kept.items()}


class MazeEnvMonitoringWrapper(SamplingWrapper):
    """Shows distributions of observations, actions and rewards, for each sub-step, of training and of evaluation.

    "Processed" is what passes through this wrapper, so as the last of a list it shows what the policy sees and does;
    "original" is what the environment inside all wrappers returned. Observations (`ObservationEvents`) and the rewards
    of environment steps (`RewardEvents`) are shown as histograms; actions (`ActionEvents`) as pictures: bars for
    discrete and binary ones, violins for continuous ones.

    What is shown is a random sample, the same for the same seed: 50 acts of an episode, 64 numbers of an observation
    that has more, and 100 episodes of an epoch. All of what is computed is left as it is. A kind of logging that is
    switched off costs nothing; if all are, not even a step passes through here.

    Args:
        env: The environment to wrap.
        observation_logging: Whether observations are shown, before and after processing.
        action_logging: Whether actions are shown, which needs matplotlib.
        reward_logging: Whether rewards are shown, before and after processing.

    Raises:
        ImportError: Actions are to be shown, and matplotlib is missing.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = MazeEnvMonitoringWrapper.wrap(
        ...     GymMazeEnv("CartPole-v1"), observation_logging=True, action_logging=False, reward_logging=False
        ... )
        >>> observation, info = env.reset(seed=1)
        >>> result = env.step({"action": 0})
        >>> [(event, groups, values.shape) for (_, event, _, groups), values in env.end_episode().items()]
        [('observation_original', ('substep_0', 'observation'), (1, 4)), \
('observation_processed', ('substep_0', 'observation'), (1, 4))]
    """

    def __init__(
        self, env: StructuredEnv, observation_logging: bool, action_logging: bool, reward_logging: bool
    ) -> None:
        if action_logging:
            require_matplotlib("action_logging=True")
        self.observation_logging, self.action_logging = observation_logging, action_logging
        self._rewards = _Rewards() if reward_logging else None
        super().__init__(env, size=50)
        if self._rewards is not None:
            env.pubsub.register_subscriber(self._rewards)
        elif not observation_logging and not action_logging:
            self.step, self.reset = env.step, env.reset  # type: ignore[method-assign]

    def _begin(self, observation: Observation) -> None:
        super()._begin(observation)
        self._env_time = self.env.get_env_time()

    def step(self, action: Action) -> StepResult:
        """Step, after watching the act if it is picked, and watch the reward."""
        result, rewards = super().step(action), self._rewards
        if rewards is not None:
            rewards.step[1] += result[1]
            env_time = self.env.get_env_time()
            if env_time != self._env_time or result[2] or result[3]:
                self._env_time, place = env_time, self.pick(topics.RewardEvents)
                if place is not None:
                    self._sample[place] = rewards.named("steps", rewards.step)
                rewards.total += rewards.step
                rewards.step[:] = 0.0
        return result

    def watch(self, step_key: StepKey, observation: Observation, action: Action) -> Iterator[Shown]:
        """The action, and the observation that led to it, before and after processing."""
        group = group_label("step_key", step_key)
        if self.action_logging:
            for head, space in self.env.action_spaces_dict[step_key].spaces.items():
                for event, names, value in _choices(head, space, action[head]):
                    yield (topics.ActionEvents.__name__, event, None, (group, *names)), value
        if self.observation_logging:
            maze_env: Any = self.unwrapped
            key = maze_env.actor_id().step_key
            original = maze_env.observation_conversion_dict[key].maze_to_space(maze_env.get_maze_state())
            places = {"observation_original": group_label("step_key", key), "observation_processed": group}
            for (event, place), shown in zip(places.items(), (original, observation), strict=True):
                for name, value in shown.items():
                    yield (topics.ObservationEvents.__name__, event, None, (place, name)), self._excerpt(value)

    def _excerpt(self, value: Any) -> Array:
        """Up to 64 of the numbers of an observation."""
        flat = np.ravel(value)
        return flat if flat.size <= 64 else flat[self._random.choices(range(flat.size), k=64)]

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """The sample, and the sums of the rewards."""
        rewards = self._rewards
        return {**super().end_episode(), **dict(rewards.named(None, rewards.total) if rewards is not None else ())}

    def state_dict(self) -> dict[str, Any]:
        """The rewards of the running episode: wrappers that learn process them in another way if it is played again."""
        rewards = self._rewards
        if rewards is None:
            return {}
        kept = [shown for (stream, _), shown in self._sample.items() if stream is topics.RewardEvents]
        steps = [[value for _, value in shown] for shown in kept]
        return {"step": rewards.step.tolist(), "total": rewards.total.tolist(), "steps": steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the result of `state_dict`; which steps are picked follows from playing the episode again."""
        rewards = self._rewards
        if rewards is not None and state:
            rewards.step[:], rewards.total[:] = state["step"], state["total"]
            for place, values in enumerate(state["steps"]):
                self._sample[topics.RewardEvents, place] = rewards.named("steps", np.array(values))


class _Rewards(Subscriber):
    """Adds up rewards; as a subscriber those of the simulation, also where a wrapper steps it several times.

    Attributes:
        step: Original and processed reward of the environment step.
        total: Those of the steps of the episode before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step, self.total = np.zeros(2), np.zeros(2)

    def get_interfaces(self) -> list[type]:
        return [topics.BaseEnvEvents]

    def notify_event(self, record: EventRecord) -> None:
        if record.event is topics.BaseEnvEvents.reward:
            self.step[0] += record.attributes["value"]

    def clear_events(self) -> None:
        if self.pubsub.context.env_time == 0:  # an episode begins, which a wrapper may give up before others see it
            self.step[:] = self.total[:] = 0.0

    def named(self, statistic: str | None, values: Array) -> list[Shown]:
        """Original and processed values as they are shown."""
        pairs = zip(("reward_original", "reward_processed"), values.tolist(), strict=True)
        return [((topics.RewardEvents.__name__, event, statistic, ()), value) for event, value in pairs]


def _choices(head: str, space: spaces.Space[Any], value: Any) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """An action as it is shown: the event, names and value; of several choices, each by itself."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        yield "continuous_action" if isinstance(space, spaces.Box) else "binary_action", (head,), value
    else:
        for index, (low, high, one) in enumerate(zip(*map(np.ravel, (*bounds(space), value)), strict=True)):
            name = head if isinstance(space, spaces.Discrete) else f"{head}_{index}"
            yield "discrete_action", (name, f"{low}_to_{high}"), one


class ObservationVisualizationWrapper(SamplingWrapper):
    """Has a function draw a sample of the observations that pass through, once per epoch.

    The function is called as `plot_function(value, groups)` for each observation, with the list of the picked ones and
    the tuple of step key (as `substep_0`) and name. It returns a matplotlib figure or an array `[height, width, 3]`,
    or None for what it does not draw. Take `**kwargs`, too, to be prepared for more. Four observations of an episode
    are picked at random, of at most 100 episodes; large observations are better not drawn in long training runs.

    Args:
        env: The environment to wrap.
        plot_function: The function, or its dotted path. It is called where the dashboards are written to, so it must
            be possible to import it there.

    Raises:
        ImportError: There is no such function.
        ValueError: The function cannot be imported, as it was made inside another one.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> plot_function = "maze_pl.events.display.create_violin_plot"
        >>> env = ObservationVisualizationWrapper.wrap(GymMazeEnv("CartPole-v1"), plot_function=plot_function)
        >>> observation, info = env.reset(seed=1)
        >>> result = env.step({"action": 0})
        >>> [values.shape for values in env.end_episode().values()]
        [(1, 4)]
    """

    def __init__(self, env: StructuredEnv, plot_function: str | Callable[..., Any]) -> None:
        super().__init__(env, size=4)
        path = plot_function
        if not isinstance(path, str):
            path = f"{path.__module__}.{getattr(path, '__qualname__', '<>')}".replace("__mp_main__", "__main__")
        if "<" in path:
            raise ValueError(f"plot_function={plot_function!r} cannot be imported; define it by `def` in a module")
        if not callable(import_object(path)):
            raise ValueError(f"plot_function={path!r} is no function")
        self.plot_function = path

    def watch(self, step_key: StepKey, observation: Observation, action: Action) -> Iterator[Shown]:
        """What the policy saw."""
        for name, value in observation.items():
            groups = self.plot_function, group_label("step_key", step_key), name
            yield (topics.ObservationVisualizationEvents.__name__, "observation", None, groups), value
