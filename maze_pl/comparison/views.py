"""Episodes of a comparison in the viewer: the best, the median and the worst, and those that differ most."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import nn
from tqdm import tqdm

from maze_pl.comparison.effects import Values
from maze_pl.comparison.entries import Entry
from maze_pl.comparison.page import Link
from maze_pl.comparison.playing import Tournament
from maze_pl.comparison.results import Comparison
from maze_pl.envs.building import make_wrapped
from maze_pl.runs.reward_wrappers import reward_wrappers_in
from maze_pl.runs.rollout import Trajectory
from maze_pl.runs.short_names import shortened
from maze_pl.runs.tables import number_text
from maze_pl.system.atomic_files import write_file
from maze_pl.system.progress import bar_options
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


@dataclass(frozen=True)
class _Page:
    """A page of the viewer.

    Attributes:
        title: Its title.
        places: The episodes.
        names: Beginnings of their names.
        link: Text of the link to it.
        links: Names of the episodes that are linked one by one; none links all together.
        is_pair: Whether they are two episodes that are shown side by side.
    """

    title: str
    places: list[Place]
    names: list[str]
    link: str
    links: tuple[str, ...] = ()
    is_pair: bool = False


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
    if n == 0:
        return found
    for name, position in (("best", 0), ("median", n // 2), ("worst", n - 1)):
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
    plan = [*_pages_of_entries(comparison, played, values), *_pages_of_pairs(played, values)]
    pages = _Pages(folder, _Recorder(played, comparison.metric, values), played.progress)
    shown = bar_options("pages with episodes", played.progress)
    return [Link(page.link, pages.write(page), page.links) for page in tqdm(plan, unit="page", **shown)]


def _pages_of_entries(comparison: Comparison, played: Tournament, values: Sequence[Values]) -> Iterator[_Page]:
    """Yield a page for each entry, with its best, its median and its worst episode.

    Args:
        comparison: The table.
        played: The episodes.
        values: [R, E] results by the metric, for each entry.
    """
    for number, entry in enumerate(played.entries):
        chosen = extreme_episodes(values[number], comparison.lower_is_better)
        if chosen:
            title = f"{entry.name}: {', '.join(chosen)} by {comparison.metric}"
            places = [Place(number, run, episode) for run, episode in chosen.values()]
            results = [_result_text(values, place) for place in places]
            links = tuple(f"{kind} ({result})" for kind, result in zip(chosen, results, strict=True))
            yield _Page(title, places, list(chosen), entry.name, links)


def _pages_of_pairs(played: Tournament, values: Sequence[Values]) -> Iterator[_Page]:
    """Yield a page for each entry and baseline, with the episode in which they differ most.

    Args:
        played: The episodes.
        values: [R, E] results by the metric, for each entry.
    """
    for number, other in _compared(played.entries):
        found = most_different(values[number], values[other])
        if found is None:
            continue
        run, other_run, episode = found
        places = [Place(number, run, episode), Place(other, other_run, episode)]
        names = [played.entries[place.entry].name for place in places]
        title = f"{' and '.join(names)}: episode {episode}, in which they differ most"
        results = " and ".join(_result_text(values, place) for place in places)
        yield _Page(title, places, names, f"{title} ({results})", is_pair=True)


def _compared(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Return the numbers of each entry and each baseline; of two baselines in one order only."""
    pairs = []
    for number, entry in enumerate(entries):
        for other, baseline in enumerate(entries):
            is_repeated = entry.is_baseline and other < number
            if baseline.is_baseline and other != number and not is_repeated:
                pairs.append((number, other))
    return pairs


def _result_text(values: Sequence[Values], place: Place) -> str:
    """Format the result of an episode, of the [R, E] results for each entry."""
    return number_text(float(values[place.entry][place.run, place.episode]))


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
        title = f"{name}: {self._metric} {_result_text(self._values, place)}, episode {place.episode}"
        before = self._played.episodes[place.entry][place.run].returns[place.episode]
        if abs(trajectory.summary.reward - before) > _TOLERANCE * max(1.0, abs(before)):
            title += f", played again with return {number_text(trajectory.summary.reward)}"
        agent = player.policy if isinstance(player.policy, nn.Module) else None
        return episode_of(trajectory, title, self._played.entries[place.entry].name, agent, parts=parts)

    def _trajectory(self, place: Place, group: range) -> Trajectory:
        """Play the group of an episode again, and return the episode."""
        player = self._played.entries[place.entry].players[place.run]
        kept: list[Trajectory] = []
        label = f"view of {shortened(self._played.entries[place.entry].name, 30)}, episode {place.episode}"

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
            progress=label if self._played.progress else False,
        )
        return kept[0]

    def _parts_of(self, place: Place) -> Mapping[str, Any]:
        """Return renderer and KPI calculator of a player's environment, if it has them, and its reward wrappers."""
        key = (place.entry, place.run)
        if key not in self._parts:
            options = self._played.entries[place.entry].players[place.run].options
            sample = make_wrapped(options["env"], options.get("wrappers") or (), options.get("action_masks"))
            parts = {"renderer": sample.get_renderer(), "kpi_calculator": sample.get_kpi_calculator()}
            has_frames = parts["renderer"] is None and sample.render_mode == "rgb_array"
            sample.close()
            self._parts[key] = {**parts, "reward_wrappers": reward_wrappers_in(options.get("wrappers"))}
            self._records[key] = ["spaces", "events"]
            if has_frames or any(part is not None for part in parts.values()):
                self._records[key].append("states")
            if has_frames:
                self._records[key].append("frames")
        return self._parts[key]


class _Pages:
    """Writes the pages of episodes, numbered in the order in which they are written.

    Args:
        folder: Folder of the comparison.
        recorder: Plays the episodes.
        progress: Whether to show the progress of drawing.
    """

    def __init__(self, folder: Path, recorder: _Recorder, progress: bool) -> None:
        self._folder = folder
        self._recorder = recorder
        self._progress = progress
        self._n_written = 0

    def write(self, page: _Page) -> str:
        """Write a page, and return its path in the folder."""
        episodes = []
        for place, name in zip(page.places, page.names, strict=True):
            episodes.append(self._recorder.episode(place, name))
        self._n_written += 1
        file = f"{FOLDER}/{self._n_written:02d}.html"
        document = episode_document(episodes, [(0, 1)] if page.is_pair else (), page.title, self._progress)
        write_file(self._folder / file, html_page(document).encode())
        return file
