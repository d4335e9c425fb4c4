"""Wrappers that split an environment step, and fire events before the simulation is stepped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from maze_pl.envs import Wrapper, check_env
from maze_pl.envs.wrappers import EventLogsWrapper, LogStatsWrapper
from maze_pl.events import EventLogFiles
from tests.envs.split_steps import BidEvents, BidFirstWrapper, ForgetfulBidFirstWrapper, make_auction_env, play_auction

PRICES, AMOUNTS = [1, 2, 3, 0, 1, 2], [3, 0, 1, 2, 0, 1]


def test_events_of_the_first_sub_step_reach_the_reward_of_its_environment_step() -> None:
    env = BidFirstWrapper.wrap(make_auction_env())
    rewards = play_auction(env, PRICES, AMOUNTS)
    assert rewards == [10 * price + amount for price, amount in zip(PRICES, AMOUNTS, strict=True)]


def test_events_of_the_first_sub_step_have_the_time_of_its_environment_step(tmp_path: Path) -> None:
    env = LogStatsWrapper.wrap(
        EventLogsWrapper.wrap(BidFirstWrapper.wrap(make_auction_env()), writer=EventLogFiles(str(tmp_path)))
    )
    play_auction(env, PRICES, AMOUNTS)
    env.close()
    bids, sold = (pd.read_csv(tmp_path / f"BidEvents.{event}.csv") for event in ("bid", "sold"))
    assert bids["env_time"].tolist() == sold["env_time"].tolist() == [0, 1, 2, 3, 4, 5]
    (summary,) = env.drain_episode_summaries()
    assert summary.env_steps == 6


def test_a_step_that_has_begun_does_not_begin_once_more() -> None:
    env = make_auction_env()
    env.reset(seed=0)
    env.begin_env_step()
    env.step({"amount": 1})
    assert [record.event.__name__ for record in env.get_step_events()] == ["sold", "reward"]
    for _ in range(2):
        env.begin_env_step()
        assert env.get_step_events() == []
        assert not env.context.env_step_incremented
    assert env.get_env_time() == 1


def test_the_doctor_finds_events_that_are_fired_before_the_step_has_begun() -> None:
    report = check_env(lambda: ForgetfulBidFirstWrapper.wrap(make_auction_env()), n_steps=60)
    (line,) = [line for line in report.lines if line.verdict == "error"]
    assert line.name == "events"
    assert line.explanation.startswith("BidEvents.bid of sub-step 'bid' count in the environment step before it")
    assert "begin_env_step()" in line.explanation


def test_the_doctor_finds_events_that_are_fired_before_the_step_begins_in_the_same_act() -> None:
    class Hasty(ForgetfulBidFirstWrapper):
        def announce(self, price: int) -> None:
            super().announce(price)
            self.begin_env_step()

    report = check_env(lambda: Hasty.wrap(make_auction_env()), n_steps=60)
    (line,) = [line for line in report.lines if line.verdict == "error"]
    assert line.name == "events"
    assert line.explanation.startswith(
        "BidEvents.bid of sub-step 'bid' are fired before its environment step has begun"
    )
    assert "begin_env_step()" in line.explanation


def test_the_doctor_finds_events_that_a_wrapper_fires_before_it_steps_the_simulation() -> None:
    class Announcing(Wrapper):
        def step(self, action: Any) -> Any:
            self.pubsub.create_event_topic(BidEvents).bid(price=1)
            return super().step(action)

    report = check_env(lambda: Announcing.wrap(make_auction_env()), n_steps=60)
    (line,) = [line for line in report.lines if line.verdict == "error"]
    assert line.explanation.startswith("BidEvents.bid of sub-step 0 are fired before its environment step has begun")


def test_the_doctor_leaves_no_subscriber_in_an_environment_that_it_was_given() -> None:
    env = BidFirstWrapper.wrap(make_auction_env())
    before = env.pubsub.subscribers
    check_env(env, n_steps=60)
    assert env.pubsub.subscribers == before


def test_the_doctor_warns_of_a_sub_step_that_does_not_begin_its_step() -> None:
    class Silent(ForgetfulBidFirstWrapper):
        def announce(self, price: int) -> None:
            """Nobody hears of it."""

    report = check_env(lambda: Silent.wrap(make_auction_env()), n_steps=60)
    found = [line.explanation for line in report.lines if line.name == "events"]
    assert any("sub-step 'bid' does not begin its environment step" in text for text in found)


def test_nothing_is_said_of_a_wrapper_that_begins_its_steps() -> None:
    report = check_env(lambda: BidFirstWrapper.wrap(make_auction_env()), n_steps=60)
    assert not [line for line in report.lines if line.name == "events" and line.verdict != "ok"], str(report)
