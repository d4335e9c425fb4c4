"""Events of running episodes on a device, until the episodes end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from maze_pl.envs.arrays.event_columns import Happened, Labels
from maze_pl.envs.arrays.event_log import EventLog
from maze_pl.envs.arrays.event_values import joined_values, narrowed
from maze_pl.envs.structured_env import Array
from maze_pl.events.topics import EventDeclaration


class FiredEvents(NamedTuple):
    """Events of one kind in a rollout.

    Attributes:
        groups: Groups that occur.
        group: [E] position of the group of each event among them.
        env: [E] environment of each event, from 0 on.
        time: [E] 2 t + 1 for a start before row t, 2 t + 2 for the acts of row t.
        step: [E] environment step in the episode.
        values: Input of the step statistics -> [E, ...] its values.
    """

    groups: Sequence[Labels]
    group: Array
    env: Array
    time: Array
    step: Array
    values: Mapping[str | None, Array]

    def chosen(self, which: Array) -> FiredEvents:
        """Return some of the events."""
        values = {name: column[which] for name, column in self.values.items()}
        return FiredEvents(self.groups, self.group[which], self.env[which], self.time[which], self.step[which], values)

    @classmethod
    def joined(cls, parts: Sequence[FiredEvents]) -> FiredEvents:
        """Return the events of several parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        numbers: dict[Labels, int] = {}
        of_parts = [np.array([numbers.setdefault(one, len(numbers)) for one in part.groups]) for part in parts]
        return cls(
            list(numbers),
            np.concatenate([number[part.group] for number, part in zip(of_parts, parts, strict=True)]),
            np.concatenate([part.env for part in parts]),
            np.concatenate([part.time for part in parts]),
            np.concatenate([part.step for part in parts]),
            {name: joined_values([part.values[name] for part in parts]) for name in parts[0].values},
        )


class EndedEpisodes:
    """The episodes that ended in a rollout of T rows.

    Args:
        env: [n] their environments, ascending.
        row: [n] their last rows.
        n_rows: T.

    Attributes:
        env: As above.
        is_first: [n] whether an episode is the first one of its environment that ended in the rollout.
    """

    def __init__(self, env: Array, row: Array, n_rows: int) -> None:
        self.env = env
        self.is_first: Array = np.diff(env, prepend=-1) > 0
        self._n_times = 2 * n_rows + 2
        self._ends = self.places(env, 2 * row + 2)

    def places(self, env: Array, time: Array) -> Array:
        """Return numbers that grow with environments and times, [E]."""
        numbers: Array = env * self._n_times + time
        return numbers

    def of(self, env: Array, places: Array) -> tuple[Array, Array]:
        """Return the episode of each event, [E], and whether it ended; otherwise the episode has no meaning."""
        episode = np.searchsorted(self._ends, places)
        return episode, np.append(self.env, -1)[episode] == env


class RunningEvents:
    """Events of one kind in the running episodes of N environments, and in those that end.

    The time that a rollout takes grows with its events, and with all events of the episodes that
    end in it, but not with the earlier events of the others. If values are objects, all that are
    kept are looked at in each rollout in which an episode ends.

    Args:
        declaration: Declaration of the event.
        n_envs: Number of environments.

    Attributes:
        log: The events of the running episodes.
    """

    def __init__(self, declaration: EventDeclaration, n_envs: int) -> None:
        self._n_envs = n_envs
        self.log = EventLog(declaration, n_envs)

    def add(self, parts: Sequence[FiredEvents], ended: EndedEpisodes) -> dict[Labels, Happened]:
        """Add the events of a rollout, and remove those of the episodes that ended in it.

        Args:
            parts: The events, those of the same act in the order in which they were fired.
            ended: The episodes that ended.

        Returns:
            The events of the ended episodes by group.
        """
        later: dict[Labels, Happened] = {}
        running: FiredEvents | None = None
        if parts:
            events = FiredEvents.joined(parts)
            places = ended.places(events.env, events.time)
            if (np.diff(places) < 0).any():
                order = np.argsort(places, kind="stable")
                events, places = events.chosen(order), places[order]
            episode, is_ended = ended.of(events.env, places)
            is_first = np.append(ended.is_first, False)[episode] & is_ended
            self._append(events.chosen(is_first))
            running = events.chosen(~is_ended)
            is_later = is_ended & ~is_first
            later = _happened(events.chosen(is_later), episode[is_later])
        happened = self._end_episodes(ended)
        if running is not None:
            self._append(running)
        for labels, of_group in later.items():
            earlier = happened.get(labels)
            happened[labels] = of_group if earlier is None else Happened.joined(earlier, of_group)
        return happened

    def _append(self, events: FiredEvents) -> None:
        """Add events to the running episodes."""
        if len(events.env):
            self.log.append(events.groups, events.group, events.env, events.step, events.values)

    def _end_episodes(self, ended: EndedEpisodes) -> dict[Labels, Happened]:
        """Remove the events of the episodes that were running; return those of ended episodes by group."""
        if not len(ended.env):
            return {}
        first = np.flatnonzero(ended.is_first)
        self.log.end_episodes(ended.env[first], 0)
        happened = self.log.happened(first)
        self.log.drop_ended()
        return happened

    def load(self, state: Mapping[str, Any]) -> None:
        """Add saved events of running episodes: all of them, or a group as earlier versions saved it.

        Args:
            state: `EventLog.state_dict`, or the `labels` of a group with `env`, `step` and `values` of its events.

        Raises:
            ValueError: The values of an input are missing.
        """
        if "columns" in state:
            self.log.load_state_dict(state)
            return
        columns = {"step": state["step"], **{f"value {name}": column for name, column in state["values"].items()}}
        counts = np.bincount(state["env"], minlength=self._n_envs)
        self.log.load_rows(tuple(state["labels"]), {"counts": counts, "columns": columns})


def _happened(events: FiredEvents, episode: Array) -> dict[Labels, Happened]:
    """Return events of ended episodes, sorted by episode and time, by group."""
    happened: dict[Labels, Happened] = {}
    for number in np.unique(events.group).tolist():
        which = np.flatnonzero(events.group == number)
        values = {name: narrowed(column[which]) for name, column in events.values.items()}
        happened[events.groups[number]] = Happened.of(episode[which], events.step[which], values)
    return happened
