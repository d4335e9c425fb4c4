"""Records of episodes in the simulation's own terms: what viewers, files and data sets of episodes are made of."""

from __future__ import annotations

import io
import pickle
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.core.actor_id import ActorID
from maze_pl.core.output_folder import output_folder, write_file
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

    def save(self, path: str | Path) -> None:
        """Write a file, as a pickle, which replaces a former one once it is complete."""
        write_file(path, cloudpickle.dumps(self))

    @staticmethod
    def load(path: str | Path, *, trust: bool = False) -> StateTrajectoryRecord:
        """Read a file that `save` wrote.

        Args:
            path: The file.
            trust: Say True if you know who wrote it: reading a pickle runs whatever code it holds.

        Raises:
            ValueError: You do not trust it, or it holds something else.
        """
        if not trust:
            raise ValueError(f"reading the pickle {path} runs whatever code it holds; say trust=True if you trust it")
        record = pickle.loads(Path(path).read_bytes())
        if not isinstance(record, StateTrajectoryRecord):
            raise ValueError(f"{path} holds a {type(record).__name__}, not a StateTrajectoryRecord")
        return record


class TrajectoryWriter(ABC):
    """Takes recorded episodes; configurations name it by its class path.

    Attributes:
        needs_frames: Whether episodes are to have pictures of each state.
    """

    needs_frames: ClassVar[bool] = False

    @abstractmethod
    def write(self, record: StateTrajectoryRecord) -> None:
        """Take an episode that has ended, or was given up after at least one step."""


class TrajectoryFiles(TrajectoryWriter):
    """Writes a file for each episode, `<episode id>.pkl`; see `StateTrajectoryRecord.load`.

    Args:
        folder: Where they lie; relative to the run directory in `maze-pl fit`.
    """

    def __init__(self, folder: str = "trajectories") -> None:
        self.folder = output_folder(folder)

    def write(self, record: StateTrajectoryRecord) -> None:
        """Write the file."""
        record.save(self.folder / f"{record.episode_id}.pkl")


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

    def write(self, record: StateTrajectoryRecord) -> None:
        """Write the picture."""
        from PIL import Image

        frames = (Image.open(io.BytesIO(frame)) for frame in record.frames)
        save_gif(self.folder / f"{record.episode_id}.gif", frames, self.frames_per_second)
