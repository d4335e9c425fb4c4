"""Statistics of the episodes of array environments, as `LogStatsWrapper` makes them of single ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import EpisodeBatch, StatColumn
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_events import ArrayEvent
from maze_pl.envs.arrays.event_columns import (
    GroupKey,
    Happened,
    column_of,
    event_columns,
    inputs_of,
    numbered_groups,
)
from maze_pl.envs.arrays.event_log import EventLog
from maze_pl.envs.arrays.value_log import ValueLog
from maze_pl.envs.structured_env import Array
from maze_pl.events.episode_statistics import action_keys
from maze_pl.events.event_names import topic_name
from maze_pl.events.topics import declarations


class ArrayStatistics:
    """Statistics of the running episodes of N environments, and of those that ended.

    Args:
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments.
        first_env_index: Index of the first environment across all ranks and workers.

    Attributes:
        episode: [N] index of the running episode of each environment.
        n_steps: [N] environment steps that are complete in it.
    """

    def __init__(self, spec: Spec, n_envs: int, first_env_index: int) -> None:
        self._n_envs = n_envs
        self._first_env_index = first_env_index
        self.episode = np.zeros(n_envs, np.int64)
        self.n_steps = np.zeros(n_envs, np.int64)
        self._step_reward = np.zeros(n_envs)
        self._reward = np.zeros(n_envs)
        self._actions: dict[StepKey, ValueLog] = {}
        self._action_keys: dict[StepKey, dict[str, StatKey]] = {}
        self._largest_actions: dict[StepKey, dict[str, int]] = {}  # that fit into logs with smaller dtypes
        for key, step in spec.steps.items():
            heads = step.action_space.spaces.items()
            columns = {head: (tuple(space.shape or ()), _smallest_dtype(space)) for head, space in heads}
            self._actions[key] = ValueLog(n_envs, columns)
            self._largest_actions[key] = {}
            for head, (_, dtype) in columns.items():
                if dtype != step.action_space[head].dtype:
                    self._largest_actions[key][head] = int(np.iinfo(dtype).max)
            self._action_keys[key] = action_keys(key, step.action_space)
        self._events: dict[tuple[type, str], EventLog] = {}
        self._ended: list[dict[str, Array]] = []
        self._n_ended = 0
        self._further: dict[StatKey, list[StatColumn]] = {}  # of the ended episodes, by their positions

    def note_actions(self, key: StepKey, which: Array | slice, actions: Mapping[str, Array]) -> None:
        """Record actions.

        Args:
            key: Step key of the actors.
            which: Their environments.
            actions: Head -> [N, ...].
        """
        log = self._actions[key]
        chosen = {head: values[which] for head, values in actions.items()}
        for head, largest in self._largest_actions[key].items():
            values = chosen[head]
            if values.size and values.view(np.uint64).max() > largest:  # not in its space; negative ones become large
                log.convert(head, values.dtype)
        log.append(which, chosen)

    def receive(self, events: Iterable[ArrayEvent]) -> None:
        """Record events, in the current step of each environment."""
        for event in events:
            declaration = event.declaration
            key = (declaration.topic, declaration.name)
            if key not in self._events:
                self._events[key] = EventLog(declaration, self._n_envs)
            groups, group = numbered_groups(event)
            values = {name: column_of(event, name) for name in inputs_of(declaration)}
            self._events[key].append(groups, group, event.which, self.n_steps[event.which], values)

    def note_rewards(self, which: Array | slice, reward: Array, advanced: Array | None) -> None:
        """Record rewards of acts, and complete environment steps.

        Args:
            which: The environments.
            reward: [N] rewards.
            advanced: [N] environment steps that the acts completed; None if each completed one.
        """
        if advanced is None:
            self._reward[which] += reward[which]
            self.n_steps[which] += 1
            return
        envs = np.arange(self._n_envs)[which]
        steps = advanced[envs]
        # The event of this reward belongs to the last of several steps, those of earlier acts to the first one.
        jumping = envs[steps > 1]
        self._reward[jumping] += self._step_reward[jumping]
        self._step_reward[jumping] = 0.0
        self._step_reward[which] += reward[which]
        completing = envs[steps > 0]
        self._reward[completing] += self._step_reward[completing]
        self._step_reward[completing] = 0.0
        self.n_steps[completing] += advanced[completing]

    def end_episodes(
        self,
        envs: Array,
        env_time: Array,
        kpis: Mapping[str, Array],
        has_advanced: Array | None,
        further: Mapping[StatKey, StatColumn],
    ) -> None:
        """Sum up the running episodes of some environments; the next ones begin.

        Args:
            envs: [n] the environments.
            env_time: [n] length of the episodes in environment steps.
            kpis: KPI -> [n] float64, NaN where an episode has no value.
            has_advanced: [n] bool, whether the last act completed an environment step; None if every act
                does.
            further: Statistics of wrappers, by positions in `envs`.
        """
        for key, column in further.items():
            moved = replace(column, episodes=column.episodes + self._n_ended)
            self._further.setdefault(key, []).append(moved)
        reward, n_steps = self._reward[envs], self.n_steps[envs]
        if has_advanced is not None:
            reward += np.where(has_advanced, 0.0, self._step_reward[envs])
            n_steps += ~has_advanced
            self._step_reward[envs] = 0.0
        self._ended.append(
            {
                "env_index": envs + self._first_env_index,
                "episode_index": self.episode[envs],
                "env_steps": env_time,
                "reward": reward,
                "n_steps": n_steps,
                **{f"kpi {name}": np.asarray(values, np.float64) for name, values in kpis.items()},
            }
        )
        for events in self._events.values():
            events.end_episodes(envs, self._n_ended)
        for log in self._actions.values():
            log.end_episodes(envs)
        self._n_ended += len(envs)
        self.n_steps[envs] = 0
        self._reward[envs] = 0.0

    def drop_running(self, envs: Array) -> None:
        """Forget the running episodes of environments, which start others."""
        self.n_steps[envs] = 0
        self._reward[envs] = 0.0
        self._step_reward[envs] = 0.0
        for log in self._actions.values():
            log.starts[envs] = log.lengths[envs]
        for events in self._events.values():
            events.drop_running(envs)

    def drain(self, topics: Iterable[type]) -> EpisodeBatch:
        """Return the episodes that ended since the last call, sorted by environment and episode.

        Args:
            topics: Topics whose statistics each episode has, also if none of their events happened.
        """
        if not self._ended:
            none = np.zeros(0, np.int64)
            return EpisodeBatch(none, none, none, np.zeros(0))
        numbers = _joined(self._ended)
        order = _order_of(numbers["env_index"] - self._first_env_index, numbers["episode_index"], self._n_envs)
        numbers = {name: values[order] for name, values in numbers.items()}
        for log in self._actions.values():
            log.sort_ended(order)
        n_steps = numbers.pop("n_steps")
        kpis = {name.removeprefix("kpi "): values for name, values in numbers.items() if name.startswith("kpi ")}
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        statistics = event_columns(topics, self._happened(rank), n_steps)
        statistics |= self._action_columns()
        samples: dict[StatKey, StatColumn] = {}
        for key, parts in self._further.items():
            numbers_only = [part for part in parts if part.counts is None]
            sampled = [part for part in parts if part.counts is not None]
            if numbers_only:
                statistics[key] = StatColumn.joined(numbers_only).ordered(rank, len(rank))
            if sampled:
                samples[key] = StatColumn.joined(sampled).ordered(rank, len(rank))
        batch = EpisodeBatch(
            env_index=numbers["env_index"],
            episode_index=numbers["episode_index"],
            env_steps=numbers["env_steps"],
            reward=numbers["reward"],
            kpis=kpis,
            statistics=statistics,
            samples=samples,
        )
        self._ended = []
        self._n_ended = 0
        self._further = {}
        for log in self._actions.values():
            log.drop_ended()
        for events in self._events.values():
            events.drop_ended()
        return batch

    def _action_columns(self) -> dict[StatKey, StatColumn]:
        """Actions of the ended episodes."""
        statistics: dict[StatKey, StatColumn] = {}
        for key, log in self._actions.items():
            ended = log.ended()
            having = np.flatnonzero(ended.counts)
            if not len(having):
                continue
            for head, name in self._action_keys[key].items():
                statistics[name] = StatColumn(having, log.values_of(head, ended), ended.counts[having])
        return statistics

    def _happened(self, rank: Array) -> dict[GroupKey, Happened]:
        """Return the events of the ended episodes by group.

        Args:
            rank: [R] position of each ended episode in the result, in the order in which they have ended.
        """
        happened: dict[GroupKey, Happened] = {}
        for (topic, event), log in self._events.items():
            for labels, of_group in log.happened(rank).items():
                happened[topic, event, labels] = of_group
        return happened

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics of the running episodes; call it after `drain`."""
        events = []
        for (topic, event), log in self._events.items():
            if len(log):
                events.append({"topic": topic_name(topic), "event": event, **log.state_dict()})
        return {
            "n_steps": self.n_steps.copy(),
            "step_reward": self._step_reward.copy(),
            "reward": self._reward.copy(),
            "actions": {key: log.state_dict() for key, log in self._actions.items()},
            "events": events,
        }

    def load_state_dict(self, state: Mapping[str, Any], topics: Iterable[type]) -> None:
        """Restore the result of `state_dict`.

        Args:
            state: The state.
            topics: The topics of the environment.

        Raises:
            ValueError: An event of the state is not declared by any of the topics, or lacks values.
        """
        self.n_steps[...] = state["n_steps"]
        self._step_reward[...] = state["step_reward"]
        self._reward[...] = state["reward"]
        for key, log_state in state["actions"].items():
            self._actions[key] = ValueLog.from_state(self._n_envs, log_state)
        by_name = {topic_name(topic): topic for topic in topics}
        self._events = {}
        for saved in state["events"]:
            topic = by_name.get(saved["topic"])
            if topic is None or saved["event"] not in declarations(topic):
                fault = f"the saved statistics have the event {saved['event']!r} of {saved['topic']}"
                raise ValueError(f"{fault}, which the environment does not declare; resume with the code that saved it")
            declaration = declarations(topic)[saved["event"]]
            log = self._events.setdefault((topic, declaration.name), EventLog(declaration, self._n_envs))
            if "log" in saved:  # one group, as version 0.2 saved it
                log.load_rows(tuple(saved["labels"]), saved["log"])
            else:
                log.load_state_dict(saved)


