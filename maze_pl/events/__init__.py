"""Events: what happens in an environment, declared once, aggregated from step to episode to epoch."""

from maze_pl.events.context import EnvironmentContext as EnvironmentContext
from maze_pl.events.decorators import define_episode_stats as define_episode_stats
from maze_pl.events.decorators import define_epoch_stats as define_epoch_stats
from maze_pl.events.decorators import define_plot as define_plot
from maze_pl.events.decorators import define_stats_grouping as define_stats_grouping
from maze_pl.events.decorators import define_step_stats as define_step_stats
from maze_pl.events.epoch_statistics import EpochStatistics as EpochStatistics
from maze_pl.events.event_logs import EventLogFiles as EventLogFiles
from maze_pl.events.event_logs import EventLogWriter as EventLogWriter
from maze_pl.events.histogram import Histogram as Histogram
from maze_pl.events.histogram import histogram as histogram
from maze_pl.events.kpi import EpisodeEventLog as EpisodeEventLog
from maze_pl.events.kpi import KpiCalculator as KpiCalculator
from maze_pl.events.kpi import StepEventLog as StepEventLog
from maze_pl.events.pubsub import EventRecord as EventRecord
from maze_pl.events.pubsub import Pubsub as Pubsub
from maze_pl.events.pubsub import Subscriber as Subscriber
from maze_pl.events.topics import ActionEvents as ActionEvents
from maze_pl.events.topics import ActorCriticEvents as ActorCriticEvents
from maze_pl.events.topics import BaseEnvEvents as BaseEnvEvents
from maze_pl.events.topics import ContinuousActionEvents as ContinuousActionEvents
from maze_pl.events.topics import DiscreteActionEvents as DiscreteActionEvents
from maze_pl.events.topics import ObservationEvents as ObservationEvents
from maze_pl.events.topics import ObservationVisualizationEvents as ObservationVisualizationEvents
from maze_pl.events.topics import RewardEvents as RewardEvents
from maze_pl.events.topics import RewardShareEvents as RewardShareEvents
