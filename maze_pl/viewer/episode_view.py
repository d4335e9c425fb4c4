"""Views of episodes: HTML files, and objects that notebooks show."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import Trajectory
from maze_pl.system.atomic_files import write_file
from maze_pl.viewer.document import episode_document
from maze_pl.viewer.episode import Episode
from maze_pl.viewer.html_page import html_page
from maze_pl.viewer.playing import PlayOptions, episode_of
from maze_pl.viewer.sources import episodes_of_paths, episodes_of_records

_HEIGHT = 720


class EpisodeView:
    """A view of episodes, which a notebook shows, and which can be written to a file.

    Args:
        document: The episode document.
        height: Height in a notebook, in pixels.

    Attributes:
        document: The episode document.
    """

    def __init__(self, document: dict[str, Any], height: int = _HEIGHT) -> None:
        self.document = document
        self._height = height
        self._page: str | None = None

    def html(self) -> str:
        """Return the self-contained page."""
        if self._page is None:
            self._page = html_page(self.document)
        return self._page

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, which replaces an existing one once it is complete."""
        write_file(path, self.html().encode("utf-8", "replace"))
        return Path(path)

    def _repr_html_(self) -> str:
        """Return a separate frame, so that several views do not disturb each other."""
        page = html.escape(self.html(), quote=True)
        title = html.escape(str(self.document["title"]), quote=True)
        style = f"width: 100%; height: {self._height}px; border: 0"
        return f'<iframe sandbox="allow-scripts" title="{title}" style="{style}" srcdoc="{page}"></iframe>'

    def __repr__(self) -> str:
        names = [episode["name"] for episode in self.document["episodes"]]
        return f"EpisodeView({names}); save(path) writes it as HTML"


def view(
    source: Any,
    *,
    agent: Any = None,
    env: Any = None,
    pictures: bool = True,
    renderer_arguments: dict[str, Any] | None = None,
    trust: bool = False,
    title: str = "",
    height: int = _HEIGHT,
    **playing: Any,
) -> EpisodeView:
    """View episodes in a notebook or a browser: each act with probabilities, values, events and pictures.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.runs.rollout import rollout
        >>> played = rollout(lambda: GymMazeEnv("CartPole-v1"), "heuristic", max_steps=20)
        >>> view(played)
        EpisodeView(['episode 0']); save(path) writes it as HTML

    Args:
        source: A trajectory of `maze_pl.rollout` or several; space or state records; an episode
            document; or paths: a run directory, in which the agent plays, the folder of a rollout,
            or files of records. Trajectories should be recorded with `spaces` and `events`, and
            with `states` (or, for gymnasium environments, `frames`) for pictures.
        agent: The algorithm or policy that acted, for probabilities and values.
        env: The environment or its factory, for its renderer and KPIs.
        pictures: Whether states are drawn.
        renderer_arguments: Values of the renderer's arguments.
        trust: Whether files that can execute code, such as state records, may be read.
        title: Title of the view.
        height: Height in a notebook, in pixels.
        playing: Attributes of `PlayOptions`, if agents play.

    Raises:
        ConfigurationError: There is nothing to view, a file cannot be read, or a state cannot be
            drawn.
        TypeError: The source is something else.
    """
    if isinstance(source, Mapping):
        return EpisodeView(dict(source), height)
    pairs: list[tuple[int, int]] = []
    many = list(source) if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if many and all(isinstance(one, str | Path) for one in many):
        options = PlayOptions(pictures=pictures, renderer_arguments=renderer_arguments, trust=trust, **playing)
        episodes, pairs = episodes_of_paths([Path(one) for one in many], options)
    else:
        if playing:
            raise TypeError(f"{sorted(playing)} are options of playing, but {type(many[0]).__name__} is not a path")
        episodes = _given(many, agent)
    if env is not None:
        episodes = _with_parts(episodes, env, pictures, renderer_arguments or {})
    return EpisodeView(episode_document(episodes, pairs, title), height)


def _given(sources: Sequence[Any], agent: Any) -> list[Episode]:
    """Return the episodes of trajectories and records."""
    episodes: list[Episode] = []
    records: list[Any] = []
    for number, one in enumerate(sources):
        name = f"episode {number}"
        if isinstance(one, Trajectory):
            if one.spaces is None and one.states is None:
                remedy = "play with record=['spaces', 'events'], and 'states' for pictures"
                raise ValueError(f"the trajectory {one.episode_id} has neither spaces nor states: {remedy}")
            policy = "" if agent is None else str(getattr(type(agent), "__name__", agent))
            episodes.append(episode_of(one, name, policy, agent))
        elif isinstance(one, SpacesTrajectoryRecord | StateTrajectoryRecord):
            records.append(one)
        else:
            known = "trajectories of maze_pl.rollout, records, an episode document, and paths"
            raise TypeError(f"{type(one).__name__} cannot be viewed; expected {known}")
    episodes += episodes_of_records(records, agent)
    if not episodes:
        raise ValueError("there are no episodes to view: the list is empty")
    return episodes


def _with_parts(episodes: list[Episode], env: Any, pictures: bool, arguments: dict[str, Any]) -> list[Episode]:
    """Return the episodes with the renderer and KPIs of an environment."""
    sample = env
    if callable(env):
        sample = make_wrapped(env)
    elif isinstance(env, ArrayEnv):
        sample = ArrayMazeEnv(env)
    parts: dict[str, Any] = {"kpi_calculator": sample.get_kpi_calculator(), "renderer_arguments": arguments}
    parts["renderer"] = sample.get_renderer() if pictures else None
    if callable(env):
        sample.close()
    return [replace(episode, **parts) for episode in episodes]
