"""What draws an environment: figures that can be shown, saved, logged, looked through or joined to a film.

Matplotlib, and Pillow which comes with it, are optional, and imported when something is drawn.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.core.output_folder import write_file
from maze_pl.envs.structured_env import Array
from maze_pl.events.declaration import declarations
from maze_pl.events.kpi import EpisodeEventLog
from maze_pl.events.plots import require_matplotlib
from maze_pl.events.pubsub import Event, EventRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from maze_pl.envs.trajectory_record import StateTrajectoryRecord


@dataclass(frozen=True)
class OptionsArrayArg:
    """An argument of a renderer that is one of several options.

    Args:
        name: Its name.
        title: What it is called where it is chosen.
        options: What may be chosen; the first is the default.
    """

    name: str
    title: str
    options: Sequence[Any]


class IntRangeArg(OptionsArrayArg):
    """An argument of a renderer that is a whole number.

    Args:
        name: Its name.
        title: What it is called where it is chosen.
        min_val: The smallest one, which is the default.
        max_val: The largest one.
    """

    def __init__(self, name: str, title: str, min_val: int, max_val: int) -> None:
        super().__init__(name, title, range(min_val, max_val + 1))


class Renderer(ABC):
    """Draws the states of one kind of simulation."""

    @abstractmethod
    def render(
        self, maze_state: Any, maze_action: Any = None, events: Sequence[EventRecord] = (), **arguments: Any
    ) -> Figure:
        """Draw one step; it depends on its arguments alone, so that recorded steps are drawn like live ones.

        Args:
            maze_state: State before the action.
            maze_action: Action that is taken in it, if any.
            events: Events of the step.
            arguments: What the viewer has chosen for the renderer's own arguments.

        Returns:
            A figure of its own, not of pyplot's global state; whoever asked for it owns it.
        """

    def arguments(self) -> Sequence[OptionsArrayArg]:
        """What a viewer may choose beside the step; nothing by default."""
        return ()


def figure_to_array(figure: Figure) -> Array:
    """The pixels of a figure, `[height, width, 3]` bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def save_gif(path: str | Path, frames: Iterable[Any], frames_per_second: float = 20.0) -> None:
    """Write an animated picture; nothing if there are no frames. Equal frames in a row become one that lasts longer.

    Meanwhile, memory holds a byte for each pixel of all frames.

    Args:
        path: The file, which is replaced once all is written.
        frames: Arrays `[height, width, 3]` of bytes, or Pillow's images, of the same size.
        frames_per_second: How fast they follow each other, at most 50.

    Raises:
        ImportError: Pillow, which comes with matplotlib, is missing.
    """
    require_matplotlib("a gif")
    from PIL import Image

    images = (Image.fromarray(frame) if isinstance(frame, np.ndarray) else frame for frame in frames)
    first = next(images, None)
    if first is not None:
        film = io.BytesIO()
        first.save(film, "GIF", save_all=True, append_images=images, duration=1000 / frames_per_second, loop=0)
        write_file(path, film.getvalue())


def draw_event_statistics(log: EpisodeEventLog, events: Event | Iterable[Event], cumulative: bool = False) -> Figure:
    """Draw how the step statistics of events develop over an episode, one event below the other.

    Args:
        log: Events of the episode, as from `StateTrajectoryRecord.event_log`.
        events: Which ones, such as `BaseEnvEvents.reward`; those of all groups together.
        cumulative: Whether values are added up over time.
    """
    require_matplotlib("a picture of events")
    from matplotlib.figure import Figure

    chosen = [events] if callable(events) else list(events)
    figure = Figure(figsize=(8, 2.5 * len(chosen)), layout="constrained")
    for axes, event in zip(figure.subplots(len(chosen), squeeze=False).flat, chosen, strict=True):
        steps = [step.query_events(event) for step in log.step_event_logs]
        topics = {record.topic: None for step in steps for record in step}
        for one in (one for topic in topics for one in declarations(topic)[event.__name__].step):
            reduce: Callable[[Any], Any] = one.reduce or np.mean  # mostly one value in a step
            columns = [[record.attributes.get(str(one.input_name)) for record in step] for step in steps]
            values = [reduce(column) if column else 0.0 for column in columns]
            axes.plot(np.cumsum(values) if cumulative else values, label=one.output_name or reduce.__name__)
            axes.legend()
        axes.set(title=event.__qualname__, xlabel="environment step", ylabel="sum so far" if cumulative else "per step")
    return figure


def browse(record: StateTrajectoryRecord, renderer: Renderer) -> Figure:
    """Step through a recorded episode by the arrow keys or a slider.

    It works in a window, and in a notebook after `%matplotlib widget`, which needs the package ipympl.

    Args:
        record: The episode.
        renderer: Draws it; each of its arguments gets a slider, too.

    Returns:
        The figure; `matplotlib.pyplot.show()` opens its window. Keep it: its widgets live as long as it does.
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
