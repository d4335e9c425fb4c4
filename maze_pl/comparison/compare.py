"""Comparison of trained agents and policies by playing the same episodes with each."""

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from maze_pl.collect.engines import Engine
from maze_pl.comparison.analysis import Question, is_precise, make_comparison
from maze_pl.comparison.entries import Entry, make_entries
from maze_pl.comparison.playing import Acting, Tournament
from maze_pl.comparison.results import Comparison
from maze_pl.comparison.writing import require_new_folder, write_comparison
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checks import MOST_EPISODES
from maze_pl.runs.episode_seeds import listed_seeds

_GROWTH = 1.5
"""Factor by which the number of episodes grows until intervals are narrow enough."""


def compare(
    *sources: Any,
    baselines: Sequence[Any] = (),
    env: Callable[[], Any] | None = None,
    wrappers: Sequence[Callable[..., Any]] | None = None,
    action_masks: dict[str, str] | None = None,
    max_agents: dict[Any, int] | None = None,
    n_episodes: int = 100,
    seed: int = 0,
    episode_seeds: Sequence[int] | str | None = None,
    max_steps: int = 0,
    deterministic: bool = False,
    search: Sequence[str] = (),
    n_envs: int = 4,
    checkpoint: str = "best",
    metric: str = "return",
    lower_is_better: bool = False,
    precision: float | None = None,
    max_episodes: int = 10_000,
    to: str | Path | None = None,
    views: bool = True,
    trust: bool = False,
    make_engine: Callable[[], Engine] | None = None,
    progress: bool = False,
    command: str | None = None,
    receive: Callable[[Comparison], object] | None = None,
) -> Comparison:
    """Play the same episodes with trained agents and policies, and compare their results.

    Args:
        sources: Each a run directory; a folder of `maze-pl fit --seeds`, whose runs are one entry; a
            checkpoint; `random`, `heuristic`, a group file or a class path; a policy or a trained
            module; or a dict from names to any of these. Runs that differ only in their seed
            are one entry, but baselines and other sources stay apart.
        baselines: Runs and policies that the others are compared with; without baselines, the first source.
        env: Builds the environment that all play in; None means that of each run, and that of the
            first run for policies.
        wrappers: Wrappers for all, the first one innermost; None means those of each run.
        action_masks: As for `rollout`; None means those of each run.
        max_agents: As for `rollout`; None means those of each run.
        n_episodes: Number of episodes of each run and policy.
        seed: Determines the episodes and the policies' random numbers.
        episode_seeds: Seeds that environments are reset with, instead of seeds that follow from `seed`:
            a list, or a text such as `0-39`. Each is played once, and `n_episodes` has no effect.
        max_steps: Env steps after which an episode is truncated; 0 means no limit.
        deterministic: Whether policies take their most likely actions.
        search: Searches such as `puct:64`, see `maze_pl.rollout`. For each of them, each run is also an
            entry that searches before it acts; without runs, each policy.
        n_envs: Number of consecutive episodes that are played at the same time.
        checkpoint: Checkpoint of runs: `best` or `last`.
        metric: The metric by which the winner is chosen: `return`, or `kpi/<name>`.
        lower_is_better: Whether lower values of this metric are better.
        precision: Episodes are added until the intervals of the means of this metric, and of the
            differences from the baselines, are narrower than this.
        max_episodes: Largest number of episodes for `precision`.
        to: Folder for the files of the comparison, which is missing or empty; None writes none.
        views: Whether the files include the best, the median, the worst and the most different
            episodes, in the viewer.
        trust: Whether runs may name any class, because you know who made them.
        make_engine: Makes the engine that plays; None plays in this process or, if it takes long, in
            worker processes.
        progress: Whether to show progress bars; in a file, a line every 10 s.
        command: The command line, to be saved with the results.
        receive: Called with the table before files are written, since drawing states takes time.

    Returns:
        The table, see `Comparison`.

    Raises:
        ConfigurationError: Something cannot be compared, or a number is invalid.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> table = compare("heuristic", "random", env=lambda: GymMazeEnv("CartPole-v1"), n_episodes=20, max_steps=100)
        >>> table.winner
        'heuristic'
    """
    seeds = None if episode_seeds is None else _listed(episode_seeds, precision)
    n_episodes = n_episodes if seeds is None else len(seeds)
    _check_numbers(n_episodes, max_episodes, precision)
    if to is not None:
        require_new_folder(Path(to))
    options = {"env": env, "wrappers": wrappers, "action_masks": action_masks, "max_agents": max_agents}
    entries = make_entries(sources, baselines, checkpoint, options, trust, search)
    tell_wrappers_of_heuristic(entries)
    acting = Acting(seed, max_steps, deterministic, n_envs, make_engine, seeds)
    question = Question(metric, lower_is_better, n_episodes, precision)
    played = Tournament(entries, acting, progress, n_episodes)
    with closing(played):
        _play(played, question, max_episodes)
    values = {name: played.values(name) for name in played.metrics}
    comparison = make_comparison(
        entries,
        values,
        question,
        seed=seed,
        max_steps=max_steps,
        deterministic=deterministic,
        episode_seeds=seeds,
    )
    if receive is not None:
        receive(comparison)
    if to is not None:
        write_comparison(Path(to), comparison, played, command, views)
    return comparison


