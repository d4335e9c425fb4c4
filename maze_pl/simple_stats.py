"""The statistics of a loop that somebody writes by hand, shown and logged as those of training are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

    from maze_pl.envs.structured_env import StructuredEnv


class SimpleStatsLoggingSetup:
    """Around a hand-written loop: leaving the block closes the unfinished episode and prints the table.

    What writes statistics elsewhere is a Lightning logger, here as in a `Trainer`: one of Lightning's, `TensorBoardLog`
    or `WandbLog` from `maze_pl.callbacks`, or a subclass of `Logger` with a `log_metrics` of one's own.

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
        env: An environment with a `LogStatsWrapper` around it, whose `logging_prefix` names the statistics.
        loggers: Loggers that get the statistics as well, over env steps.

    Attributes:
        statistics: After the block, `<Topic>/<event>/<statistic>/<groups>` -> a number or a histogram.

    Raises:
        TypeError: Nothing keeps the environment's statistics.
    """

    def __init__(self, env: StructuredEnv, loggers: Sequence[Logger] = ()) -> None:
        from maze_pl.envs.wrappers import LogStatsWrapper

        if not isinstance(env, LogStatsWrapper):
            raise TypeError(f"{type(env).__name__} keeps no statistics: wrap it by LogStatsWrapper.wrap(env) first")
        self.env, self.loggers = env, loggers
        self.statistics: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.env.drain_episode_summaries()  # episodes of before are not part of it
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from tqdm import tqdm

        from maze_pl.callbacks.dashboards import log_epoch
        from maze_pl.events.epoch_statistics import EpochStatistics
        from maze_pl.events.statistics_table import render
        from maze_pl.modules.statistics import EpochTable

        if kind is not None and issubclass(kind, Exception):  # an interrupt still shows what there is
            return
        self.env.close_episode()
        epoch = EpochStatistics(self.env.pubsub.topics)
        for summary in self.env.drain_episode_summaries():
            epoch.add(summary)
        plots, self.statistics = epoch.compute_plots(), dict(epoch.compute())
        prefix, env_steps = self.env.logging_prefix or "main", epoch.total_step_count
        tqdm.write(render(f"{prefix} | {env_steps:,} env steps", 1, {prefix: self.statistics}))
        for logger in self.loggers:
            logger.log_metrics(EpochTable(self.statistics, {}).scalars(prefix), step=env_steps)
        log_epoch(self.loggers, prefix, self.statistics, plots, env_steps)
