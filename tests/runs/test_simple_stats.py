from __future__ import annotations

import csv
import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytorch_lightning.loggers.logger import Logger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from maze_pl import SimpleStatsLoggingSetup
from maze_pl.callbacks import MetricsFile, TensorBoardLog
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from maze_pl.events import define_episode_stats, define_epoch_stats, define_step_stats
from maze_pl.runs import simple_stats
from tests.events.depot import SalesReward, make_depot

ACTION = {"amount": np.array([2.0], np.float32)}


class OwnWriter(Logger):
    """A user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[dict[str, float], int | None]] = []

    @property
    def name(self) -> str:
        return "own"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Not wanted."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((metrics, step))


def depot(**options: Any) -> LogStatsWrapper:
    return LogStatsWrapper.wrap(make_depot(SalesReward()), **options)


def act(env: Any, n_steps: int, seed: int = 0) -> list[float]:
    env.reset(seed=seed)
    return [env.step(ACTION)[1] for _ in range(n_steps)]


def test_leaving_the_block_closes_the_unfinished_episode_and_prints_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = depot(logging_prefix="main")
    with SimpleStatsLoggingSetup(env) as setup:
        rewards = act(env, 5), act(env, 3, seed=1)
        assert capsys.readouterr().out == ""
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "main | 8 env steps"
    assert setup.statistics["BaseEnvEvents/reward/episode_count"] == 2
    assert setup.statistics["BaseEnvEvents/reward/max"] == max(map(sum, rewards))
    assert setup.statistics["BaseEnvEvents/reward/min"] == min(map(sum, rewards))
    shown = [line for line in lines if "step_max" in line]
    assert len(shown) == 1
    assert shown[0].split()[:3] == ["1|main", "InventoryEvents", "pieces_in_inventory"]
    assert all("| " in line for line in lines[4:])
    assert env.drain_episode_summaries() == []


def test_episodes_from_before_the_block_do_not_count() -> None:
    env = depot()
    act(env, 5)
    with SimpleStatsLoggingSetup(env) as setup:
        act(env, 2)
    assert setup.statistics["BaseEnvEvents/reward/total_step_count"] == 2


def test_a_line_below_the_table_says_how_many_unfinished_episodes_are_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for counts, shown, n_episodes in ((False, True, 1), (True, False, 3)):
        env = depot(count_unfinished=counts)
        with SimpleStatsLoggingSetup(env) as setup:
            for _ in range(3):
                act(env, 2)
        last = capsys.readouterr().out.splitlines()[-1]
        assert ("are not counted: 2; LogStatsWrapper(env, count_unfinished=True) counts them" in last) == shown
        assert setup.statistics["BaseEnvEvents/reward/episode_count"] == n_episodes


def test_two_blocks_know_nothing_of_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for prefix in ("one", "two"):
        env = depot(logging_prefix=prefix)
        with SimpleStatsLoggingSetup(env) as setup:
            act(env, 4)
        assert setup.statistics["BaseEnvEvents/reward/total_episode_count"] == 1
        assert f"{prefix} | 4 env steps" in capsys.readouterr().out


def test_loggers_get_what_is_printed(tmp_path: Path) -> None:
    own, env = OwnWriter(), depot(logging_prefix="hand")
    with SimpleStatsLoggingSetup(env, [TensorBoardLog(str(tmp_path)), own]) as setup:
        act(env, 5)
    ((metrics, step),) = own.rows
    assert step == 5
    assert set(metrics) == {f"hand_{name}" for name in setup.statistics}
    assert metrics["hand_BaseEnvEvents/kpi/mean/level"] == setup.statistics["BaseEnvEvents/kpi/mean/level"]
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == set(metrics)
    assert events.Scalars("hand_BaseEnvEvents/reward/mean")[0].step == 5
    assert events.Tags()["histograms"] == [
        "hand_ContinuousActionEvents/action/substep_0/amount/histogram",
        "hand_SalesEvents/sold/ann/histogram",
        "hand_SalesEvents/sold/bob/histogram",
    ]
    assert events.Tags()["images"] == ["hand_SalesEvents/sold/ann", "hand_SalesEvents/sold/bob"]


def test_further_blocks_continue_steps_and_totals_of_the_same_environment(tmp_path: Path) -> None:
    own, metrics = OwnWriter(), MetricsFile(str(tmp_path))
    env = TimeLimitWrapper.wrap(depot(logging_prefix="hand"), max_episode_steps=9)
    ends, totals, means = [], [], []
    for block, lengths in enumerate(([5], [2, 3], [4])):
        with SimpleStatsLoggingSetup(env, [own, metrics]) as setup:
            returns = []
            for episode, n_steps in enumerate(lengths):
                returns.append(sum(act(env, n_steps, seed=10 * block + episode)))
                env.close_episode()
        ends.append(setup.statistics["BaseEnvEvents/reward/total_step_count"])
        totals.append(setup.statistics["BaseEnvEvents/reward/total_episode_count"])
        means.append(sum(returns) / len(returns))
        assert setup.statistics["BaseEnvEvents/reward/episode_count"] == len(lengths)
        assert setup.statistics["BaseEnvEvents/reward/mean"] == pytest.approx(means[-1])
    assert ends == [5, 10, 14] and totals == [1, 3, 4]
    assert [step for _, step in own.rows] == ends
    with (tmp_path / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == ends
    assert [float(row["hand_BaseEnvEvents/reward/mean"]) for row in rows] == pytest.approx(means)


def test_topics_that_cannot_be_imported_are_known_from_the_environment() -> None:
    class LocalEvents:
        @define_epoch_stats(np.mean, output_name="mean")
        @define_episode_stats(sum)
        @define_step_stats(len)
        def happened(self) -> None: ...

    env = depot()
    topic = env.pubsub.create_event_topic(LocalEvents)
    with SimpleStatsLoggingSetup(env) as setup:
        env.reset(seed=0)
        for _ in range(2):
            topic.happened()
            env.step(ACTION)
    assert setup.statistics["LocalEvents/happened/mean"] == 2


def test_the_wrapper_that_keeps_statistics_may_be_anywhere_in_the_stack() -> None:
    env = TimeLimitWrapper.wrap(depot(), max_episode_steps=9)
    with SimpleStatsLoggingSetup(env) as setup:
        act(env, 5)
    assert setup.statistics["BaseEnvEvents/reward/episode_count"] == 1
    with pytest.raises(TypeError, match=r"keeps no statistics: wrap it with LogStatsWrapper\.wrap\(env\) first"):
        SimpleStatsLoggingSetup(make_depot())


def test_an_error_in_the_block_is_not_hidden_and_an_interrupt_still_shows_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for error, shown in ((KeyError, False), (KeyboardInterrupt, True)):
        env = depot()
        with pytest.raises(error), SimpleStatsLoggingSetup(env):
            act(env, 2)
            raise error
        assert ("main | 2 env steps" in capsys.readouterr().out) == shown


def test_the_example_runs() -> None:
    assert doctest.testmod(simple_stats).failed == 0
