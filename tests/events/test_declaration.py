from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from maze_pl.events import (
    BaseEnvEvents,
    define_episode_stats,
    define_epoch_stats,
    define_plot,
    define_stats_grouping,
    define_step_stats,
    histogram,
)
from maze_pl.events.event_names import event_path, find_topic, topic_name
from maze_pl.events.topics import declarations


class StockEvents:
    @define_epoch_stats(np.mean, input_name="low", output_name="mean_low")
    @define_epoch_stats(max, input_name="high", output_name="max_high")
    @define_episode_stats(min, output_name="low")
    @define_episode_stats(max, output_name="high")
    @define_episode_stats(sum, output_name="nobody_asks")
    @define_step_stats(lambda values: values[-1])
    def level(self, value: int) -> None: ...

    @define_step_stats(len)
    @define_episode_stats(sum)
    @define_epoch_stats(np.mean)
    def sold(self, price: float, amount: int = 1) -> None: ...

    def silent(self) -> None: ...

    def _no_event(self) -> None: ...


class MoreStockEvents(StockEvents):
    def bought(self) -> None: ...


def outputs(statistics: Any) -> list[str | None]:
    return [statistic.output_name for statistic in statistics]


def test_all_public_methods_are_events_also_inherited_ones() -> None:
    assert list(declarations(StockEvents)) == ["level", "sold", "silent"]
    assert list(declarations(MoreStockEvents)) == ["level", "sold", "silent", "bought"]


def test_several_statistics_of_a_level_keep_the_order_in_which_they_are_written() -> None:
    assert outputs(declarations(StockEvents)["level"].epoch) == ["mean_low", "max_high"]


def test_episode_statistics_that_no_epoch_statistic_asks_for_are_left_out() -> None:
    assert outputs(declarations(StockEvents)["level"].episode) == ["low", "high"]


def test_decorators_work_in_any_order() -> None:
    sold = declarations(StockEvents)["sold"]
    assert [s[0].reduce for s in (sold.step, sold.episode, sold.epoch)] == [len, sum, np.mean]


def test_events_without_statistics_are_events_too() -> None:
    silent = declarations(StockEvents)["silent"]
    assert (silent.step, silent.episode, silent.epoch) == ([], [], [])


def test_levels_without_a_declaration_pass_values_on() -> None:
    class Topic:
        @define_epoch_stats(np.mean)
        @define_stats_grouping("step_key")
        def policy_loss(self, step_key: int, value: float) -> None: ...

    loss = declarations(Topic)["policy_loss"]
    assert [(s.reduce, s.input_name) for s in loss.step] == [(None, "value")]
    assert [s.reduce for s in loss.episode] == [None]
    assert loss.grouping == ["step_key"]


def test_epoch_statistics_without_lower_levels_may_name_attributes() -> None:
    class Topic:
        @define_epoch_stats(np.mean, input_name="speed", output_name="speed")
        @define_epoch_stats(max, input_name="force", output_name="force")
        def impact(self, speed: float, force: float) -> None: ...

    assert [s.input_name for s in declarations(Topic)["impact"].step] == ["speed", "force"]


def test_histograms_below_the_epoch_keep_the_values() -> None:
    class Topic:
        @define_epoch_stats(histogram)
        @define_episode_stats(histogram)
        @define_step_stats(histogram)
        def act(self, value: int) -> None: ...

    act = declarations(Topic)["act"]
    assert (act.step[0].reduce, act.episode[0].reduce, act.epoch[0].reduce) == (None, None, None)


def test_declarations_can_be_pickled_although_reducers_are_lambdas() -> None:
    level = declarations(StockEvents)["level"]
    assert pickle.loads(pickle.dumps(level)) == level


def test_an_unknown_input_is_refused_with_what_there_is() -> None:
    class Topic:
        @define_epoch_stats(np.mean, input_name="step_avg")
        @define_episode_stats(np.mean, output_name="step_mean")
        @define_step_stats(None)
        def level(self, value: int) -> None: ...

    with pytest.raises(ValueError, match=r"Topic.level: input_name='step_avg' is not one of the episode .*'step_mean'"):
        declarations(Topic)


