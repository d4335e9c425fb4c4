"""Built-in topics: events that every environment, and every algorithm, has."""

from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.events.decorators import (
    EventFunction,
    define_episode_stats,
    define_epoch_stats,
    define_plot,
    define_stats_grouping,
    define_step_stats,
)
from maze_pl.events.histogram import histogram
from maze_pl.events.plots import create_bar_plot, create_own_plot, create_violin_plot


def _spread_over_episodes(event: EventFunction) -> EventFunction:
    for name, reduce in (("max", max), ("min", min), ("std", np.std), ("mean", np.mean)):
        event = define_epoch_stats(reduce, output_name=name)(event)
    return event


def _distribution(event: EventFunction) -> EventFunction:
    """All values, for each sub-step and each name."""
    return define_epoch_stats(histogram)(define_stats_grouping("step_key", "name")(event))


def _total_and_steps(event: EventFunction) -> EventFunction:
    """The total of an episode, and the values of all its steps."""
    event = define_step_stats(sum)(define_step_stats(None, output_name="each")(event))
    event = define_episode_stats(sum)(define_episode_stats(None, input_name="each", output_name="steps")(event))
    event = define_epoch_stats(histogram, input_name="steps", output_name="step")(event)
    return define_epoch_stats(np.mean, output_name="mean_episode_total")(event)


def _mean_of_sub_step(event: EventFunction) -> EventFunction:
    return define_epoch_stats(np.mean)(define_stats_grouping("step_key")(event))


def _mean_of_head(event: EventFunction) -> EventFunction:
    return define_epoch_stats(np.mean)(define_stats_grouping("step_key", "head")(event))


class BaseEnvEvents:
    """What is known of every environment: its reward, how long episodes take, and its KPIs.

    `EpochStatistics` adds `total_step_count` and `total_episode_count`, which count over the whole run.
    """

    @_spread_over_episodes
    @define_epoch_stats(len, output_name="episode_count")
    @define_epoch_stats(np.mean, input_name="step_count", output_name="mean_step_count")
    @define_epoch_stats(np.median, input_name="step_count", output_name="median_step_count")
    @define_episode_stats(sum)
    @define_episode_stats(len, output_name="step_count")
    @define_step_stats(sum)
    def reward(self, value: float) -> None:
        """The environment's own reward, before any wrapper changed it."""

    @_spread_over_episodes
    @define_episode_stats(np.mean)
    @define_stats_grouping("name")
    def kpi(self, name: str, value: float) -> None:
        """A key performance indicator of the episode that ended."""


class DiscreteActionEvents:
    """Actions of discrete, multi-discrete and multi-binary heads."""

    @_distribution
    def action(self, step_key: StepKey, name: str, value: Any, num_actions: int) -> None:
        """An action was taken; `value` is one choice, or an array of them, out of `num_actions`."""


class ContinuousActionEvents:
    """Actions of box heads."""

    @_distribution
    def action(self, step_key: StepKey, name: str, value: Any) -> None:
        """An action was taken; `value` is an array in the shape of the box."""


class ActionEvents:
    """Pictures of a sample of the actions; numbers about all of them are those of the two topics above."""

    @define_plot(create_bar_plot)
    @define_stats_grouping("step_key", "name", "choices")
    def discrete_action(self, step_key: StepKey, name: str, choices: str, value: int) -> None:
        """One of the `choices`, such as "0_to_3", was made."""

    @define_plot(create_bar_plot)
    @define_stats_grouping("step_key", "name")
    def binary_action(self, step_key: StepKey, name: str, value: Any) -> None:
        """Several choices between yes and no were made."""

    @define_plot(create_violin_plot)
    @define_stats_grouping("step_key", "name")
    def continuous_action(self, step_key: StepKey, name: str, value: Any) -> None:
        """Values in the shape of a box were chosen."""


class ObservationEvents:
    """Observations, before and after wrappers processed them."""

    @_distribution
    def observation_original(self, step_key: StepKey, name: str, value: Any) -> None:
        """What the environment returned."""

    @_distribution
    def observation_processed(self, step_key: StepKey, name: str, value: Any) -> None:
        """What the policy gets to see."""


