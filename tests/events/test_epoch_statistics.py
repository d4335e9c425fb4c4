from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.core.episode import EpisodeSummary
from maze_pl.events import (
    EpochStatistics,
    EventRecord,
    Histogram,
    define_episode_stats,
    define_epoch_stats,
    define_plot,
    define_stats_grouping,
    define_step_stats,
    histogram,
)
from maze_pl.events.episode_statistics import EpisodeStatistics
from maze_pl.events.topics import StatisticsError


def draw(values: list[Any], groups: tuple[str, ...]) -> tuple[str, float, tuple[str, ...]]:
    return "figure", float(np.sum(values)), groups


class FarmEvents:
    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def harvested(self, kind: str, amount: int) -> None: ...

    @define_epoch_stats(np.mean, input_name="mean", output_name="mean")
    @define_epoch_stats(np.max, input_name="max", output_name="max")
    @define_episode_stats(np.mean, output_name="mean")
    @define_episode_stats(max, output_name="max")
    @define_step_stats(max)
    def wind(self, value: int) -> None: ...

    @define_epoch_stats(np.mean)
    @define_episode_stats(np.mean)
    @define_step_stats(sum, input_name="amount")
    @define_stats_grouping("kind")
    def sown(self, kind: str, amount: int) -> None: ...

    @define_epoch_stats(histogram)
    @define_plot(draw)
    @define_stats_grouping("kind")
    def weighed(self, kind: str, amount: int) -> None: ...


class BadEvents:
    @define_epoch_stats(lambda values: np.array(values))
    @define_episode_stats(sum)
    @define_step_stats(len)
    def many(self) -> None: ...


Step = list[tuple[str, str, int]]  # events as (event, kind, amount)
KINDS = ("rye", "oats")
FARM = f"{__name__}:FarmEvents"


def played(steps: list[Step], **fields: Any) -> EpisodeSummary:
    statistics = EpisodeStatistics()
    for step in steps:
        for event, kind, amount in step:
            attributes = {"value": amount} if event == "wind" else {"kind": kind, "amount": amount}
            statistics.receive(EventRecord(FarmEvents, getattr(FarmEvents, event), attributes, 0))
        statistics.end_step()
    summary = statistics.end_episode()
    for name, value in fields.items():
        setattr(summary, name, value)
    return summary


def computed(*summaries: EpisodeSummary, topics: tuple[type, ...] = ()) -> dict[str, float | Histogram]:
    epoch = EpochStatistics(topics)
    for summary in summaries:
        epoch.add(summary)
    return epoch.compute()


def episode(env_index: int, episode_index: int, reward: float, env_steps: int = 1, **kpis: float) -> EpisodeSummary:
    return EpisodeSummary({}, env_steps, reward, kpis, env_index, episode_index)


