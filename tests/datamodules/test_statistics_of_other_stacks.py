"""What wrappers have learned reaches the same wrappers in another stack, or it is said or refused."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs.building import load_shared_states, make_wrapped, wrapper_stack
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.runs.rollout import rollout
from tests.datamodules.drift import Drift
from tests.datamodules.probe import NORMALIZED, SCALE, Probe, equal, fit, make_data, make_trainer, validate

# Lightning asks back where there are no evaluators.
pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")

OBSERVATIONS = f"{ObservationNormalizationWrapper.__module__}.ObservationNormalizationWrapper"
RETURNS = f"{ReturnNormalizationRewardWrapper.__module__}.ReturnNormalizationRewardWrapper"
LIMIT = partial(TimeLimitWrapper, max_episode_steps=1000)
RECORD = partial(TrajectoryRecordingWrapper, n_episodes=0)
SAMPLES = {"n_normalization_samples": 30}


def saved(folder: Path, *wrappers: Any) -> tuple[Path, RolloutDataModule, Probe]:
    """A checkpoint after two epochs, and what wrote it."""
    data, module, trainer = make_data(wrappers=list(wrappers), **SAMPLES), Probe(), make_trainer(2)
    trainer.fit(module, data)
    trainer.save_checkpoint(folder / "run.ckpt")
    return folder / "run.ckpt", data, module


def frozen(data: RolloutDataModule) -> dict[str, Any]:
    """What the wrappers of `make_env` know."""
    return {name: state for name, one in wrapper_stack(data.make_env()).items() if (state := one.shared_state())}


def test_names_say_class_and_place_among_its_kind_whatever_else_is_there() -> None:
    env = make_wrapped(lambda: Drift(None), [NORMALIZED, LIMIT, NORMALIZED, SCALE])
    assert [name.rpartition(".")[2] for name in wrapper_stack(env)] == [
        "LogStatsWrapper",
        "ReturnNormalizationRewardWrapper",
        "ObservationNormalizationWrapper (2 of 2)",
        "TimeLimitWrapper",
        "ObservationNormalizationWrapper (1 of 2)",
    ]


@pytest.mark.parametrize("others", [[LIMIT, NORMALIZED, SCALE], [NORMALIZED, LIMIT, SCALE, RECORD]])
def test_a_run_is_resumed_with_further_wrappers_that_learn_nothing(tmp_path: Path, others: list[Any]) -> None:
    path, data, begun = saved(tmp_path, NORMALIZED, SCALE)
    resumed = make_data(wrappers=others, n_normalization_samples=3)  # would be others if they were estimated
    after = fit(resumed, 4, ckpt_path=path).rollouts
    whole = fit(make_data(wrappers=[NORMALIZED, SCALE], **SAMPLES), 4).rollouts
    assert equal([*begun.rollouts, *after], whole)
    assert frozen(resumed)[OBSERVATIONS].keys() == frozen(data)[OBSERVATIONS].keys()


@pytest.mark.parametrize(
    ("then", "now", "message"),
    [
        ([NORMALIZED], [SCALE, NORMALIZED], rf"no statistics of the wrappers \['{RETURNS}'\], but only"),
        ([NORMALIZED], [NORMALIZED, SCALE], rf"no statistics of the wrappers \['{RETURNS}'\]"),
        ([LIMIT], [SCALE], rf"no statistics of the wrappers \['{RETURNS}'\], but only of \[\]"),
        ([NORMALIZED, SCALE], [SCALE], rf"statistics of the wrappers \['{OBSERVATIONS}'\], but the wrappers here"),
        ([SCALE], [SCALE, SCALE], rf"statistics of the wrappers \['{RETURNS}'\], but .*RewardWrapper \(2 of 2\)"),
        ([SCALE, SCALE], [SCALE], r"statistics of the wrappers \['.*\(2 of 2\)', '.*\(1 of 2\)'\], but the wrappers"),
    ],
)
def test_a_run_is_neither_resumed_nor_validated_with_others_that_learn(
    tmp_path: Path, then: list[Any], now: list[Any], message: str
) -> None:
    path, _, _ = saved(tmp_path, *then)
    with pytest.raises(ValueError, match=message):
        fit(make_data(wrappers=now), 4, ckpt_path=path)
    with pytest.raises(ValueError, match=message):
        validate(make_data(wrappers=now, evaluators=None), ckpt_path=path, weights_only=True)


@pytest.mark.parametrize("now", [[SCALE, NORMALIZED], [NORMALIZED, SCALE], [SCALE, LIMIT, NORMALIZED]])
def test_a_warm_start_shares_what_a_new_wrapper_learns_and_what_the_others_knew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, now: list[Any]
) -> None:
    _, data, _ = saved(tmp_path, NORMALIZED)
    known = data.state_dict()["shared"]
    warm = make_data(wrappers=now, n_normalization_samples=3)
    warm.warm_start(data.wrapper_statistics())
    with caplog.at_level(logging.INFO):
        fit(warm, 2)
    assert f"the wrappers ['{RETURNS}'] start from scratch, as the other run has no statistics of them" in caplog.text
    shared = warm.state_dict()["shared"]
    assert str(shared[OBSERVATIONS]) == str(known[OBSERVATIONS])
    n_seen, _, _ = shared[RETURNS]["base"]
    assert n_seen == 1 + 2 * 2 * 2 * 7, "rewards of all environments in all rollouts, after a return of 0"
    assert frozen(warm)[RETURNS]["base"] == shared[RETURNS]["base"]


def test_a_warm_start_says_what_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, data, _ = saved(tmp_path, NORMALIZED, SCALE)
    warm = make_data(wrappers=[partial(RewardScalingWrapper, scale=0.5), NORMALIZED])
    warm.warm_start(data.wrapper_statistics())
    with caplog.at_level(logging.INFO):
        assert list(frozen(warm)) == [OBSERVATIONS]
    assert f"statistics of the wrappers ['{RETURNS}'] are left out, as this run does not have these" in caplog.text


@pytest.mark.parametrize(
    ("then", "now", "counts", "remedy"),
    [
        ([SCALE], [SCALE, SCALE], "of 1 wrappers", "use 1 of them, or make each new wrapper a subclass"),
        ([SCALE, SCALE], [SCALE], "of 2 wrappers", "use 2 of them"),
    ],
)
def test_a_warm_start_with_more_or_fewer_of_a_class_is_refused_with_remedies(
    tmp_path: Path, then: list[Any], now: list[Any], counts: str, remedy: str
) -> None:
    _, data, _ = saved(tmp_path, *then)
    warm = make_data(wrappers=now)
    warm.warm_start(data.wrapper_statistics())
    with pytest.raises(ValueError, match="they cannot be matched") as error:
        warm.make_env()
    assert f"{counts} {RETURNS}, and there are {len(now)} here" in str(error.value)
    assert remedy in str(error.value)


class SecondScale(ReturnNormalizationRewardWrapper):
    """The same wrapper under another name."""


@pytest.mark.parametrize("first", [True, False])
def test_a_subclass_of_a_wrapper_of_the_other_run_learns_by_itself_after_a_warm_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: bool
) -> None:
    _, data, _ = saved(tmp_path, SCALE)
    known = data.wrapper_statistics()[RETURNS]
    warm = make_data(wrappers=[SecondScale, SCALE] if first else [SCALE, SecondScale], n_normalization_samples=3)
    warm.warm_start(data.wrapper_statistics())
    with caplog.at_level(logging.INFO):
        learned = frozen(warm)
    second = f"{SecondScale.__module__}.SecondScale"
    assert f"the wrappers ['{second}'] start from scratch" in caplog.text
    assert learned[RETURNS] == known
    assert learned[second] != known


@pytest.mark.parametrize("now", [[SCALE, NORMALIZED], [LIMIT]])
def test_environments_for_an_agent_are_not_made_with_other_statistics_than_it_was_trained_with(
    tmp_path: Path, now: list[Any]
) -> None:
    _, data, _ = saved(tmp_path, NORMALIZED)
    other = make_data(wrappers=now)
    other.warm_start(data.wrapper_statistics(), may_differ=False)
    with pytest.raises(ValueError, match="statistics of the wrappers"):
        other.make_env()


def test_no_environment_works_by_its_own_statistics_where_others_share_theirs() -> None:
    stack = wrapper_stack(make_wrapped(lambda: Drift(None), [SCALE, NORMALIZED]))
    given = {OBSERVATIONS: {"observation": {"mean": 0.0, "std": 1.0}}}
    with pytest.raises(ValueError, match=rf"no statistics for the wrapper {RETURNS}, but for \['{OBSERVATIONS}'\]"):
        load_shared_states(stack, given)
    with pytest.raises(ValueError, match="no statistics for the wrapper"):
        rollout(lambda: Drift(None), "random", wrappers=[SCALE, NORMALIZED], wrapper_statistics=given)
