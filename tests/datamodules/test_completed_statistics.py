"""Wrappers whose statistics cannot be collected ahead of time are refused by name."""

from __future__ import annotations

import pytest

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.datamodules import ActorDataModule
from maze_pl.datamodules.completed_statistics import require_rebasing
from maze_pl.envs import Wrapper
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    TimeLimitWrapper,
)
from tests.datamodules.drift import Drift
from tests.datamodules.probe import fit
from tests.datamodules.step_counts import MergedElsewhere, StepCount, UnfitCount

FIT = [
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    TimeLimitWrapper,
    StepCount,
]


@pytest.mark.parametrize("kind", FIT)
def test_wrappers_that_rebase_or_have_the_same_statistics_everywhere_are_accepted(kind: type[Wrapper]) -> None:
    require_rebasing({"it": kind}, "a test")


@pytest.mark.parametrize("kind", [UnfitCount, MergedElsewhere])
def test_a_class_that_merges_without_rebasing_is_refused_by_name(kind: type[Wrapper]) -> None:
    message = r"the wrappers \['it'\] define merge_shared_states, but not rebase_shared_state: a test merges"
    with pytest.raises(TypeError, match=message):
        require_rebasing({"other": StepCount, "it": kind}, "a test")


@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
def test_actors_in_workers_need_rebasing_and_those_in_this_process_do_not() -> None:
    def make(engine: Engine) -> ActorDataModule:
        options = {"num_actors": 2, "actors_batch_size": 2, "n_rollout_steps": 5, "epoch_length": 2, "seed": 3}
        return ActorDataModule(Drift, [UnfitCount], engine=engine, evaluators={}, **options)

    with pytest.raises(TypeError, match=r"step_counts.UnfitCount'\] define .* ActorDataModule on a ProcessEngine"):
        fit(make(ProcessEngine(2)))
    assert len(fit(make(InProcessEngine())).rollouts) == 2