def bits(value: Any) -> Any:
    """Something that is equal only if every bit is."""
    if isinstance(value, dict):
        return {key: bits(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value.hex() if isinstance(value, float) else value


def test_reward_and_step_statistics_of_three_episodes() -> None:
    result = computed(episode(0, 0, 1.0, 10), episode(1, 0, 2.0, 20), episode(0, 1, 6.0, 60))
    assert result == {
        "BaseEnvEvents/reward/episode_count": 3.0,
        "BaseEnvEvents/reward/max": 6.0,
        "BaseEnvEvents/reward/mean": 3.0,
        "BaseEnvEvents/reward/mean_step_count": 30.0,
        "BaseEnvEvents/reward/median_step_count": 20.0,
        "BaseEnvEvents/reward/min": 1.0,
        "BaseEnvEvents/reward/std": pytest.approx((14 / 3) ** 0.5),
        "BaseEnvEvents/reward/total_episode_count": 3.0,
        "BaseEnvEvents/reward/total_step_count": 90.0,
    }
    assert all(type(value) is float for value in result.values())


def test_kpis_are_averaged_over_the_episodes_that_have_them() -> None:
    result = computed(episode(0, 0, 0.0, usage=1.0), episode(0, 1, 0.0, usage=3.0), episode(0, 2, 0.0, waste=9.0))
    kpis = {name.removeprefix("BaseEnvEvents/kpi/"): value for name, value in result.items() if "/kpi/" in name}
    assert kpis == {
        **{"mean/usage": 2.0, "std/usage": 1.0, "min/usage": 1.0, "max/usage": 3.0},
        **{"mean/waste": 9.0, "std/waste": 0.0, "min/waste": 9.0, "max/waste": 9.0},
    }


def test_totals_go_on_while_epochs_begin_anew() -> None:
    epoch = EpochStatistics()
    epoch.add(episode(0, 0, 1.0, 10))
    epoch.compute()
    epoch.add(episode(0, 1, 5.0, 20))
    result = epoch.compute()
    assert (result["BaseEnvEvents/reward/mean"], result["BaseEnvEvents/reward/episode_count"]) == (5.0, 1.0)
    assert result["BaseEnvEvents/reward/total_step_count"] == 30.0
    assert result["BaseEnvEvents/reward/total_episode_count"] == 2.0


def test_an_epoch_without_episodes_has_counts_only() -> None:
    epoch = EpochStatistics()
    epoch.add(episode(0, 0, 1.0, 10))
    epoch.compute()
    assert epoch.compute() == {
        "BaseEnvEvents/reward/episode_count": 0.0,
        "BaseEnvEvents/reward/total_episode_count": 1.0,
        "BaseEnvEvents/reward/total_step_count": 10.0,
    }


def test_an_episode_without_an_event_counts_as_zero_for_sums_and_not_at_all_for_means() -> None:
    busy = played([[("harvested", "rye", 1)] * 4 + [("wind", "", 8)]])
    calm = played([[], []])
    result = computed(busy, calm)
    assert result["FarmEvents/harvested/mean_episode_total"] == 2.0
    assert (result["FarmEvents/wind/mean"], result["FarmEvents/wind/max"]) == (8.0, 8.0)


def test_plots_get_all_values_of_the_epoch_by_group() -> None:
    epoch = EpochStatistics()
    epoch.add(played([[("weighed", "rye", 1)], [("weighed", "oats", 5)]]))
    epoch.add(played([[("weighed", "rye", 2)]]))
    assert epoch.compute_plots() == {
        "FarmEvents/weighed/oats": ("figure", 5.0, ("oats",)),
        "FarmEvents/weighed/rye": ("figure", 3.0, ("rye",)),
    }
    assert str(epoch.compute()["FarmEvents/weighed/rye"]) == "[len:2, μ:1.5]"


def test_values_of_different_shapes_are_joined() -> None:
    key = (FARM, "weighed", None, ("rye",))
    one = EpisodeSummary({key: np.ones((2, 3))}, 1, 0.0)
    two = EpisodeSummary({key: np.zeros(4)}, 1, 0.0)
    assert computed(one, two)["FarmEvents/weighed/rye"] == Histogram.of([0.0] * 4 + [1.0] * 6)


def test_topics_defined_in_a_function_have_to_be_passed_along() -> None:
    class LocalEvents:
        @define_epoch_stats(np.mean)
        @define_episode_stats(sum)
        @define_step_stats(len)
        def happened(self) -> None: ...

    statistics = EpisodeStatistics()
    statistics.receive(EventRecord(LocalEvents, LocalEvents.happened, {}, 0))
    summary = statistics.end_episode()
    assert computed(summary, topics=(LocalEvents,))["LocalEvents/happened"] == 1.0
    with pytest.raises(ValueError, match=r"cannot be imported.*EpochStatistics\(topics="):
        computed(summary)


def test_an_epoch_statistic_must_be_one_number() -> None:
    summary = EpisodeSummary({(f"{__name__}:BadEvents", "many", None, ()): 1.0}, 1, 0.0)
    with pytest.raises(StatisticsError, match=r"epoch statistic None of BadEvents.many.* got an array of shape \(2,\)"):
        computed(summary, summary)


def test_an_event_with_several_attributes_names_them_if_none_is_chosen() -> None:
    class Putting:
        @define_epoch_stats(np.mean)
        @define_episode_stats(sum)
        @define_step_stats(sum)
        def put(self, size: float, bin_number: int) -> None: ...

    statistics = EpisodeStatistics()
    statistics.receive(EventRecord(Putting, Putting.put, {"size": 3.0, "bin_number": 1}, 0))
    message = (
        r"statistic None of Putting.put, .*; put has the attributes \['size', 'bin_number'\]: name one by input_name"
    )
    with pytest.raises(StatisticsError, match=message):
        statistics.end_episode()


def test_totals_go_on_from_a_checkpoint() -> None:
    epoch, resumed, file = EpochStatistics(), EpochStatistics(), io.BytesIO()
    epoch.add(episode(0, 0, 1.0, np.int64(10)))  # type: ignore[arg-type]
    epoch.compute()
    torch.save(epoch.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for one in (epoch, resumed):
        one.add(episode(0, 1, 2.0, 5))
    assert epoch.compute() == resumed.compute()
    assert resumed.state_dict() == {"total_step_count": 15, "total_episode_count": 2}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.randoms())
def test_the_order_of_adding_does_not_matter(rewards: list[float], shuffler: random.Random) -> None:
    summaries = [episode(index % 3, index // 3, reward, kpi=reward / 3) for index, reward in enumerate(rewards)]
    expected = computed(*summaries)
    shuffler.shuffle(summaries)
    assert bits(computed(*summaries)) == bits(expected)


def reference(episodes: list[list[Step]]) -> dict[str, Any]:
    """The statistics of `FarmEvents`, written down once more: slowly, event by event, straight from the definition."""
    result: dict[str, Any] = {}
    occurred = {(event, kind) for steps in episodes for step in steps for event, kind, _ in step}

    totals = [sum(len([e for e in step if e[0] == "harvested"]) for step in steps) for steps in episodes]
    if occurred:  # the topic is known, so that no harvest is a harvest of nothing
        result["harvested/mean_episode_total"] = sum(totals) / len(totals)

    gusts = [
        [max(a for e, _, a in s if e == "wind") for s in steps if "wind" in [x[0] for x in s]] for steps in episodes
    ]
    gusts = [episode_gusts for episode_gusts in gusts if episode_gusts]
    if gusts:
        result["wind/mean"] = sum(sum(g) / len(g) for g in gusts) / len(gusts)
        result["wind/max"] = max(max(g) for g in gusts)

    for kind in KINDS:
        if ("sown", kind) in occurred:
            sown = [[a for step in steps for e, k, a in step if (e, k) == ("sown", kind)] for steps in episodes]
            per_episode = [sum(amounts) / len(steps) for amounts, steps in zip(sown, episodes, strict=True)]
            result[f"sown/{kind}"] = sum(per_episode) / len(per_episode)
        if ("weighed", kind) in occurred:
            seen = [a for steps in episodes for step in steps for e, k, a in step if (e, k) == ("weighed", kind)]
            result[f"weighed/{kind}"] = (len(seen), sum(seen) / len(seen))
    return result


FARM_EVENT = st.tuples(
    st.sampled_from(["harvested", "wind", "sown", "weighed"]), st.sampled_from(KINDS), st.integers(-50, 50)
)
FARM_EPISODE = st.lists(st.lists(FARM_EVENT, max_size=4), min_size=1, max_size=5)


@given(st.lists(FARM_EPISODE, min_size=1, max_size=5))
def test_aggregation_is_the_definition(episodes: list[list[Step]]) -> None:
    result = computed(*(played(steps, env_index=index) for index, steps in enumerate(episodes)))
    numbers = {
        name.removeprefix("FarmEvents/"): (value.count, value.mean) if isinstance(value, Histogram) else value
        for name, value in result.items()
        if name.startswith("FarmEvents/")
    }
    expected = reference(episodes)
    assert numbers.keys() == expected.keys()
    for name, value in expected.items():
        assert numbers[name] == pytest.approx(value, rel=1e-12), name
