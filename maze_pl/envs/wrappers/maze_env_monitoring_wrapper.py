"""Distributions of observations, actions and rewards, for the dashboards."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.monitoring_array_wrapper import MonitoringArrayWrapper
from maze_pl.envs.monitored_values import (
    N_ACTS,
    N_NUMBERS,
    OBSERVATION_EVENTS,
    REWARD_EVENTS,
    LoggedChoice,
    logged_choices,
    observation_key,
    reward_key,
)
from maze_pl.envs.structured_env import Action, Array, Observation, ResetResult, StepParts, StepResult, StructuredEnv
from maze_pl.envs.wrappers.sampling_wrapper import SamplingWrapper, Shown
from maze_pl.events import EventRecord, Subscriber, topics
from maze_pl.events.display import require_matplotlib


class MazeEnvMonitoringWrapper(SamplingWrapper):
    """Logs distributions of observations, actions and rewards in training and evaluation.

    Observations and actions are logged for each sub-step.

    "Processed" values are those that pass through this wrapper. If it is the last wrapper of a list,
    they are what the policy sees and does. "Original" values are those that the environment inside
    all wrappers returned; where an inner wrapper splits its acts into sub-steps, they are logged in
    each of them. Observations (`ObservationEvents`) and rewards of environment steps
    (`RewardEvents`; the steps of one decision together) are logged as histograms. Actions
    (`ActionEvents`) are logged as figures: bar charts of discrete and binary ones, violin plots of
    continuous ones.

    Only a random sample is logged, the same for the same seed: 50 acts of an episode, 64 numbers of
    a larger observation, and 100 episodes of an epoch. The values that pass through are left
    unchanged. Logging that is switched off does no work; if all of it is, this wrapper only passes
    calls on.

    Args:
        env: The environment to wrap.
        observation_logging: Whether to log observations, before and after processing.
        action_logging: Whether to log actions, which needs matplotlib.
        reward_logging: Whether to log rewards, before and after processing.

    Raises:
        ImportError: Actions are to be logged, and matplotlib is missing.

    Attributes:
        logs_nothing: Whether all logging is off, so that everything is passed on as if this wrapper were missing.

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
        self,
        env: StructuredEnv,
        observation_logging: bool,
        action_logging: bool,
        reward_logging: bool,
    ) -> None:
        if action_logging:
            require_matplotlib("action_logging=True")
        self.observation_logging, self.action_logging = observation_logging, action_logging
        self._rewards = _Rewards() if reward_logging else None
        self.logs_nothing = not (observation_logging or action_logging or reward_logging)
        self._choices: dict[StepKey, list[LoggedChoice]] = {}
        super().__init__(env, size=N_ACTS)
        if self._rewards is not None:
            env.pubsub.register_subscriber(self._rewards)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode and its sample."""
        if self.logs_nothing:
            return self.env.reset(seed=seed, options=options)
        return super().reset(seed=seed, options=options)

    def _begin(self, observation: Observation) -> None:
        super()._begin(observation)
        self._env_time = self.env.get_env_time()

    def step(self, action: Action) -> StepResult:
        """Record the act if it is sampled, step, and record the reward."""
        if self.logs_nothing:
            return self.env.step(action)
        return self._with_reward(super().step(action))

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        if self.logs_nothing:
            result: StepResult = yield action
            return result
        return self._with_reward((yield from super().step_in_parts(action)))

    def _with_reward(self, result: StepResult) -> StepResult:
        """Watch the reward of a step."""
        rewards = self._rewards
        if rewards is not None:
            rewards.step[1] += result[1]
            env_time = self.env.get_env_time()
            if env_time != self._env_time or result[2] or result[3]:
                self._env_time = env_time
                place = self.pick(topics.RewardEvents)
                if place is not None:
                    self._sample[place] = rewards.named("steps", rewards.step)
                rewards.total += rewards.step
                rewards.step[:] = 0.0
        return result

    def watch(self, step_key: StepKey, observation: Observation, action: Action) -> Iterator[Shown]:
        """Yield the action, and the observation that led to it, before and after processing."""
        if self.action_logging:
            if step_key not in self._choices:  # not before, as inner wrappers may be taken out
                self._choices[step_key] = list(logged_choices(step_key, self.env.action_spaces_dict[step_key]))
            for choice in self._choices[step_key]:
                value = action[choice.head]
                yield choice.key, value if choice.position is None else np.ravel(value)[choice.position]
        if self.observation_logging:
            maze_env: Any = self.unwrapped
            key = maze_env.actor_id().step_key
            original = maze_env.observation_conversion_dict[key].maze_to_space(maze_env.get_maze_state())
            shown = ((key, original), (step_key, observation))
            for event, (place, values) in zip(OBSERVATION_EVENTS, shown, strict=True):
                for name in sorted(values):
                    yield observation_key(event, place, name), self._excerpt(values[name])

    def _excerpt(self, value: Any) -> Array:
        """Up to 64 of the numbers of an observation."""
        flat = np.ravel(value)
        return flat if flat.size <= N_NUMBERS else flat[self._random.integers(flat.size, size=N_NUMBERS)]

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """The sample, and the sums of the rewards."""
        statistics = dict(super().end_episode())
        if self._rewards is not None:
            statistics.update(self._rewards.named(None, self._rewards.total))
        return statistics

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return MonitoringArrayWrapper(env, self.observation_logging, self.action_logging, self._rewards is not None)

    def state_dict(self) -> dict[str, Any]:
        """Rewards of the running episode, since adaptive wrappers would change them in a replay."""
        rewards = self._rewards
        if rewards is None:
            return {}
        steps = []
        for (stream, _), named in self._sample.items():
            if stream is topics.RewardEvents:
                steps.append([value for _, value in named])
        return {"step": rewards.step.tolist(), "total": rewards.total.tolist(), "steps": steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; replaying determines which steps are picked."""
        rewards = self._rewards
        if rewards is not None and state:
            rewards.step[:], rewards.total[:] = state["step"], state["total"]
            for place, values in enumerate(state["steps"]):
                self._sample[topics.RewardEvents, place] = rewards.named("steps", np.array(values))


class _Rewards(Subscriber):
    """Sums of rewards; the simulation's come as events, even of steps that wrappers make.

    Attributes:
        step: Original and processed reward of the environment step.
        total: Sums of both over the previous steps of the episode.
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
        if self.pubsub.context.env_time == 0:  # an episode begins, even one that a wrapper drops
            self.step[:] = self.total[:] = 0.0

    def named(self, statistic: str | None, values: Array) -> list[Shown]:
        """Original and processed value, each with the key of its statistic."""
        pairs = zip(REWARD_EVENTS, values.tolist(), strict=True)
        return [(reward_key(event, statistic), value) for event, value in pairs]
