"""Events: what happens in an environment, declared once, aggregated from step to episode to epoch."""

from maze_pl.events.context import EnvironmentContext
from maze_pl.events.declaration import EventDeclaration, declarations, event_path
from maze_pl.events.decorators import (
    define_episode_stats,
    define_epoch_stats,
    define_plot,
    define_stats_grouping,
    define_step_stats,
)
from maze_pl.events.episode_statistics import EpisodeStatistics
from maze_pl.events.epoch_statistics import EpochStatistics
from maze_pl.events.event_logs import EventLogFiles, EventLogWriter
from maze_pl.events.histogram import Histogram, histogram
from maze_pl.events.kpi import EpisodeEventLog, KpiCalculator, StepEventLog
from maze_pl.events.pubsub import EventRecord, EventTopic, Pubsub, Subscriber
from maze_pl.events.summary_state import summary_from_dict, summary_to_dict
from maze_pl.events.topics import (
    ActionEvents,
    ActorCriticEvents,
    BaseEnvEvents,
    ContinuousActionEvents,
    DiscreteActionEvents,
    ObservationEvents,
    ObservationVisualizationEvents,
    RewardEvents,
    RewardShareEvents,
)

__all__ = [
    "ActionEvents",
    "ActorCriticEvents",
    "BaseEnvEvents",
    "ContinuousActionEvents",
    "DiscreteActionEvents",
    "EnvironmentContext",
    "EpisodeEventLog",
    "EpisodeStatistics",
    "EpochStatistics",
    "EventDeclaration",
    "EventLogFiles",
    "EventLogWriter",
    "EventRecord",
    "EventTopic",
    "Histogram",
    "KpiCalculator",
    "ObservationEvents",
    "ObservationVisualizationEvents",
    "Pubsub",
    "RewardEvents",
    "RewardShareEvents",
    "StepEventLog",
    "Subscriber",
    "declarations",
    "define_episode_stats",
    "define_epoch_stats",
    "define_plot",
    "define_stats_grouping",
    "define_step_stats",
    "event_path",
    "histogram",
    "summary_from_dict",
    "summary_to_dict",
]
