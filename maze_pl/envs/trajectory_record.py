"""Records of episodes in the simulation's own terms: what viewers, files and data sets of episodes are made of."""

from __future__ import annotations

import io
import pickle
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.core.actor_id import ActorID
from maze_pl.core.output_folder import output_folder
from maze_pl.core.record_files import append_record, read_records, write_record
from maze_pl.core.spaces_record import SpacesTrajectoryRecord
from maze_pl.envs.rendering import Renderer, figure_to_array, save_gif
from maze_pl.envs.structured_env import Array
from maze_pl.events.kpi import EpisodeEventLog
from maze_pl.events.pubsub import EventRecord


@dataclass(slots=True)
class StateRecord:
    """One step of a simulation: an environment step of a flat one, an act of one with several actors.

    Attributes:
        env_time: Environment steps completed before.
        actor_id: The simulation's actor.
        maze_state: State before the action.
        maze_action: Action that was taken in it.
        reward: What came of it, as seen by whoever recorded it.
        terminated: Whether it ended the episode.
        truncated: Whether the episode was cut off after it.
        info: Further information that the step returned.
        events: What happened; in the first step also during the reset.
        serializable_components: State of the components that are recorded together with the simulation's, before.
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


@dataclass(slots=True)
class StateTrajectoryRecord:
    """An episode, or the part of it that was played.

    A state and the action taken in it become what agents saw and did by `env.get_observation_and_action_dicts`, with
    any wrappers around a simulation of the same kind.

    Attributes:
        episode_id: UUID of the episode.
        steps: What happened, in order.
        last_maze_state: State after the last step.
        frames: Pictures (PNG) of the states, if somebody asked for them while the episode was played.
    """

    kind: ClassVar[str] = "states"
    episode_id: str
    steps: list[StateRecord] = field(default_factory=list)
    last_maze_state: Any = None
    frames: list[bytes] = field(default_factory=list)

    def event_log(self) -> EpisodeEventLog:
        """The events by environment step."""
        log = EpisodeEventLog()
        for place, step in enumerate(self.steps):
            for event in step.events:
                log.receive(event)
            if place + 1 == len(self.steps) or self.steps[place + 1].env_time != step.env_time:
                log.end_step()
        return log

    def draw(self, renderer: Renderer, step: int, **arguments: Any) -> Array:
        """A picture of a step, or of the state after the last one.

        Args:
            renderer: Draws it.
            step: Place of the step, up to `len(steps)`.
            arguments: Arguments of the renderer's own.

        Returns:
            `[height, width, 3]` bytes.
        """
        if step == len(self.steps):
            return figure_to_array(renderer.render(self.last_maze_state, **arguments))
        one = self.steps[step]
        return figure_to_array(renderer.render(one.maze_state, one.maze_action, one.events, **arguments))

    def to_bytes(self) -> bytes:
        """The episode as it is in a file: as a pickle."""
        return cast(bytes, cloudpickle.dumps(self))

    def save(self, path: str | Path) -> None:
        """Write a file, which replaces a former one once it is complete."""
        write_record(path, self.kind, self.to_bytes())

    @staticmethod
    def load(path: str | Path, *, trust: bool = False) -> StateTrajectoryRecord:
        """Read the first episode of a file.

        Args:
            path: The file.
            trust: Say True if you know who wrote it: reading a pickle runs whatever code it holds.

        Raises:
            ValueError: You do not trust it, or it is damaged, or holds something else.
        """
        return next(read_records(path, {"states": partial(_unpickled, trust)}))


Trajectory = StateTrajectoryRecord | SpacesTrajectoryRecord


def read_trajectories(
    path: str | Path, *, trust: bool = False, damaged: list[str] | None = None
) -> Iterator[Trajectory]:
    """The episodes of a file of either kind, one after the other.

    Args:
        path: The file.
        trust: Whether pickles are read, as states are; say True if you know who wrote them.
        damaged: Where messages about what cannot be read go; the first of them is an exception if None.

    Raises:
        ValueError: You do not trust it, or it is damaged, or holds something else; the message names it.

    Example:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/episode.states"
        >>> StateTrajectoryRecord("an episode").save(path)
        >>> [record.episode_id for record in read_trajectories(path, trust=True)]
        ['an episode']
    """
    decoders: Any = {"spaces": SpacesTrajectoryRecord.from_bytes, "states": partial(_unpickled, trust)}
    return read_records(path, decoders, damaged)


def _unpickled(trust: bool, body: bytearray) -> StateTrajectoryRecord:
    if not trust:
        raise ValueError("reading states runs whatever code the file holds; say trust=True if you know who wrote it")
    record = pickle.loads(body)
    if not isinstance(record, StateTrajectoryRecord):
        raise ValueError(f"it holds a {type(record).__name__}, not a StateTrajectoryRecord")
    return record


class TrajectoryWriter(ABC):
    """Takes recorded episodes; configurations name it by its class path.

    Attributes:
        needs_frames: Whether episodes are to have pictures of each state.
    """

    needs_frames: ClassVar[bool] = False

    @abstractmethod
    def write(self, record: Trajectory) -> None:
        """Take an episode that has ended, or was given up after at least one step."""


class TrajectoryFiles(TrajectoryWriter):
    """Writes episodes to files, of the kind that they are recorded in; see `read_trajectories`.

    Space records go to `<episode id>.spaces`, state records to `<episode id>.states`. With a name, all episodes go to
    `<name>.spaces` and `<name>.states`, to which each is added as it ends: what was written stays readable whenever
    the process is killed or the disk is full.

    Args:
        folder: Where they lie; relative to the run directory in `maze-pl fit`.
        name: Name of one file for all episodes; None for a file each.
    """

    def __init__(self, folder: str = "trajectories", name: str | None = None) -> None:
        self.folder, self.name = output_folder(folder), name

    def write(self, record: Trajectory) -> None:
        """Write the file, or add to it."""
        name = self.name or re.sub(r"[^\w.-]", "_", record.episode_id)
        write = append_record if self.name else write_record
        write(self.folder / f"{name}.{record.kind}", record.kind, record.to_bytes())


class GifFiles(TrajectoryWriter):
    """Writes an animated picture of each episode, `<episode id>.gif`.

    Args:
        folder: Where they lie; relative to the run directory in `maze-pl fit`.
        frames_per_second: How many states are shown in a second.

    Raises:
        ValueError: That is more than a gif can show, or nothing at all.
    """

    needs_frames = True

    def __init__(self, folder: str = "renderings", frames_per_second: float = 20.0) -> None:
        if not 0 < frames_per_second <= 50:
            raise ValueError(f"frames_per_second={frames_per_second} must be above 0 and at most 50, as gifs can show")
        self.folder, self.frames_per_second = output_folder(folder), frames_per_second

    def write(self, record: Any) -> None:
        """Write the picture."""
        from PIL import Image

        frames = (Image.open(io.BytesIO(frame)) for frame in record.frames)
        save_gif(self.folder / f"{record.episode_id}.gif", frames, self.frames_per_second)