def test_an_unknown_step_statistic_is_refused() -> None:
    class Topic:
        @define_epoch_stats(np.mean)
        @define_episode_stats(np.mean, input_name="a")
        @define_step_stats(len, output_name="b")
        def level(self, value: int) -> None: ...

    with pytest.raises(ValueError, match=r"input_name='a' is not one of the step statistics \['b'\]"):
        declarations(Topic)


def test_an_unknown_attribute_is_refused() -> None:
    class Topic:
        @define_step_stats(sum, input_name="weight")
        def lost(self, price: int) -> None: ...

    with pytest.raises(ValueError, match=r"Topic.lost: input_name='weight' is not one of its attributes \['price'\]"):
        declarations(Topic)


def test_an_attribute_that_must_be_chosen_is_asked_for() -> None:
    class Topic:
        @define_epoch_stats(np.mean)
        def lost(self, price: int, weight: int) -> None: ...

    with pytest.raises(ValueError, match="input_name must name the attribute to pass on, one of"):
        declarations(Topic)


def test_two_statistics_of_one_name_are_refused() -> None:
    class Topic:
        @define_epoch_stats(min)
        @define_epoch_stats(max)
        def lost(self, value: int) -> None: ...

    with pytest.raises(ValueError, match="two statistics of one level are called None"):
        declarations(Topic)


def test_grouping_by_an_unknown_attribute_is_refused() -> None:
    class Topic:
        @define_stats_grouping("agent")
        def lost(self, value: int) -> None: ...

    with pytest.raises(ValueError, match=r"Topic.lost is grouped by 'agent', but its attributes are \['value'\]"):
        declarations(Topic)


def test_a_plot_of_an_unknown_statistic_is_refused() -> None:
    class Topic:
        @define_plot(print, input_name="all")
        @define_episode_stats(sum)
        @define_step_stats(len)
        def lost(self) -> None: ...

    with pytest.raises(ValueError, match="input_name='all' is not one of the episode statistics"):
        declarations(Topic)


def test_open_argument_lists_are_refused() -> None:
    class Topic:
        def lost(self, **anything: int) -> None: ...

    with pytest.raises(TypeError, match=r"Topic.lost: an event must list its attributes by name"):
        declarations(Topic)


def test_an_instance_is_no_topic() -> None:
    with pytest.raises(TypeError, match="pass the class itself"):
        declarations(StockEvents())  # type: ignore[arg-type]


def test_names_of_statistics() -> None:
    assert event_path("BaseEnvEvents", "reward", "mean") == "BaseEnvEvents/reward/mean"
    assert event_path("BaseEnvEvents", "kpi", "std", ("waste",)) == "BaseEnvEvents/kpi/std/waste"
    assert event_path("a.b:Outer.Inner", "act", None, ("substep_0", "x")) == "Inner/act/substep_0/x"


def test_topics_are_found_again_by_their_names() -> None:
    assert topic_name(BaseEnvEvents) == "BaseEnvEvents"
    assert find_topic("BaseEnvEvents", ()) is BaseEnvEvents
    assert find_topic(topic_name(StockEvents), ()) is StockEvents


def test_topics_of_a_script_are_found_from_its_spawned_processes() -> None:
    topic = type("Topic", (), {"__module__": "__mp_main__", "__qualname__": "Topic"})
    assert topic_name(topic) == "__main__:Topic"


@pytest.mark.parametrize("name", ["NoSuchTopic", "no_such_module:Topic", "maze_pl.events:NoSuchTopic", "math:pi"])
def test_a_topic_that_cannot_be_found_says_what_to_do(name: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be imported; define the class at the top of a module"):
        find_topic(name, ())


def test_a_topic_defined_in_a_function_is_found_if_it_is_passed_along() -> None:
    class Local: ...

    assert find_topic(topic_name(Local), [Local]) is Local
