"""Episodes of a comparison in the viewer: the best, the median and the worst, and those that differ most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import nn

from maze_pl.comparison.effects import Values
from maze_pl.comparison.page import Link
from maze_pl.comparison.playing import Tournament
from maze_pl.comparison.results import Comparison
from maze_pl.envs.building import make_wrapped
from maze_pl.runs.rollout import Trajectory
from maze_pl.runs.tables import number_text
from maze_pl.system.atomic_files import write_file
from maze_pl.viewer.document import episode_document
from maze_pl.viewer.episode import Episode
from maze_pl.viewer.html_page import html_page
from maze_pl.viewer.playing import episode_of

FOLDER: Final = "episodes"
_TOLERANCE: Final = 1e-6


@dataclass(frozen=True)
class Place:
    """An episode of a comparison.

    Attributes:
        entry: Number of the entry.
        run: Number of the run in it.
        episode: Number of the episode.
    """

    entry: int
    run: int
    episode: int


def extreme_episodes(values: Values, lower_is_better: bool) -> dict[str, tuple[int, int]]:
    """Return the run and the number of the best, the median and the worst episode of an entry.

    Args:
        values: [R, E] results of the entry; NaN where an episode has none.
        lower_is_better: Whether lower values are better.

    Returns:
        `best`, `median` and `worst`, each episode once; empty without values.
    """
    order = np.argsort(values.ravel() if lower_is_better else -values.ravel(), kind="stable")
    n = int((~np.isnan(values)).sum())  # NaN is sorted to the end
    found: dict[str, tuple[int, int]] = {}
    for name, position in (("best", 0), ("median", n // 2), ("worst", n - 1)):
        if n:
            run, episode = divmod(int(order[position]), values.shape[1])
            if (run, episode) not in found.values():
                found[name] = (run, episode)
    return found


def most_different(values: Values, baseline: Values) -> tuple[int, int, int] | None:
    """Return a run, a run of the baseline, and the episode in which their results differ most.

    Args:
        values: [R, E] results of an entry; NaN where an episode has none.
        baseline: [S, E] results of the baseline.

    Returns:
        The numbers of both runs and of the episode; None if no results differ.
    """
    differences = np.nan_to_num(np.abs(values[:, None] - baseline[None]))  # [R, S, E]
    if not differences.any():
        return None
    run, other, episode = np.unravel_index(int(differences.argmax()), differences.shape)
    return int(run), int(other), int(episode)


def write_views(folder: Path, comparison: Comparison, played: Tournament) -> list[Link]:
    """Play the selected episodes again, and write their pages.

    Args:
        folder: Folder of the comparison.
        comparison: The table.
        played: The episodes.

    Returns:
        A link to each page.
    """
    values = played.values(comparison.metric)
    recorder = _Recorder(played, comparison.metric, values)
    progress = played.progress
    links: list[Link] = []
    for number, entry in enumerate(played.entries):
        chosen = extreme_episodes(values[number], comparison.lower_is_better)
        episodes = [recorder.episode(Place(number, *place), kind) for kind, place in chosen.items()]
        if episodes:
            title = f"{entry.name}: {', '.join(chosen)} by {comparison.metric}"
            file = _write(folder, len(links), title, episodes, progress)
            results = values[number]
            names = [f"{kind} ({number_text(float(results[place]))})" for kind, place in chosen.items()]
            links.append(Link(entry.name, file, tuple(names)))
    for number, entry in enumerate(played.entries):
        for other, baseline in enumerate(played.entries):
            if not baseline.is_baseline or other == number or (entry.is_baseline and other < number):
                continue
            place = most_different(values[number], values[other])
            if place is not None:
                run, other_run, episode = place
                both = [Place(number, run, episode), Place(other, other_run, episode)]
                both_results = [number_text(float(values[one.entry][one.run, one.episode])) for one in both]
                title = f"{entry.name} and {baseline.name}: episode {episode}, in which they differ most"
                episodes = [recorder.episode(one, played.entries[one.entry].name) for one in both]
                file = _write(folder, len(links), title, episodes, progress, is_pair=True)
                links.append(Link(f"{title} ({' and '.join(both_results)})", file))
    return links


def _write(
    folder: Path,
    number: int,
    title: str,
    episodes: Sequence[Episode],
    progress: bool,
    *,
    is_pair: bool = False,
) -> str:
    """Write the page of some episodes, and return its path in the folder."""
    file = f"{FOLDER}/{number + 1:02d}.html"
    document = episode_document(episodes, [(0, 1)] if is_pair else (), title, progress)
    write_file(folder / file, html_page(document).encode())
    return file


class _Recorder:
    """Plays episodes again, in the same groups, and records them.

    Args:
        played: The episodes.
        metric: The metric that is shown in their names.
        values: [R, E] results by it, for each entry.
    """

    def __init__(self, played: Tournament, metric: str, values: Sequence[Values]) -> None:
        self._played = played
        self._metric = metric
        self._values = values
        self._parts: dict[tuple[int, int], dict[str, Any]] = {}
        self._records: dict[tuple[int, int], list[str]] = {}

    def episode(self, place: Place, name: str) -> Episode:
        """Return an episode.

        Args:
            place: The episode.
            name: Beginning of its name.
        """
        player = self._played.entries[place.entry].players[place.run]
        parts = self._parts_of(place)
        group = next(group for group in self._played.groups if place.episode in group)
        trajectory = self._trajectory(place, group)
        result = number_text(float(self._values[place.entry][place.run, place.episode]))
        title = f"{name}: {self._metric} {result}, episode {place.episode}"
        before = self._played.episodes[place.entry][place.run].returns[place.episode]
        if abs(trajectory.summary.reward - before) > _TOLERANCE * max(1.0, abs(before)):
            title += f", played again with return {number_text(trajectory.summary.reward)}"
        agent = player.policy if isinstance(player.policy, nn.Module) else None
        return episode_of(trajectory, title, self._played.entries[place.entry].name, agent, parts=parts)

    def _trajectory(self, place: Place, group: range) -> Trajectory:
        """Play the group of an episode again, and return the episode."""
        player = self._played.entries[place.entry].players[place.run]
        kept: list[Trajectory] = []

        def receive(trajectory: Trajectory) -> None:
            if trajectory.summary.episode_index == place.episode:
                kept.append(trajectory)
            else:
                trajectory.states = trajectory.spaces = None

        self._played.acting.play(
            player,
            group.start,
            len(group),
            record=self._records[place.entry, place.run],
            receive=receive,
            progress=self._played.progress,
        )
        return kept[0]

    def _parts_of(self, place: Place) -> Mapping[str, Any]:
        """Return renderer and KPI calculator of a player's environment, None where it has none."""
        key = (place.entry, place.run)
        if key not in self._parts:
            options = self._played.entries[place.entry].players[place.run].options
            sample = make_wrapped(options["env"], options.get("wrappers") or (), options.get("action_masks"))
            parts = {"renderer": sample.get_renderer(), "kpi_calculator": sample.get_kpi_calculator()}
            has_frames = parts["renderer"] is None and sample.render_mode == "rgb_array"
            sample.close()
            self._parts[key] = parts
            self._records[key] = ["spaces", "events"]
            if has_frames or any(part is not None for part in parts.values()):
                self._records[key].append("states")
            if has_frames:
                self._records[key].append("frames")
        return self._parts[key]
