"""Records of episodes as simulation states, for viewers, files and data sets, and their rendering.

Matplotlib and Pillow, which comes with it, are optional and imported when something is drawn.
"""

from __future__ import annotations

import io
import pickle
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.structured_env import Array
from maze_pl.events import EpisodeEventLog, EventRecord
from maze_pl.events.display import require_matplotlib
from maze_pl.events.pubsub import Event, select_events
from maze_pl.events.topics import BaseEnvEvents, declarations
from maze_pl.records.record_files import SpacesTrajectoryRecord, append_record, file_content, read_records, write_record
from maze_pl.system.atomic_files import output_folder, write_file
from maze_pl.system.deferred_files import deferred_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class OptionsArrayArg:
    """An argument of a renderer that is one of several options.

    Args:
        name: Name of the argument.
        title: Label in a viewer.
        options: Allowed values; the first is the default.
    """

    name: str
    title: str
    options: Sequence[Any]


class IntRangeArg(OptionsArrayArg):
    """An argument of a renderer that is an integer in a range.

    Args:
        name: Name of the argument.
        title: Label in a viewer.
        min_val: Smallest value, which is the default.
        max_val: Largest value.
    """

    def __init__(self, name: str, title: str, min_val: int, max_val: int) -> None:
        super().__init__(name, title, range(min_val, max_val + 1))


class Renderer(ABC):
    """Draws the states of one kind of simulation."""

    @abstractmethod
    def render(
        self,
        maze_state: Any,
        maze_action: Any = None,
        events: Sequence[EventRecord] = (),
        **arguments: Any,
    ) -> Figure:
        """Draw one step.

        The figure must depend on the arguments alone, so that recorded steps look like live ones.

        Args:
            maze_state: State before the action.
            maze_action: Action taken in that state, if any.
            events: Events of the step.
            arguments: Values of the renderer's arguments, as chosen in the viewer.

        Returns:
            A new figure outside pyplot's global state; the caller owns it.
        """

    def arguments(self) -> Sequence[OptionsArrayArg]:
        """Return the arguments that a viewer may choose besides the step; none by default."""
        return ()


