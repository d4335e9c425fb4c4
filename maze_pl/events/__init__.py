"""Events: declared once in a topic, aggregated from step to episode to epoch.

Environments and algorithms decide which events are fired, and when.
"""

from maze_pl.core.histogram import Histogram as Histogram, histogram as histogram

from .episode_log import EpisodeEventLog as EpisodeEventLog, KpiCalculator as KpiCalculator
from .episode_log import RunningKpiCalculator as RunningKpiCalculator, StepEventLog as StepEventLog
from .event_logs import EventLogFiles as EventLogFiles, EventLogWriter as EventLogWriter
from .folding import RunningReducer as RunningReducer
from .pubsub import EnvironmentContext as EnvironmentContext, EventRecord as EventRecord
from .pubsub import Pubsub as Pubsub, Subscriber as Subscriber
from .epoch_statistics import EpochStatistics as EpochStatistics
from .topics import ActionEvents as ActionEvents, BaseEnvEvents as BaseEnvEvents, ObservationEvents as ObservationEvents
from .topics import ContinuousActionEvents as ContinuousActionEvents, DiscreteActionEvents as DiscreteActionEvents
from .topics import ObservationVisualizationEvents as ObservationVisualizationEvents, RewardEvents as RewardEvents
from .topics import RewardShareEvents as RewardShareEvents, define_episode_stats as define_episode_stats
from .topics import define_epoch_stats as define_epoch_stats, define_plot as define_plot
from .topics import define_stats_grouping as define_stats_grouping, define_step_stats as define_step_stats
