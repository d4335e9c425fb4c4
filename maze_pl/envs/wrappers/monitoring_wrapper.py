"""Shows what an agent sees, does and gets: distributions and pictures in the dashboards, once per epoch."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.envs.structured_env import Action, Array, Observation, StepResult, StructuredEnv
from maze_pl.envs.wrappers.sampling import SamplingWrapper, Shown
from maze_pl.events.declaration import group_label
from maze_pl.events.plots import require_matplotlib
from maze_pl.events.pubsub import EventRecord, Subscriber
from maze_pl.events.topics import ActionEvents, BaseEnvEvents, ObservationEvents, RewardEvents


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
                self._env_time, place = env_time, self.pick(RewardEvents)
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
                    yield (ActionEvents.__name__, event, None, (group, *names)), value
        if self.observation_logging:
            maze_env: Any = self.unwrapped
            key = maze_env.actor_id().step_key
            original = maze_env.observation_conversion_dict[key].maze_to_space(maze_env.get_maze_state())
            places = {"observation_original": group_label("step_key", key), "observation_processed": group}
            for (event, place), shown in zip(places.items(), (original, observation), strict=True):
                for name, value in shown.items():
                    yield (ObservationEvents.__name__, event, None, (place, name)), self._excerpt(value)

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
        steps = [[value for _, value in shown] for (stream, _), shown in self._sample.items() if stream is RewardEvents]
        return {"step": rewards.step.tolist(), "total": rewards.total.tolist(), "steps": steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the result of `state_dict`; which steps are picked follows from playing the episode again."""
        rewards = self._rewards
        if rewards is not None and state:
            rewards.step[:], rewards.total[:] = state["step"], state["total"]
            for place, values in enumerate(state["steps"]):
                self._sample[RewardEvents, place] = rewards.named("steps", np.array(values))


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
        return [BaseEnvEvents]

    def notify_event(self, record: EventRecord) -> None:
        if record.event is BaseEnvEvents.reward:
            self.step[0] += record.attributes["value"]

    def clear_events(self) -> None:
        if self.pubsub.context.env_time == 0:  # an episode begins, which a wrapper may give up before others see it
            self.step[:] = self.total[:] = 0.0

    def named(self, statistic: str | None, values: Array) -> list[Shown]:
        """Original and processed values as they are shown."""
        pairs = zip(("reward_original", "reward_processed"), values.tolist(), strict=True)
        return [((RewardEvents.__name__, event, statistic, ()), value) for event, value in pairs]


def _choices(head: str, space: spaces.Space[Any], value: Any) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """An action as it is shown: the event, names and value; of several choices, each by itself."""
    if isinstance(space, spaces.Discrete):
        yield "discrete_action", (head, f"{space.start}_to_{space.start + space.n - 1}"), value
    elif isinstance(space, spaces.MultiDiscrete):
        parts = zip(np.ravel(space.start), np.ravel(space.nvec), np.ravel(value), strict=True)
        for index, (start, n, part) in enumerate(parts):
            yield "discrete_action", (f"{head}_{index}", f"{start}_to_{start + n - 1}"), part
    else:
        yield "binary_action" if isinstance(space, spaces.MultiBinary) else "continuous_action", (head,), value
