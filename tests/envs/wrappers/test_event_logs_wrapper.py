from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from maze_pl.collect import Collector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import ObservationWrapper, Wrapper
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import EventLogsWrapper, LogStatsWrapper, TimeLimitWrapper, event_logs_wrapper
from maze_pl.events import EventLogFiles, EventLogWriter, EventRecord
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from tests.envs.structured_example import make_heap_env


class Kept(EventLogWriter):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def write(self, episode_id: str, record: EventRecord) -> None:
        self.kept.append((episode_id, record.event.__name__, record.attributes, record.env_time))

    def end_episode(self) -> None:
        self.kept.append("end")

    def close(self) -> None:
        self.kept.append("closed")


def play(env: Wrapper, seed: int) -> None:
    env.reset(seed=seed)
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step({"amount": 1})
        ended = terminated or truncated


def test_a_writer_gets_every_event_of_every_topic_in_order() -> None:
    writer = Kept()
    env = TimeLimitWrapper.wrap(EventLogsWrapper.wrap(make_heap_env(), writer=writer), max_episode_steps=9)
    play(env, seed=0)
    episode = env.get_episode_id()
    reward = (episode, "reward", {"value": 0.0}, 0)
    assert writer.kept[:4] == [
        (episode, "cleared", {}, 0),
        reward,
        (episode, "added", {"worker": 0, "amount": 1}, 0),
        reward,
    ]
    assert [one[1] for one in writer.kept[:-1]].count("added") == 10
    assert writer.kept[-1] == "end"
    env.close()
    assert writer.kept[-1] == "closed"


def test_all_events_of_a_step_have_its_time_also_those_after_it_was_completed() -> None:
    writer = Kept()
    play(EventLogsWrapper.wrap(make_heap_env(), writer=writer), seed=0)
    times = {event: [kept[3] for kept in writer.kept[:-1] if kept[1] == event] for event in ("added", "reward")}
    assert times == {"added": [0, 0, 0, 1, 1, 1, 2, 2, 3, 3], "reward": [0] * 4 + [1] * 4 + [2] * 3 + [3] * 3}


def test_episodes_cut_off_by_a_wrapper_inside_end_too() -> None:
    writer = Kept()
    env = EventLogsWrapper.wrap(TimeLimitWrapper.wrap(make_heap_env(), max_episode_steps=1), writer=writer)
    play(env, seed=0)
    play(env, seed=1)
    assert writer.kept.count("end") == 2
    assert len({one[0] for one in writer.kept if one != "end"}) == 2


def test_files_agree_with_the_statistics(tmp_path: Path) -> None:
    env = LogStatsWrapper.wrap(EventLogsWrapper.wrap(make_heap_env(), writer=EventLogFiles(str(tmp_path))))
    for seed in range(3):
        play(env, seed)
    summaries = env.drain_episode_summaries()
    totals = [value for one in summaries for key, value in one.statistics.items() if key[1] == "added"]
    added = pd.read_csv(tmp_path / "HeapEvents.added.csv")
    assert added.groupby("episode_id", sort=False)["amount"].sum().tolist() == totals
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("BaseEnvEvents.kpi.csv", "BaseEnvEvents.reward.csv", "HeapEvents.added.csv", "HeapEvents.cleared.csv")
    ]
    kpis = pd.read_csv(tmp_path / "BaseEnvEvents.kpi.csv")  # written with the end of each episode
    episodes = [rows for _, rows in kpis.groupby("episode_id", sort=False)]
    written = [dict(zip(rows["name"], rows["value"], strict=True)) for rows in episodes]
    assert written == [summary.kpis for summary in summaries]
    assert set(kpis["env_time"]) == {3}


def test_a_writer_is_told_of_the_end_once_more_only_where_kpis_followed() -> None:
    with_kpis, without = Kept(), Kept()
    play(LogStatsWrapper.wrap(EventLogsWrapper.wrap(make_heap_env(), writer=with_kpis)), seed=0)
    assert [one if one == "end" else one[1] for one in with_kpis.kept[-5:]] == ["reward", "end", "kpi", "kpi", "end"]
    env: Any = make_heap_env()
    env.core_env.get_kpi_calculator = lambda: None
    play(LogStatsWrapper.wrap(EventLogsWrapper.wrap(env, writer=without)), seed=0)
    assert without.kept.count("end") == 1


def test_an_environment_that_takes_over_a_state_keeps_its_rows_and_leaves_the_other_its_own(
    tmp_path: Path,
) -> None:
    one, other = (EventLogsWrapper.wrap(make_heap_env(), writer=EventLogFiles(str(tmp_path))) for _ in range(2))
    for env, n_acts in ((one, 2), (other, 4)):
        env.reset(seed=n_acts)
        for _ in range(n_acts):
            env.step({"amount": 1})
    episodes = one.get_episode_id(), other.get_episode_id()
    one.clone_from(other)
    one.step({"amount": 1})
    one.close()
    other.close()
    rewards = pd.read_csv(tmp_path / "BaseEnvEvents.reward.csv")
    assert rewards.groupby("episode_id").size()[list(episodes)].tolist() == [2, 5]


def test_files_go_to_the_run_directory_unless_something_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    play(EventLogsWrapper.wrap(make_heap_env()), seed=0)
    assert (tmp_path / "event_logs" / "HeapEvents.cleared.csv").is_file()


def test_episodes_that_statistics_are_estimated_from_are_left_out() -> None:
    class Estimating(ObservationWrapper):
        def observation(self, observation: Any) -> Any:
            return observation

        def estimate_within(self, env: Wrapper, n_samples: int, seed: int) -> None:
            play(env, seed)

    writer = Kept()
    env = LogStatsWrapper.wrap(Estimating.wrap(EventLogsWrapper.wrap(make_heap_env(), writer=writer)))
    env.estimate(3, seed=0)
    assert writer.kept == []
    play(env, seed=0)
    assert len(writer.kept) > 10


def test_the_example_runs() -> None:
    assert doctest.testmod(event_logs_wrapper).failed == 0


def test_an_episode_that_a_resumed_run_continues_keeps_its_start(tmp_path: Path) -> None:
    def collector() -> Collector:
        def make() -> Wrapper:
            return EventLogsWrapper.wrap(make_heap_env(), writer=EventLogFiles(str(tmp_path)))

        return Collector(SequentialVectorEnv([make], seed=3), 6, torch.Generator().manual_seed(1))

    first, resumed = collector(), collector()
    policy = RandomPolicy({key: step.action_space for key, step in first.spec.steps.items()})
    first.collect(policy)
    state = first.state_dict()
    first.vector.close()
    resumed.load_state_dict(state)
    resumed.collect(policy)
    resumed.collect(policy)
    resumed.vector.close()
    rewards = pd.read_csv(tmp_path / "BaseEnvEvents.reward.csv")
    n_acts = rewards.groupby(["episode_id", "episode_started"], sort=False).size()
    assert n_acts.tolist() == [14, 14, 14, 14, 8]
