"""Wrapper statistics from the start of a run to its end."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from maze_pl.datamodules.completed_statistics import CompletedStatistics
from maze_pl.datamodules.wrapper_statistics import WrapperStatistics
from maze_pl.envs import Wrapper
from maze_pl.envs.wrappers import RunningObservationNormalizationWrapper


class Counts(Wrapper):
    """Adds the counts of all copies."""

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"count": sum(state["count"] for state in states)}


class Module:
    """A module in training."""


def test_a_fit_of_another_module_begins_with_what_the_first_one_began_with() -> None:
    first, second = Module(), Module()
    statistics = WrapperStatistics()
    statistics.begin_fit(first)
    statistics.complete(CompletedStatistics({"counts": {"count": 1}}))
    statistics.merge([{"counts": {"count": 5}}, {"counts": {"count": 7}}], {"counts": Counts})
    assert statistics.complete_states == {"counts": {"count": 12}}
    statistics.begin_fit(first)
    assert statistics.complete_states == {"counts": {"count": 12}}, "the same module goes on"
    statistics.begin_fit(second)
    assert statistics.complete_states == {"counts": {"count": 1}}


def test_what_was_taken_over_is_to_be_completed_again() -> None:
    statistics = WrapperStatistics()
    statistics.take_over({"counts": {"count": 3}}, may_differ=True)
    assert statistics.complete_states is None
    assert statistics.states == {"counts": {"count": 3}}
    assert statistics.may_differ
    assert statistics.complete(CompletedStatistics({"counts": {"count": 3}, "new": {}})) == statistics.complete_states


def test_statistics_of_a_checkpoint_are_not_where_another_module_begins() -> None:
    first, second = Module(), Module()
    statistics = WrapperStatistics()
    statistics.begin_fit(first)
    statistics.load({"counts": {"count": 9}})
    assert statistics.are_of_checkpoint and not statistics.may_differ
    statistics.complete(CompletedStatistics({"counts": {"count": 9}}))
    statistics.begin_fit(second)
    assert statistics.states is None


def test_a_refusal_keeps_what_there_was() -> None:
    statistics = WrapperStatistics()
    statistics.take_over({"counts": {"count": 3}}, may_differ=False)
    with pytest.raises(ValueError, match="they do not fit"):
        statistics.complete(CompletedStatistics({}, refusal="they do not fit"))
    assert statistics.states == {"counts": {"count": 3}}
    assert statistics.complete_states is None


def test_a_copy_does_not_take_its_module_along() -> None:
    module = Module()
    statistics = WrapperStatistics()
    statistics.begin_fit(module)
    statistics.complete(CompletedStatistics({"counts": {"count": 1}}))
    statistics.merge([{"counts": {"count": 5}}], {"counts": Counts})
    copy = pickle.loads(pickle.dumps(statistics))
    assert copy.states == {"counts": {"count": 5}}
    copy.begin_fit(Module())
    assert copy.states == {"counts": {"count": 1}}


def on_device(mean: float) -> dict[str, Any]:
    """Statistics of the running normalisation as a device keeps them."""
    state: dict[str, Any] = {"window": 0, "n": torch.tensor(7), "n_new": torch.tensor(0)}
    for part, value in (("mean", mean), ("m2", 3.0), ("sum", 0.0), ("sum_squares", 0.0), ("least_std", 0.1)):
        state[part] = torch.tensor([value], dtype=torch.float64)
    return {"running": {"observation": state}}


def test_statistics_on_a_device_are_fetched_when_they_are_read() -> None:
    statistics = WrapperStatistics()
    statistics.complete(CompletedStatistics({}))
    kept = on_device(2.5)
    statistics.keep_on_device(kept, {"running": RunningObservationNormalizationWrapper}, ["running"])
    assert statistics.gathered_states is kept
    state = statistics.states["running"]["observation"]  # type: ignore[index]
    assert (state["n"], state["mean"].tolist(), type(state["n"])) == (7, [2.5], int)
    assert statistics.gathered_states is kept
    statistics.states = {}
    assert statistics.gathered_states == {}


def test_statistics_on_a_device_that_are_not_finite_are_refused_when_they_are_read() -> None:
    statistics = WrapperStatistics()
    kept, wrappers = on_device(float("nan")), {"running": RunningObservationNormalizationWrapper}
    statistics.keep_on_device(kept, wrappers, ["running"])
    with pytest.raises(ValueError, match="observation 'observation' had values that are not finite"):
        _ = statistics.states


def test_statistics_that_were_merged_on_a_device_are_not_merged_once_more() -> None:
    class Forgetting(Wrapper):
        @classmethod
        def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
            return {"count": 0.5 * sum(state["count"] for state in states)}

    statistics = WrapperStatistics()
    wrappers = {"merged": Forgetting, "gathered": Forgetting}
    statistics.keep_on_device({name: {"count": torch.tensor(8.0)} for name in wrappers}, wrappers, ["merged"])
    assert statistics.states == {"merged": {"count": 8.0}, "gathered": {"count": 4.0}}
