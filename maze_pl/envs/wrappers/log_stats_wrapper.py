"""Keeps the statistics of episodes."""

from typing import Any, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary, StatKey
from maze_pl.envs.contract import bounds, check_step
from maze_pl.envs.structured_env import Action, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.events import EpisodeEventLog
from maze_pl.events.display import number_array
from maze_pl.events.pubsub import EventRecord
from maze_pl.events.statistics import EpisodeStatistics, action_keys, detached
from maze_pl.events.topics import ContinuousActionEvents, DiscreteActionEvents


class LogStatsWrapper(Wrapper):
    """Collects the environment's events and the agent's actions, and sums each episode up when it ends.

    Meant to be the outermost wrapper: it logs the actions that it is given, and ends episodes as seen from here. An
    episode that `reset` cuts off is dropped, unless `close_episode` was called before.

    Args:
        env: The environment to wrap.
        logging_prefix: Name under which whoever prints statistics of this environment does so.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = LogStatsWrapper.wrap(GymMazeEnv("CartPole-v1"))
        >>> _ = env.reset(seed=1)
        >>> while not any(env.step({"action": 1})[2:4]):
        ...     continue
        >>> [summary.reward for summary in env.drain_episode_summaries()]
        [9.0]
    """

    def __init__(self, env: StructuredEnv, logging_prefix: str | None = None) -> None:
        super().__init__(env)
        self.logging_prefix, self._pubsub = logging_prefix, env.pubsub
        self._inner = tuple(wrappers_of(env))[::-1]  # the outermost has the last word
        self._statistics = EpisodeStatistics()
        self._event_log = EpisodeEventLog() if env.get_kpi_calculator() is not None else None
        self._receivers = [one for one in (self._statistics, self._event_log) if one is not None]
        self._summaries: list[EpisodeSummary] = []
        self._env_time, self._begun = 0, False
        heads = env.action_spaces_dict.items()
        self._n_choices = {key: {head: _n_choices(part) for head, part in space.items()} for key, space in heads}
        # Actions go straight into columns, and become events only for whoever computes KPIs of them.
        self._actions: dict[StepKey, list[tuple[str, StatKey, list[Any]]]] = {
            key: [(head, name, []) for head, name in action_keys(key, space).items()] for key, space in heads
        }
        counts = env.agent_counts_dict
        self._flat_key: StepKey | None = next(iter(counts)) if list(counts.values()) == [1] else None

    def step(self, action: Action) -> StepResult:
        """Step, and record what happened."""
        env, env_time = self.env, self._env_time
        step_key = env.actor_id().step_key if self._flat_key is None else self._flat_key
        for head, _, values in self._actions[step_key]:
            value = action[head]
            values.append(value if type(value) is int else detached(value))
        log = self._event_log
        taken = {head: detached(value) for head, value in action.items()} if log else {}
        result: Any = env.step(action)
        try:
            _, _, terminated, truncated, _ = result
        except (TypeError, ValueError):
            check_step(result, env)
            raise
        for record in self._pubsub.drain():
            for receiver in self._receivers:
                receiver.receive(record)
        for head, n_choices in self._n_choices[step_key].items() if log else ():
            topic = DiscreteActionEvents if n_choices else ContinuousActionEvents
            attributes = {"step_key": step_key, "name": head, "value": taken[head]}
            attributes |= {"num_actions": n_choices} if n_choices else {}
            cast(Any, log).receive(EventRecord(topic, topic.action, attributes, env_time))
        self._begun = True
        now = env.get_env_time()
        if now != env_time:
            self._env_time = now
            self._statistics.end_step()
            while log is not None and len(log.step_event_logs) < now:  # several if some were skipped
                log.end_step()
        if terminated or truncated:
            self.close_episode()
        return result  # type: ignore[no-any-return]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; what happens from now on counts in it."""
        self._drop_episode()
        result = self.env.reset(seed=seed, options=options)
        self._env_time = self.env.get_env_time()
        return result

    def get_env_time(self) -> int:
        """Number of environment steps since the episode started."""
        return self._env_time

    def close_episode(self) -> None:
        """Sum up the running episode as if it ended here; nothing happens if it has not begun."""
        if not self._begun:
            return
        self._statistics.declare(*self._pubsub.topics)
        calculator, log = self.env.get_kpi_calculator(), self._event_log
        kpis = calculator.calculate_kpis(log, self.env.get_maze_state()) if calculator and log is not None else {}
        summary = self._statistics.end_episode(kpis, env_steps=self._env_time)
        for columns in self._actions.values():
            summary.statistics.update({name: number_array(values) for _, name, values in columns if values})
        for wrapper in self._inner:
            for name, value in wrapper.end_episode().items():
                if isinstance(value, np.ndarray):
                    summary.samples[name] = value
                else:
                    summary.statistics[name] = value
        self._summaries.append(summary)
        self._drop_episode()

    def drain_episode_summaries(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that ended since the last call, each exactly once."""
        summaries, self._summaries = self._summaries, []
        return summaries

    def estimate(self, n_samples: int, seed: int) -> None:
        """Let wrappers inside estimate their statistics; the episodes that this takes are not counted."""
        summaries = self.drain_episode_summaries()
        self.context.is_logged = False
        super().estimate(n_samples, seed)
        self.context.is_logged = True
        self._drop_episode()
        self._summaries = summaries

    def _drop_episode(self) -> None:
        self._pubsub.drain()
        for receiver in self._receivers:
            receiver.reset()
        for columns in self._actions.values():
            for _, _, values in columns:
                values.clear()
        self._begun = False


def _n_choices(space: spaces.Space[Any]) -> int:
    """Out of how many each entry of an action is chosen; 0 for a Box."""
    return 0 if isinstance(space, spaces.Box) else int(np.max(np.subtract(*bounds(space)[::-1]))) + 1
