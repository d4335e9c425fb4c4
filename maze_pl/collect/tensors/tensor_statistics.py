"""Statistics of the episodes that are collected on a device, equal to those of `ArrayStatistics`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.collect.tensors.event_storage import StoredEvent
from maze_pl.collect.tensors.running_actions import RunningActions
from maze_pl.collect.tensors.running_events import EndedEpisodes, FiredEvents, RunningEvents
from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import EpisodeBatch, StatColumn
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_checks import refuse_infinite_kpi
from maze_pl.envs.arrays.array_events import ArrayEvent, inputs_of
from maze_pl.envs.arrays.event_columns import GroupKey, Happened, column_of, event_columns, numbered_groups
from maze_pl.envs.structured_env import Array
from maze_pl.envs.tensors.tensor_env import values_of
from maze_pl.events.episode_statistics import action_keys
from maze_pl.events.event_names import topic_name
from maze_pl.events.topics import declarations

MOST_PENDING_BYTES: Final = 2**30
"""Memory of the rollouts that may stay on a device; with more, the statistics of all are fetched."""

_SMALLEST_BLOCK: Final = 512
"""Bytes that a tensor takes on a device at least."""


@dataclass
class RolloutRecord:
    """Copies of what statistics need of a rollout with T rows and N environments, on its device.

    Attributes:
        ended: [T, N] bool, whether an episode ended with this row.
        numbers: Name -> [T, N] of the episodes: `env_steps`, `reward`, `episode_index`, and
            `kpi <name>`.
        actions: Step key -> head -> [T, N, ...] the actions as they were played, in small types.
        starts: Events of starts, [T + 1, N]: those before row t are at t.
        acts: Events of acts, [T, N].
        restarted: Whether all running episodes were dropped before the rollout.
        check: Raises an error if data of the rollout is invalid.
    """

    ended: Tensor
    numbers: Mapping[str, Tensor]
    actions: Mapping[StepKey, Mapping[str, Tensor]]
    starts: Sequence[StoredEvent]
    acts: Sequence[StoredEvent]
    restarted: bool
    check: Callable[[], None]

    @property
    def n_bytes(self) -> int:
        """Memory that the tensors take."""
        tensors = [self.ended, *self.numbers.values()]
        for heads in self.actions.values():
            tensors += heads.values()
        for event in (*self.starts, *self.acts):
            tensors += event.tensors().values()
        return sum(max(tensor.nbytes, _SMALLEST_BLOCK) for tensor in tensors)


class TensorStatistics:
    """Statistics of the running episodes of N environments on a device, and of those that ended.

    What a rollout holds stays on the device until a summary is read, usually at the end of an
    epoch. Rollouts are fetched in their order, as the episodes that run at the end of one go on in
    the next.

    Args:
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments.
        first_env_index: Index of the first environment across all ranks and workers.
        topics: Topics of the events that the environments fire.
    """

    def __init__(self, spec: Spec, n_envs: int, first_env_index: int, topics: Sequence[type]) -> None:
        self._spec = spec
        self._n_envs = n_envs
        self._first_env_index = first_env_index
        self._topics = topics
        self._names = {key: action_keys(key, step.action_space) for key, step in spec.steps.items()}
        self._waiting: deque[tuple[RolloutRecord, Callable[[EpisodeBatch], None]]] = deque()
        self._n_waiting_bytes = 0
        self._drop_running()

    def _drop_running(self) -> None:
        """Forget the running episodes."""
        self._actions = RunningActions(self._spec, self._n_envs)
        self._events: dict[tuple[type, str], RunningEvents] = {}

    def add(self, record: RolloutRecord, receive: Callable[[EpisodeBatch], None]) -> None:
        """Add a rollout.

        Args:
            record: The rollout.
            receive: Called with its episodes when they are fetched, sorted by environment and
                episode.
        """
        self._waiting.append((record, receive))
        self._n_waiting_bytes += record.n_bytes
        if self._n_waiting_bytes > MOST_PENDING_BYTES:
            self._fetch_all()

    def _fetch_all(self) -> None:
        """Fetch the episodes of all rollouts."""
        while self._waiting:
            self.fetch_next()

    def fetch_next(self) -> None:
        """Fetch the episodes of the first rollout that was not fetched yet.

        Raises:
            ValueError: Data of the rollout is invalid.
            StatisticsError: A KPI is infinite.
        """
        record, receive = self._waiting[0]
        record.check()
        places = record.ended.T.nonzero(as_tuple=True)
        env, row = (index.cpu().numpy() for index in places)
        columns = {name: tensor.T[places].cpu().numpy() for name, tensor in record.numbers.items()}
        kpis = {}
        for name, values in columns.items():
            if name.startswith("kpi "):
                kpi = name.removeprefix("kpi ")
                refuse_infinite_kpi(kpi, values, env + self._first_env_index)
                kpis[kpi] = values.astype(np.float64)
        for name in ("env_steps", "episode_index"):
            columns[name] = columns[name].astype(np.int64)
        self._waiting.popleft()
        self._n_waiting_bytes -= record.n_bytes
        if record.restarted:
            self._drop_running()
        receive(
            EpisodeBatch(
                env + self._first_env_index,
                columns["episode_index"],
                columns["env_steps"],
                columns["reward"],
                kpis,
                self._event_statistics(record, env, row, columns["env_steps"])
                | self._action_statistics(record, env, row),
            )
        )

    def _action_statistics(self, record: RolloutRecord, env: Array, row: Array) -> dict[StatKey, StatColumn]:
        """Return the actions of the ended episodes, and keep those of the running ones.

        Args:
            record: The rollout.
            env: [n] environments of the ended episodes, ascending.
            row: [n] their last rows.
        """
        ended, counts = self._actions.add(record.actions, len(record.ended), env, row)
        statistics: dict[StatKey, StatColumn] = {}
        for key, heads in ended.items():
            for head, values in heads.items():
                statistics[self._names[key][head]] = StatColumn(np.arange(len(env)), values, counts)
        return statistics

    # --------------------------------------------------------------------------------------------- events

    def _event_statistics(
        self, record: RolloutRecord, env: Array, row: Array, n_steps: Array
    ) -> dict[StatKey, StatColumn]:
        """Return the statistics of the events of the ended episodes; keep events of the running ones.

        Args:
            record: The rollout.
            env: [n] environments of the ended episodes, ascending.
            row: [n] their last rows.
            n_steps: [n] environment steps of the episodes.
        """
        fired: dict[tuple[type, str], list[FiredEvents]] = {}
        env_steps = record.numbers["env_steps"]
        for stored, is_start in _with_marks(record):
            declaration = stored.declaration
            events = _events_of(stored, None if is_start else env_steps)
            if len(events.env):
                fired.setdefault((declaration.topic, declaration.name), []).append(events)
        for key in fired:
            if key not in self._events:
                self._events[key] = RunningEvents(declarations(key[0])[key[1]], self._n_envs)
        ended = EndedEpisodes(env, row, len(record.ended))
        happened: dict[GroupKey, Happened] = {}
        for (topic, name), running in self._events.items():
            for labels, of_group in running.add(fired.get((topic, name), []), ended).items():
                happened[topic, name, labels] = of_group
        if not len(env):
            return {}
        return event_columns(self._topics, happened, n_steps)

    # ---------------------------------------------------------------------------------------- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics of the running episodes, after fetching all rollouts.

        They consist of tensors and primitives only.
        """
        self._fetch_all()
        events = []
        for (topic, name), running in self._events.items():
            if len(running.log):
                state = {"topic": topic_name(topic), "event": name, **running.log.state_dict()}
                events.append(to_tensors(state))
        actions, n_acts = self._actions.state()
        return {"n_acts": torch.from_numpy(n_acts), "actions": dict(actions), "events": events}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`.

        Raises:
            ValueError: An event of the state is not declared by any of the topics, or lacks values.
        """
        self._waiting.clear()
        self._n_waiting_bytes = 0
        self._drop_running()
        self._actions.load(state["actions"], state["n_acts"].numpy())
        by_name = {topic_name(topic): topic for topic in self._topics}
        for saved in state["events"]:
            topic = by_name.get(saved["topic"])
            if topic is None or saved["event"] not in declarations(topic):
                fault = f"the saved statistics have the event {saved['event']!r} of {saved['topic']}"
                raise ValueError(f"{fault}, which the environment does not declare; resume with the code that saved it")
            key = (topic, saved["event"])
            if key not in self._events:
                self._events[key] = RunningEvents(declarations(topic)[saved["event"]], self._n_envs)
            self._events[key].load(from_tensors(saved))


def _with_marks(record: RolloutRecord) -> Iterable[tuple[StoredEvent, bool]]:
    """Yield the events of a rollout, and whether they are those of starts."""
    yield from ((stored, True) for stored in record.starts)
    yield from ((stored, False) for stored in record.acts)


def _events_of(stored: StoredEvent, env_steps: Tensor | None) -> FiredEvents:
    """Return the events that were fired in a rollout, sorted by environment and time.

    Args:
        stored: The event in all rows and environments.
        env_steps: [T, N] environment steps of each episode, the one in the row included; None if
            the events belong to the first step of their episodes.
    """
    env, row = stored.fired.T.nonzero(as_tuple=True)
    declaration = stored.declaration
    values = {name: values_of(value, (row, env)) for name, value in stored.attributes.items()}
    event = ArrayEvent(declaration, env.cpu().numpy(), values)
    rows = row.cpu().numpy()
    time, step = 2 * rows + 1, np.zeros(len(rows), np.int64)
    if env_steps is not None:
        time = time + 1
        step += env_steps[row, env].cpu().numpy() - 1
    groups, group = numbered_groups(event)
    columns = {name: column_of(event, name) for name in inputs_of(declaration)}
    return FiredEvents(groups, group, event.which, time, step, columns)