class ObservationVisualizationEvents:
    """Pictures of observations by functions of the user's own."""

    @define_plot(create_own_plot)
    @define_stats_grouping("plot_function", "step_key", "name")
    def observation(self, plot_function: str, step_key: StepKey, name: str, value: Any) -> None:
        """What the policy got to see; `plot_function` is the path of the function that draws it."""


class RewardEvents:
    """Rewards, before and after wrappers processed them, one entry for each environment step."""

    @_total_and_steps
    def reward_original(self, value: float) -> None:
        """What the environment returned."""

    @_total_and_steps
    def reward_processed(self, value: float) -> None:
        """What the algorithm learns from."""


class RewardShareEvents:
    """What the parts of a combined reward contribute to it."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="value")
    @define_stats_grouping("name")
    def share(self, name: str, value: float) -> None:
        """A part's contribution to the reward of a step, its weight included."""


class ActorCriticEvents:
    """What actor-critic algorithms report: means over the updates of an epoch, for each step key."""

    @define_epoch_stats(np.mean)
    def time_epoch(self, value: float) -> None:
        """Seconds that the epoch took."""

    @define_epoch_stats(np.mean)
    def time_rollout(self, value: float) -> None:
        """Seconds that collecting one rollout took."""

    @define_epoch_stats(np.mean)
    def time_update(self, value: float) -> None:
        """Seconds that learning from one rollout took."""

    @define_epoch_stats(np.mean)
    def learning_rate(self, value: float) -> None:
        """Learning rate of the update."""

    @_mean_of_sub_step
    def policy_loss(self, step_key: StepKey, value: float) -> None:
        """Loss of the policy, without the entropy bonus."""

    @_mean_of_sub_step
    def policy_grad_norm(self, step_key: StepKey, value: float) -> None:
        """L2 norm of the policy's gradient, before clipping."""

    @_mean_of_sub_step
    def policy_entropy(self, step_key: StepKey, value: float) -> None:
        """Entropy of the policy's action distribution."""

    @_mean_of_sub_step
    def critic_value(self, step_key: StepKey, value: float) -> None:
        """Value that the critic estimates."""

    @_mean_of_sub_step
    def critic_value_loss(self, step_key: StepKey, value: float) -> None:
        """Loss of the critic."""

    @_mean_of_sub_step
    def critic_grad_norm(self, step_key: StepKey, value: float) -> None:
        """L2 norm of the critic's gradient, before clipping."""


class ImitationEvents:
    """What learning from demonstrations reports: means over the acts, or the updates, of an epoch."""

    time_epoch, time_update = ActorCriticEvents.time_epoch, ActorCriticEvents.time_update
    learning_rate, policy_entropy = ActorCriticEvents.learning_rate, ActorCriticEvents.policy_entropy
    policy_loss, policy_grad_norm = ActorCriticEvents.policy_loss, ActorCriticEvents.policy_grad_norm

    @_mean_of_sub_step
    def policy_l2_norm(self, step_key: StepKey, value: float) -> None:
        """L2 norm of the policy's parameters at the end of the epoch."""

    @_mean_of_head
    def discrete_accuracy(self, step_key: StepKey, head: str, value: float) -> None:
        """Share of discrete choices that the policy, at its most likely, makes like the demonstrations."""

    @_mean_of_head
    def multi_binary_accuracy(self, step_key: StepKey, head: str, value: float) -> None:
        """The same of bits."""

    @_mean_of_head
    def box_mean_abs_deviation(self, step_key: StepKey, head: str, value: float) -> None:
        """How far the policy's most likely action is from that of the demonstrations, a mean over components."""


_ALL = list(vars().values())
BUILT_IN_TOPICS: tuple[type, ...] = tuple(one for one in _ALL if isinstance(one, type) and one.__module__ == __name__)
"""Topics that go by their own name in `EpisodeSummary.statistics`."""
