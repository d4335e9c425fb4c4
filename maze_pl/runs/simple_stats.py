"""Statistics of hand-written training loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

    from maze_pl.core.episode import EpisodeSummary
    from maze_pl.envs.structured_env import StructuredEnv


class SimpleStatsLoggingSetup:
    """Statistics of a hand-written loop. Leaving it closes the open episode and prints the table.

    Other unfinished episodes, cut off by `reset`, are left out; a line below the table gives their
    number. `LogStatsWrapper(env, count_unfinished=True)` includes them, up to that point.

    Lightning loggers write the statistics elsewhere, as in a `Trainer`: one of Lightning's,
    `TensorBoardLog` or `WandbLog` from `maze_pl.callbacks`, or a subclass of `Logger` with a custom
    `log_metrics`. Further blocks with the same environment continue the env steps of the first one
    in the logs, and the totals in the statistics.

    Example:
        >>> from maze_pl import SimpleStatsLoggingSetup
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import LogStatsWrapper
        >>> env = LogStatsWrapper.wrap(GymMazeEnv("CartPole-v1"), logging_prefix="main")
        >>> with SimpleStatsLoggingSetup(env) as setup:  # doctest: +ELLIPSIS
        ...     _ = env.reset(seed=0)
        ...     for _ in range(5):
        ...         _ = env.step({"action": 1})
        <BLANKLINE>
        main | 5 env steps
        ...
        >>> setup.statistics["BaseEnvEvents/reward/mean"]
        5.0

    Args:
        env: An environment with a `LogStatsWrapper` around it, whose `logging_prefix` names the
            statistics.
        loggers: Loggers that also get the statistics, over env steps.

    Attributes:
        statistics: After the block, `<Topic>/<event>/<statistic>/<groups>` -> number or histogram.

    Raises:
        TypeError: The environment has no `LogStatsWrapper`.
    """

    def __init__(self, env: StructuredEnv, loggers: Sequence[Logger] = ()) -> None:
        from maze_pl.envs.wrappers import LogStatsWrapper

        if not isinstance(env, LogStatsWrapper):
            remedy = "wrap it with LogStatsWrapper.wrap(env) first"
            raise TypeError(f"{type(env).__name__} keeps no statistics: {remedy}")
        self.env, self.loggers = env, loggers
        self.statistics: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.env.drain_episode_summaries()  # drop earlier episodes
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from tqdm import tqdm

        from maze_pl.events.display import render

        if kind is not None and issubclass(kind, Exception):  # an interrupt prints what there is
            return
        self.env.close_episode()
        n_unfinished = self.env.n_unfinished
        prefix = self.env.logging_prefix or "main"
        summaries = self.env.drain_episode_summaries()
        topics = self.env.pubsub.topics
        self.statistics = log_episodes(summaries, topics, prefix, self.loggers, self.env.logged_totals)
        env_steps = sum(int(summary.env_steps) for summary in summaries)
        tqdm.write(render(f"{prefix} | {env_steps:,} env steps", 1, {prefix: self.statistics}))
        if n_unfinished:
            left_out = f"unfinished episodes that reset cut off, and that are not counted: {n_unfinished}"
            tqdm.write(f"{left_out}; LogStatsWrapper(env, count_unfinished=True) counts them")


def log_episodes(
    summaries: Iterable[EpisodeSummary],
    topics: Iterable[type],
    prefix: str,
    loggers: Sequence[Logger],
    totals: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Compute the statistics of episodes, and pass them to loggers.

    Args:
        summaries: The episodes.
        topics: Topics of their events.
        prefix: Name of the statistics in the logs.
        loggers: Lightning loggers, which get them over env steps.
        totals: Counts of earlier steps and episodes, to which those of these episodes are added; None begins at 0.

    Returns:
        `<Topic>/<event>/<statistic>/<groups>` -> number or histogram.
    """
    from maze_pl.events import EpochStatistics
    from maze_pl.loggers.dashboard import log_epoch
    from maze_pl.modules.run_statistics import SourceStatistics

    epoch = EpochStatistics(topics)
    if totals:
        epoch.load_state_dict(totals)
    for summary in summaries:
        epoch.add(summary)
    if totals is not None:
        totals.update(epoch.state_dict())
    plots = epoch.compute_plots()
    statistics: dict[str, Any] = dict(epoch.compute())
    scalars = SourceStatistics(statistics, {}).scalars(prefix)
    for logger in loggers:
        logger.log_metrics(scalars, step=epoch.total_step_count)
    log_epoch(loggers, prefix, statistics, plots, epoch.total_step_count)
    return statistics