def _order_of(env: Array, episode: Array, n_envs: int) -> Array:
    """Positions of episodes, sorted by environment and episode.

    Args:
        env: [n] environments, from 0 on.
        episode: [n] episodes, which nearly always grow with the position.
        n_envs: Number of environments.
    """
    if n_envs <= np.iinfo(np.uint16).max:  # sorted in linear time
        order = np.argsort(env.astype(np.uint16), kind="stable")
        other_env = np.diff(env[order]) > 0
        if (other_env | (np.diff(episode[order]) > 0)).all():
            return order
    return np.lexsort((episode, env))


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Join the numbers of episodes by name; NaN for those of a part that does not have them."""
    names: dict[str, None] = {}  # in the order in which they occur
    for part in parts:
        names |= dict.fromkeys(part)
    joined = {}
    for name in names:
        columns = [part[name] if name in part else np.full(len(part["reward"]), np.nan) for part in parts]
        joined[name] = np.concatenate(columns)
    return joined


def _smallest_dtype(space: spaces.Space[Any]) -> np.dtype:
    """Return the smallest dtype that holds the actions of a space, since logs of actions are long."""
    dtype = np.dtype(space.dtype)
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start + space.n - 1)
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = int(space.start.min()), int((space.start + space.nvec - 1).max())
    else:
        return dtype
    return np.min_scalar_type(high) if low >= 0 and dtype.itemsize == 8 else dtype
