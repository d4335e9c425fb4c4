"""Records of episodes as states of the simulation, and reading of the files that hold them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.rendering import Renderer, figure_to_array
from maze_pl.envs.structured_env import Array
from maze_pl.events import EpisodeEventLog, EventRecord
from maze_pl.events.pubsub import select_events
from maze_pl.events.topics import BaseEnvEvents
from maze_pl.records.framing import read_records, write_record
from maze_pl.records.record_files import SpacesTrajectoryRecord


@dataclass(slots=True)
class StateRecord:
    """One decision in a simulation: an environment step, or an act if there are several actors.

    If wrappers make several environment steps with one decision, the record holds the reward and
    the events of all of them.

    Attributes:
        env_time: Number of environment steps completed before the decision.
        actor_id: The simulation's actor.
        maze_state: State before the action.
        maze_action: Action chosen in that state.
        reward: Reward of the action, as seen by the recorder.
        terminated: Whether the action terminated the episode.
        truncated: Whether the episode was truncated after the action.
        info: Further information that the step returned.
        events: Events of the step; in the first step also events of the reset.
        serializable_components: State, before the action, of the components that are recorded with
            the simulation's state.
        actor_rewards: Rewards that are attributed to the acts of the decision, in order; None if
            they are not attributed, or if the environment step was not finished.
        actor_done: Whether the actor was done with this decision; False in files of earlier
            versions.
    """

    env_time: int
    actor_id: ActorID
    maze_state: Any
    maze_action: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    events: list[EventRecord]
    serializable_components: dict[str, Any]
    actor_rewards: list[float] | None = None
    actor_done: bool = False

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        _restore(self, state[1])


@dataclass(slots=True)
class StateTrajectoryRecord:
    """An episode, or the part of it that was played, as simulation states and actions.

    `env.get_observation_and_action_dicts` converts a state and the action taken in it to
    observations and actions of the agents, with any wrappers around a simulation of the same kind.

    Attributes:
        episode_id: UUID of the episode.
        steps: Decisions, in order.
        last_maze_state: State after the last step.
        frames: Pictures (PNG) of the states, if they were requested while the episode was played.
        last_env_time: Environment steps completed at the end; None in files of earlier versions.
        is_attributed: Whether rewards are attributed to single acts; None in files of earlier
            versions, which do not hold them.
        last_actor_id: The simulation's actor after the last step; None if it was not recorded.
    """

    kind: ClassVar[str] = "states"
    episode_id: str
    steps: list[StateRecord] = field(default_factory=list)
    last_maze_state: Any = None
    frames: list[bytes] = field(default_factory=list)
    last_env_time: int | None = None
    is_attributed: bool | None = None
    last_actor_id: ActorID | None = None

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        _restore(self, state[1])

    @property
    def n_env_steps(self) -> int:
        """Environment steps completed at the end.

        In files of earlier versions, it follows from the last reward, whose step counts as
        complete.
        """
        if self.last_env_time is not None or not self.steps:
            return self.last_env_time or 0
        last = self.steps[-1].env_time
        for reward in select_events(self.steps[-1].events, BaseEnvEvents.reward):
            last = max(last, reward.env_time - self._first_time())
        return last + 1

    def _first_time(self) -> int:
        """Time at which the episode began, on the simulation's clock."""
        rewards = select_events(self.steps[0].events if self.steps else [], BaseEnvEvents.reward)
        return rewards[0].env_time if rewards else 0

    def event_log(self) -> EpisodeEventLog:
        """Return the events by environment step, even if a decision took several steps."""
        log = EpisodeEventLog()
        first = self._first_time()
        for place, step in enumerate(self.steps):
            log.advance(step.env_time if place else 0)
            for event in step.events:
                log.advance(event.env_time - first)
                log.receive(event)
        if self.steps:
            log.end_step()
        return log

    def draw(self, renderer: Renderer, step: int, **arguments: Any) -> Array:
        """Draw a step, or the state after the last step.

        Args:
            renderer: Draws it.
            step: Index of the step; `len(steps)` for the state after the last step.
            arguments: Values of the renderer's arguments.

        Returns:
            `[height, width, 3]` bytes.
        """
        if step == len(self.steps):
            return figure_to_array(renderer.render(self.last_maze_state, **arguments))
        drawn = self.steps[step]
        figure = renderer.render(drawn.maze_state, drawn.maze_action, drawn.events, **arguments)
        return figure_to_array(figure)

    def to_bytes(self) -> bytes:
        """Return the episode as a pickle, as stored in a file."""
        return cast(bytes, cloudpickle.dumps(self))

    def save(self, path: str | Path) -> None:
        """Write a file, which replaces an existing one once it is complete."""
        write_record(path, self.kind, self.to_bytes())

    @staticmethod
    def load(path: str | Path, *, trust: bool = False) -> StateTrajectoryRecord:
        """Read the first episode of a file.

        Args:
            path: The file.
            trust: Set True only if you know who wrote it: reading a pickle runs any code it holds.

        Raises:
            ValueError: The file is not trusted, is damaged, or holds something else.
        """
        return next(read_records(path, {"states": partial(_unpickled, trust)}))


def _restore(record: StateRecord | StateTrajectoryRecord, state: dict[str, Any]) -> None:
    """Set the attributes of an unpickled record, to their defaults if its version lacked them."""
    for attribute in fields(record):
        setattr(record, attribute.name, state.get(attribute.name, attribute.default))


Trajectory = StateTrajectoryRecord | SpacesTrajectoryRecord


def read_trajectories(
    path: str | Path, *, trust: bool = False, damaged: list[str] | None = None
) -> Iterator[Trajectory]:
    """Iterate over the episodes of a file of space or state records.

    Args:
        path: The file.
        trust: Whether to read pickles, which state records are; set True only if you know who wrote
            them.
        damaged: List to which messages about unreadable parts are added; if None, the first of them
            raises an exception.

    Raises:
        ValueError: The file is not trusted, is damaged, or holds something else; the message names
            it.

    Example:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/episode.states"
        >>> StateTrajectoryRecord("an episode").save(path)
        >>> [record.episode_id for record in read_trajectories(path, trust=True)]
        ['an episode']
    """
    decoders: Any = {
        "spaces": SpacesTrajectoryRecord.from_bytes,
        "states": partial(_unpickled, trust),
    }
    return read_records(path, decoders, damaged)


def _unpickled(trust: bool, body: bytearray) -> StateTrajectoryRecord:
    if not trust:
        raise ValueError("reading states runs whatever code the file holds; pass trust=True if you know who wrote it")
    record = pickle.loads(body)
    if not isinstance(record, StateTrajectoryRecord):
        raise ValueError(f"it holds a {type(record).__name__}, not a StateTrajectoryRecord")
    return record
