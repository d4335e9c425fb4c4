"""Playing of the episodes of a comparison: the same seeds with each entry."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.comparison.effects import Values
from maze_pl.comparison.entries import Entry, Player
from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.runs.short_names import shortened
from maze_pl.runs.tables import merged_names
from maze_pl.system.progress import bar_options

RETURN = "return"
KPI = "kpi/"
_SECONDS_IN_PROCESS = 30.0
"""Expected time of a player's further episodes, in seconds, above which they are played in worker processes."""
_MOST_LETTERS = 30
"""Letters of a name in a progress bar."""


@dataclass(frozen=True)
class Acting:
    """Options of playing.

    Attributes:
        seed: Determines the episodes and the policies' random numbers.
        max_steps: Env steps after which an episode is truncated; 0 means no limit.
        deterministic: Whether policies take their most likely actions.
        n_envs: Number of consecutive episodes that are played at the same time.
        make_engine: Makes the engine of each rollout; None chooses it by the time that episodes take.
        episode_seeds: Seeds of the episodes; None if they follow from `seed`.
    """

    seed: int = 0
    max_steps: int = 0
    deterministic: bool = False
    n_envs: int = 4
    make_engine: Callable[[], Engine] | None = None
    episode_seeds: Sequence[int] | None = None

    def play(self, player: Player, first: int, n: int, engine: Engine | None = None, **options: Any) -> Any:
        """Play episodes with a policy.

        Args:
            player: The policy and its environment.
            first: Number of the first episode, a multiple of `n_envs`.
            n: Number of episodes.
            engine: Plays them; None means in this process.
            options: Further arguments of `rollout`.

        Returns:
            The trajectories, as of `rollout`.

        Raises:
            ConfigurationError: The policy does not fit the environment.
        """
        try:
            return rollout(
                player.options["env"],
                player.policy,
                n,
                self.seed,
                max_steps=self.max_steps,
                deterministic=self.deterministic,
                n_envs=self.n_envs,
                engine=engine,
                first_episode=first,
                episode_seeds=self.episode_seeds,
                **{name: value for name, value in player.options.items() if name != "env"},
                **options,
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"{player.source}: {error}") from error


@dataclass
class Episodes:
    """Results of one player.

    Attributes:
        returns: Return of each episode, of the environment's rewards.
        kpis: KPIs of each episode.
        seeds: Seed of each episode.
    """

    returns: list[float] = field(default_factory=list)
    kpis: list[dict[str, float]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def add(self, trajectory: Trajectory) -> None:
        """Add an episode."""
        self.returns.append(float(trajectory.summary.reward))
        self.kpis.append(dict(trajectory.summary.kpis))
        self.seeds.append(trajectory.seed)

    def values(self, metric: str) -> list[float]:
        """Return a metric of each episode, NaN where it has none."""
        if metric == RETURN:
            return self.returns
        name = metric.removeprefix(KPI)
        return [kpis.get(name, float("nan")) for kpis in self.kpis]


class Tournament:
    """Plays the same episodes with all entries, and keeps their results.

    Args:
        entries: The entries.
        acting: Options of playing.
        progress: Whether to show a progress bar, which `close` ends.
        n_planned: Number of episodes that each player shall play at least, over which the bar goes.

    Attributes:
        n_episodes: Number of episodes that each player has played.
        episodes: Results of each player, by entry.
        groups: Groups of episodes that were played at the same time.
    """

    def __init__(self, entries: Sequence[Entry], acting: Acting, progress: bool = False, n_planned: int = 0) -> None:
        self.entries = list(entries)
        self.acting = acting
        self.progress = progress
        self.n_episodes = 0
        self.groups: list[range] = []
        self.episodes = [[Episodes() for _ in entry.players] for entry in self.entries]
        self._seconds = 0.0  # of this process for an episode
        self._n_planned = n_planned
        self._bar: Any = None  # one for all rounds

    @property
    def metrics(self) -> list[str]:
        """The return and all KPIs that occurred."""
        kpis_of_episodes: list[dict[str, float]] = []
        for runs in self.episodes:
            for results in runs:
                kpis_of_episodes += results.kpis
        return [RETURN, *(f"{KPI}{name}" for name in merged_names(kpis_of_episodes))]

    def values(self, metric: str) -> list[Values]:
        """Return [R, E] values of a metric for each entry."""
        return [np.array([results.values(metric) for results in runs], dtype=np.float64) for runs in self.episodes]

    def require_metric(self, metric: str) -> None:
        """Raise ConfigurationError if no episode has a metric."""
        known = self.metrics
        if metric not in known:
            raise ConfigurationError(f"there is no metric {metric!r}: use {', '.join(known)}")

    def _require_fit(self) -> None:
        """Make all policies and searches, so that each fault of one is told before a search, which may take hours.

        Raises:
            ConfigurationError: A policy does not fit the environment.
            ValueError: It cannot search, or there is no such policy.
        """
        for entry in self.entries:
            for player in entry.players:
                timed = None
                if "search" in player.options and self.acting.make_engine is not None:
                    engine = self.acting.make_engine()
                    timed = engine if engine.step_timeout is not None else None  # refused before it starts
                self.acting.play(player, 0, 1, timed, record=(), stop=lambda: True)

    def play(self, n_episodes: int) -> None:
        """Play until each player has played a number of episodes.

        Without a given engine, they are played in this process at first, and in worker processes
        once the episodes before have shown that this is worth starting them.

        Args:
            n_episodes: The number, including the episodes that were played before.
        """
        if not self.n_episodes and any("search" in entry.players[0].options for entry in self.entries):
            self._require_fit()
        n = n_episodes - self.n_episodes
        is_long = n * self._seconds > _SECONDS_IN_PROCESS and len(os.sched_getaffinity(0)) > 1
        engine_of = self.acting.make_engine or (ProcessEngine if is_long else InProcessEngine)
        n_players = sum(len(runs) for runs in self.episodes)
        began = time.process_time()
        bar = self._bar_over(max(n_episodes, self._n_planned) * n_players)
        for entry, runs in zip(self.entries, self.episodes, strict=True):
            bar.set_description(shortened(entry.name, _MOST_LETTERS), refresh=False)
            for player, results in zip(entry.players, runs, strict=True):

                def receive(trajectory: Trajectory, results: Episodes = results) -> None:
                    results.add(trajectory)
                    bar.update()

                self.acting.play(player, self.n_episodes, n, engine_of(), record=(), receive=receive)
        seconds = (time.process_time() - began) / (n * n_players)
        self._seconds = max(self._seconds, seconds)  # a round in other processes takes none here
        size = self.acting.n_envs
        self.groups += [
            range(start, min(start + size, n_episodes)) for start in range(self.n_episodes, n_episodes, size)
        ]
        self.n_episodes = n_episodes

    def _bar_over(self, total: int) -> Any:
        """Return the bar of all rounds, over a number of episodes of all players together."""
        if self._bar is None:
            self._bar = tqdm(total=total, unit="episode", **bar_options("episodes", self.progress))
        self._bar.total = total
        return self._bar

    def close(self) -> None:
        """End the progress bar; the results stay."""
        if self._bar is not None:
            self._bar.close()