def tell_wrappers_of_heuristic(entries: Sequence[Entry]) -> None:
    """Say with which wrappers `heuristic` plays if those of the runs differ, as a wrapper may correct another rule.

    Args:
        entries: The entries, with their environments.
    """
    players = [player for entry in entries for player in entry.players]
    runs = [player for player in players if player.checkpoint is not None]
    named = [player.policy for player in players if isinstance(player.policy, str)]
    if "heuristic" in named and any(run.options["wrappers"] != runs[0].options["wrappers"] for run in runs):
        remark = "with those of another one it may be another rule"
        sys.stderr.write(f"maze-pl: heuristic plays with the wrappers of {runs[0].source}, the first run: {remark}\n")


def _play(played: Tournament, question: Question, max_episodes: int) -> None:
    """Play as many episodes as a question needs.

    Raises:
        ConfigurationError: There is no such metric, or a policy does not fit the environment.
    """
    n_envs = played.acting.n_envs
    played.play(min(n_envs, question.n_planned))
    played.require_metric(question.metric)
    if question.n_planned > n_envs:
        played.play(question.n_planned)
    while question.precision is not None and not is_precise(played.entries, played.values(question.metric), question):
        if played.n_episodes == max_episodes:
            break
        wanted = n_envs * math.ceil(_GROWTH * played.n_episodes / n_envs)
        played.play(min(max_episodes, wanted))


def _listed(episode_seeds: Sequence[int] | str, precision: float | None) -> list[int]:
    """Return given seeds; raise ConfigurationError if they are invalid, or episodes shall be added to them."""
    if precision is not None:
        fault = f"precision={precision} adds episodes, for which there are no episode_seeds"
        raise ConfigurationError(f"{fault}: give only one of the two")
    try:
        return listed_seeds(episode_seeds)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _check_numbers(n_episodes: int, max_episodes: int, precision: float | None) -> None:
    """Raise ConfigurationError if numbers are invalid."""
    if not 1 <= n_episodes <= MOST_EPISODES:
        raise ConfigurationError(f"n_episodes={n_episodes} must be from 1 to {MOST_EPISODES}")
    if precision is None:
        return
    if not (precision > 0.0 and math.isfinite(precision)):
        raise ConfigurationError(f"precision={precision} must be above 0: it is the width of an interval")
    if n_episodes < 2:
        raise ConfigurationError(f"precision={precision} needs intervals: give n_episodes of at least 2, such as 20")
    if not n_episodes <= max_episodes <= MOST_EPISODES:
        both = f"max_episodes={max_episodes} must be from n_episodes={n_episodes} to {MOST_EPISODES}"
        raise ConfigurationError(both)