def figure_to_array(figure: Figure) -> Array:
    """Return the pixels of a figure, `[height, width, 3]` bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def save_gif(path: str | Path, frames: Iterable[Any], frames_per_second: float = 20.0) -> None:
    """Write an animated GIF; do nothing if there are no frames.

    Consecutive equal frames are merged into one that lasts longer. While writing, memory holds one
    byte for each pixel of all frames.

    Args:
        path: The file, which is replaced once everything is written.
        frames: Arrays `[height, width, 3]` of bytes, or Pillow images, all of the same size.
        frames_per_second: Frame rate, at most 50.

    Raises:
        ImportError: Pillow, which comes with matplotlib, is missing.
    """
    require_matplotlib("a gif")
    from PIL import Image

    images = (Image.fromarray(frame) if isinstance(frame, np.ndarray) else frame for frame in frames)
    first = next(images, None)
    if first is not None:
        film = io.BytesIO()
        first.save(
            film,
            "GIF",
            save_all=True,
            append_images=images,
            duration=1000 / frames_per_second,
            loop=0,
        )
        write_file(path, film.getvalue())


def draw_event_statistics(log: EpisodeEventLog, events: Event | Iterable[Event], cumulative: bool = False) -> Figure:
    """Plot the step statistics of events over an episode, one event below the other.

    Args:
        log: Events of the episode, for example from `StateTrajectoryRecord.event_log`.
        events: Events to plot, such as `BaseEnvEvents.reward`; all groups of an event together.
        cumulative: Whether to accumulate the values over time.
    """
    require_matplotlib("a picture of events")
    from matplotlib.figure import Figure

    chosen = [events] if callable(events) else list(events)
    figure = Figure(figsize=(8, 2.5 * len(chosen)), layout="constrained")
    for axes, event in zip(figure.subplots(len(chosen), squeeze=False).flat, chosen, strict=True):
        steps = [step.query_events(event) for step in log.step_event_logs]
        topics = {record.topic: None for step in steps for record in step}
        step_statistics = []
        for topic in topics:
            step_statistics += declarations(topic)[event.__name__].step
        for one in step_statistics:
            reduce: Callable[[Any], Any] = one.reduce or np.mean  # usually one value per step
            values = []
            for step in steps:
                column = [record.attributes.get(str(one.input_name)) for record in step]
                values.append(reduce(column) if column else 0.0)
            axes.plot(
                np.cumsum(values) if cumulative else values,
                label=one.output_name or reduce.__name__,
            )
            axes.legend()
        axes.set(
            title=event.__qualname__,
            xlabel="environment step",
            ylabel="sum so far" if cumulative else "per step",
        )
    return figure


def browse(record: StateTrajectoryRecord, renderer: Renderer) -> Figure:
    """Step through a recorded episode with the arrow keys or a slider.

    This works in a window, and in a notebook after `%matplotlib widget`, which needs the package
    ipympl.

    Args:
        record: The episode.
        renderer: Draws the steps; each of its arguments also gets a slider.

    Returns:
        The figure; `matplotlib.pyplot.show()` opens its window. Keep a reference to it, as its
        widgets live no longer than the figure.
    """
    require_matplotlib("looking through an episode")
    from matplotlib import pyplot
    from matplotlib.widgets import Slider

    choices = [IntRangeArg("step", "step", 0, len(record.steps)), *renderer.arguments()]
    heights = [20, *[1] * len(choices)]
    figure, (axes, *slots) = pyplot.subplots(len(heights), height_ratios=heights, figsize=(8, 8), layout="constrained")
    places = zip(slots, choices, strict=True)
    sliders = [Slider(slot, choice.title, 0, len(choice.options) - 1, valstep=1) for slot, choice in places]

    def show(_: Any = None) -> None:
        chosen = {}
        for choice, slider in zip(choices, sliders, strict=True):
            chosen[choice.name] = choice.options[int(slider.val)]
            slider.valtext.set_text(str(chosen[choice.name]))
        axes.clear()
        axes.set_axis_off()
        axes.imshow(record.draw(renderer, chosen.pop("step"), **chosen))
        figure.canvas.draw_idle()

    def press(event: Any) -> None:
        if move := {"left": -1, "right": 1}.get(event.key):
            sliders[0].set_val(min(max(sliders[0].val + move, 0), len(record.steps)))

    for slider in sliders:
        slider.on_changed(show)
    figure.canvas.mpl_connect("key_press_event", press)
    show()
    return figure


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
    """An episode, or the part of it that was played, as simulation states and actions.

    `env.get_observation_and_action_dicts` converts a state and the action taken in it to
    observations and actions of the agents, with any wrappers around a simulation of the same kind.

    Attributes:
        episode_id: UUID of the episode.
        steps: Decisions, in order.
        last_maze_state: State after the last step.
        frames: Pictures (PNG) of the states, if they were requested while the episode was played.
    """

    kind: ClassVar[str] = "states"
    episode_id: str
    steps: list[StateRecord] = field(default_factory=list)
    last_maze_state: Any = None
    frames: list[bytes] = field(default_factory=list)

    def event_log(self) -> EpisodeEventLog:
        """Return the events by environment step, even if a decision took several steps."""
        log = EpisodeEventLog()
        rewards = select_events(self.steps[0].events if self.steps else [], BaseEnvEvents.reward)
        first = rewards[0].env_time if rewards else 0  # on the simulation's clock
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
        one = self.steps[step]
        return figure_to_array(renderer.render(one.maze_state, one.maze_action, one.events, **arguments))

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
        raise ValueError("reading states runs whatever code the file holds; say trust=True if you know who wrote it")
    record = pickle.loads(body)
    if not isinstance(record, StateTrajectoryRecord):
        raise ValueError(f"it holds a {type(record).__name__}, not a StateTrajectoryRecord")
    return record


class TrajectoryWriter(ABC):
    """Receives recorded episodes; configurations name it by its class path.

    Attributes:
        needs_frames: Whether episodes must include a picture of each state.
    """

    needs_frames: ClassVar[bool] = False

    @abstractmethod
    def write(self, record: Trajectory) -> None:
        """Receive an episode that has ended, or was abandoned after at least one step."""

    def close(self) -> None:  # noqa: B027  # optional hook
        """Complete what was written; more episodes may follow. Does nothing by default."""


class TrajectoryFiles(TrajectoryWriter):
    """Writes episodes to files of their kind of record; see `read_trajectories`.

    Space records go to `<episode id>.spaces`, state records to `<episode id>.states`. With a name,
    all episodes are appended, as they end, to `<name>.spaces` and `<name>.states`; what was written
    stays readable if the process is killed or the disk is full.

    A file of one episode is renamed in the background, as soon as its content is on the disk. All
    of them are there after `close`, and when this process exits.

    Args:
        folder: Folder of the files; relative to the run directory in `maze-pl fit`.
        name: Name of one file for all episodes; None for one file per episode.
    """

    def __init__(self, folder: str = "trajectories", name: str | None = None) -> None:
        self.folder, self.name = output_folder(folder), name

    def write(self, record: Trajectory) -> None:
        """Write the file or append to it."""
        name = self.name or re.sub(r"[^\w.-]", "_", record.episode_id)
        path, body = self.folder / f"{name}.{record.kind}", record.to_bytes()
        if self.name:
            append_record(path, record.kind, body)
        else:
            deferred_files().write(path, file_content(record.kind, body))

    def close(self) -> None:
        """Wait until all files have their names."""
        deferred_files().flush()


class GifFiles(TrajectoryWriter):
    """Writes an animated GIF of each episode, `<episode id>.gif`.

    Args:
        folder: Folder of the files; relative to the run directory in `maze-pl fit`.
        frames_per_second: Number of states shown per second, above 0 and at most 50.

    Raises:
        ValueError: `frames_per_second` is out of range.
    """

    needs_frames = True

    def __init__(self, folder: str = "renderings", frames_per_second: float = 20.0) -> None:
        if not 0 < frames_per_second <= 50:
            raise ValueError(f"frames_per_second={frames_per_second} must be above 0 and at most 50, as gifs can show")
        self.folder, self.frames_per_second = output_folder(folder), frames_per_second

    def write(self, record: Any) -> None:
        """Write the GIF."""
        from PIL import Image

        frames = (Image.open(io.BytesIO(frame)) for frame in record.frames)
        save_gif(self.folder / f"{record.episode_id}.gif", frames, self.frames_per_second)
