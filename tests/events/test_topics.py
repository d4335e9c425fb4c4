from __future__ import annotations

import numpy as np
import pytest

from maze_pl.events import (
    BaseEnvEvents,
    ContinuousActionEvents,
    DiscreteActionEvents,
    EnvironmentContext,
    EpochStatistics,
    Histogram,
    ObservationEvents,
    Pubsub,
    RewardEvents,
)
from maze_pl.events.episode_statistics import EpisodeStatistics
from maze_pl.events.topics import BUILT_IN_TOPICS, declarations


@pytest.mark.parametrize("topic", BUILT_IN_TOPICS)
def test_every_built_in_event_is_complete(topic: type) -> None:
    for declaration in declarations(topic).values():
        assert declaration.epoch or declaration.plots, f"{declaration.name} is logged nowhere"
        assert declaration.event.__doc__


def test_the_documented_statistics_of_one_episode() -> None:
    """The log of the reference documents: 15 steps, reward -29, one KPI, a discrete action."""
    pubsub = Pubsub(EnvironmentContext())
    base, discrete = pubsub.create_event_topic(BaseEnvEvents), pubsub.create_event_topic(DiscreteActionEvents)
    statistics = EpisodeStatistics()
    for step in range(15):
        base.reward(-2.0 if step else -1.0)
        discrete.action(step_key=0, name="order", value=np.int64(step % 2), num_actions=2)
        for record in pubsub.drain():
            statistics.receive(record)
        statistics.end_step()
    epoch = EpochStatistics()
    epoch.add(statistics.end_episode({"usage": 0.25}))
    result = epoch.compute()
    assert str(result.pop("DiscreteActionEvents/action/substep_0/order")) == "[len:15, μ:0.5]"
    assert result == {
        "BaseEnvEvents/kpi/max/usage": 0.25,
        "BaseEnvEvents/kpi/mean/usage": 0.25,
        "BaseEnvEvents/kpi/min/usage": 0.25,
        "BaseEnvEvents/kpi/std/usage": 0.0,
        "BaseEnvEvents/reward/episode_count": 1.0,
        "BaseEnvEvents/reward/max": -29.0,
        "BaseEnvEvents/reward/mean": -29.0,
        "BaseEnvEvents/reward/mean_step_count": 15.0,
        "BaseEnvEvents/reward/median_step_count": 15.0,
        "BaseEnvEvents/reward/min": -29.0,
        "BaseEnvEvents/reward/std": 0.0,
        "BaseEnvEvents/reward/total_episode_count": 1.0,
        "BaseEnvEvents/reward/total_step_count": 15.0,
    }


def test_other_topics_end_up_under_their_documented_names() -> None:
    pubsub = Pubsub(EnvironmentContext())
    continuous = pubsub.create_event_topic(ContinuousActionEvents)
    observation, reward = pubsub.create_event_topic(ObservationEvents), pubsub.create_event_topic(RewardEvents)
    statistics = EpisodeStatistics()
    for step in range(2):
        continuous.action("drive", "wheels", np.array([step, 3.0], np.float32))
        observation.observation_original(0, "image", np.full((2, 2), 255, np.uint8))
        observation.observation_processed(0, "image", np.ones((2, 2), np.float32))
        reward.reward_original(10.0)
        reward.reward_processed(0.5)
        for record in pubsub.drain():
            statistics.receive(record)
        statistics.end_step()
    epoch = EpochStatistics()
    epoch.add(statistics.end_episode())
    result = epoch.compute()
    assert result["ContinuousActionEvents/action/substep_drive/wheels"] == Histogram.of([0.0, 1.0, 3.0, 3.0])
    assert str(result["ObservationEvents/observation_original/substep_0/image"]) == "[len:8, μ:255.0]"
    assert str(result["ObservationEvents/observation_processed/substep_0/image"]) == "[len:8, μ:1.0]"
    assert result["RewardEvents/reward_original/mean_episode_total"] == 20.0
    assert result["RewardEvents/reward_processed/step"] == Histogram.of([0.5, 0.5])
