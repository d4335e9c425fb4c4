"""Pictures of the states of an episode, by a renderer or from recorded frames."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs.rendering import figure_to_array
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.events.display import require_matplotlib
from maze_pl.system.progress import bar_options
from maze_pl.viewer.arrays import Array
from maze_pl.viewer.episode import Episode
from maze_pl.viewer.pictures import WIDEST, Pictures, chosen_places, picture_table


def pictures_of(episode: Episode, env_step: Array, n_env_steps: int, progress: bool) -> dict[str, Any] | None:
    """Return the pictures of an episode document; None if nothing draws the episode.

    Args:
        episode: The episode.
        env_step: [acts] environment step of each act.
        n_env_steps: Number of environment steps.
        progress: Whether to show the progress of drawing.

    Raises:
        ConfigurationError: A state cannot be drawn, or the renderer has no such argument.
    """
    check_renderer_arguments(episode.renderer, episode.renderer_arguments)
    states = episode.states
    if states is None or not states.steps or not (states.frames or episode.renderer is not None):
        return None
    times = [step.env_time for step in states.steps]
    is_by_act = len(times) == len(env_step) and len(set(times)) < len(times)
    if is_by_act:
        picture_of = np.arange(len(times))
    else:  # the last entry is the state after the episode
        picture_of = np.searchsorted(times, np.arange(n_env_steps + 1), side="right") - 1
        picture_of = np.maximum(picture_of, 0)
        picture_of[-1] = len(times)
    n_pictures = len(states.frames) or len(times) + 1
    chosen, place = chosen_places(n_pictures)
    pictures = Pictures()
    source = "frames" if states.frames else "renderer"
    drawn = _frames(states, chosen) if states.frames else _drawings(episode, states, chosen, progress)
    pictures.add_all(drawn)
    table = picture_table(pictures, place[np.minimum(picture_of, n_pictures - 1)])
    return {"source": source, "alt": None, "per": "act" if is_by_act else "env_step", **table}


def _frames(states: StateTrajectoryRecord, chosen: Array) -> Iterator[Array]:
    """Yield the chosen frames."""
    from PIL import Image

    for place in chosen.tolist():
        yield np.asarray(Image.open(io.BytesIO(states.frames[place])).convert("RGB"))


def _drawings(episode: Episode, states: StateTrajectoryRecord, chosen: Array, progress: bool) -> Iterator[Array]:
    """Draw the chosen states, no wider than needed.

    Raises:
        ConfigurationError: A state cannot be drawn.
    """
    require_matplotlib("a view with pictures")
    renderer = episode.renderer
    label = f"pictures of {episode.name[:40]}"
    for place in tqdm(chosen.tolist(), unit="picture", **bar_options(label, progress)):
        try:
            picture = _drawing(states, renderer, place, episode.renderer_arguments)
        except Exception as error:  # of the user's renderer
            where = f"state {place} of episode {states.episode_id}"
            remedy = "correct the renderer, or leave out pictures with --pictures false (pictures=False in Python)"
            fault = f"{type(renderer).__name__} cannot draw {where}: {type(error).__name__}: {error}"
            raise ConfigurationError(f"{fault}; {remedy}") from error
        yield picture


def check_renderer_arguments(renderer: Any, arguments: dict[str, Any]) -> None:
    """Check values of a renderer's arguments.

    Args:
        renderer: The renderer; None if nothing draws states.
        arguments: Name -> value.

    Raises:
        ConfigurationError: There is no such argument, it cannot have that value, or there is no renderer.
    """
    if not arguments:
        return
    if renderer is None:
        raise ConfigurationError(f"renderer_arguments={arguments} are given, but no renderer draws the episode")
    options = {argument.name: list(argument.options) for argument in renderer.arguments()}
    for name, value in arguments.items():
        if value not in options.get(name, []):
            known = f"{type(renderer).__name__} has the arguments {options}"
            raise ConfigurationError(f"renderer_arguments: {name}={value!r} is not possible; {known}")


def _drawing(states: StateTrajectoryRecord, renderer: Any, place: int, arguments: dict[str, Any]) -> Array:
    """Draw a step, or the state after the last one."""
    if place == len(states.steps):
        figure = renderer.render(states.last_maze_state, **arguments)
    else:
        step = states.steps[place]
        figure = renderer.render(step.maze_state, step.maze_action, step.events, **arguments)
    figure.set_dpi(min(figure.dpi, WIDEST / figure.get_figwidth()))
    return figure_to_array(figure)
