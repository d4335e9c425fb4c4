"""Renderers of simulations, and drawing of pictures, animations and statistics.

Matplotlib and Pillow, which comes with it, are optional and imported when something is drawn.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.events import EpisodeEventLog, EventRecord
from maze_pl.events.display import require_matplotlib
from maze_pl.events.pubsub import Event
from maze_pl.events.topics import Statistic, declarations
from maze_pl.system.atomic_files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class OptionsArrayArg:
    """An argument of a renderer that is one of several options.

    Args:
        name: Name of the argument.
        title: Label of the argument.
        options: Allowed values; the first is the default.
    """

    name: str
    title: str
    options: Sequence[Any]


class IntRangeArg(OptionsArrayArg):
    """An argument of a renderer that is an integer in a range.

    Args:
        name: Name of the argument.
        title: Label of the argument.
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
            arguments: Values of the renderer's arguments, as chosen for a view.

        Returns:
            A new figure outside pyplot's global state; the caller owns it.
        """

    def arguments(self) -> Sequence[OptionsArrayArg]:
        """Return the arguments that may be chosen for a view; none by default."""
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
    film = gif_of(frames, frames_per_second)
    if film is not None:
        write_file(path, film)


def gif_of(frames: Iterable[Any], frames_per_second: float = 20.0, comment: bytes = b"") -> bytes | None:
    """Return the content of an animated GIF; None if there are no frames.

    Args:
        frames: As for `save_gif`.
        frames_per_second: Frame rate, at most 50.
        comment: Comment that the file holds.

    Raises:
        ImportError: Pillow is missing.
    """
    require_matplotlib("a gif")
    from PIL import Image

    images = (Image.fromarray(frame) if isinstance(frame, np.ndarray) else frame for frame in frames)
    first = next(images, None)
    if first is None:
        return None
    film = io.BytesIO()
    first.save(
        film,
        "GIF",
        save_all=True,
        append_images=images,
        duration=1000 / frames_per_second,
        loop=0,
        comment=comment,
    )
    return film.getvalue()


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
        for statistic in _step_statistics(steps, event):
            reduce: Callable[[Any], Any] = statistic.reduce or np.mean  # usually one value per step
            values = []
            for records in steps:
                column = [record.attributes.get(str(statistic.input_name)) for record in records]
                values.append(reduce(column) if column else 0.0)
            axes.plot(
                np.cumsum(values) if cumulative else values,
                label=statistic.output_name or reduce.__name__,
            )
            axes.legend()
        axes.set(
            title=event.__qualname__,
            xlabel="environment step",
            ylabel="sum so far" if cumulative else "per step",
        )
    return figure


def _step_statistics(steps: Iterable[Sequence[EventRecord]], event: Event) -> list[Statistic]:
    """Return the step statistics of an event in all topics of its records, which may be derived from one another."""
    topics: dict[type, None] = {}  # in the order in which they occur
    for records in steps:
        topics |= dict.fromkeys(record.topic for record in records)
    statistics: list[Statistic] = []
    for topic in topics:
        statistics += declarations(topic)[event.__name__].step
    return statistics
