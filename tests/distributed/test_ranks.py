"""Several ranks: what must be equal is equal, nothing waits for ever, and an evaluation is that of one process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distributed import sides
from tests.distributed.launch import run, torchrun
from tests.distributed.rank_report import reports
from tests.exact.comparison import differences

WORKER = str(Path(__file__).with_name("worker.py"))
EVALUATIONS = ("one_episode", "three_episodes")
TRAININGS = (
    *("fit", "validate_and_fit", "divergence", "sides_a2c", "sides_ppo"),
    *("arrays", "resumed_arrays", "tensors", "wrapped_tensors", "resumed_wrapped_tensors"),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the reports of all cases on two ranks, which finish or fail the tests by a time limit."""
    folder = tmp_path_factory.mktemp("two")
    run(torchrun(WORKER, *EVALUATIONS, *TRAININGS, n_ranks=2), folders=[folder], timeout=150)
    return folder


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    run([sys.executable, WORKER, *EVALUATIONS], folders=[folder], timeout=100)
    return folder


def returns(report: dict[str, Any]) -> dict[str, float]:
    prefix = "eval/BaseEnvEvents/"
    return {name: value for name, value in report["statistics"].items() if name.startswith(prefix)}


@pytest.mark.parametrize(("case", "n_episodes"), [("one_episode", 1), ("three_episodes", 3)])
def test_an_evaluation_is_the_same_on_one_rank_and_on_two(
    two_ranks: Path, one_rank: Path, case: str, n_episodes: int
) -> None:
    (alone,) = reports(one_rank / case, 1)
    assert returns(alone)["eval/BaseEnvEvents/reward/episode_count"] == n_episodes
    for report in reports(two_ranks / case):
        assert returns(report) == returns(alone)
        assert report["callback_metrics"] == alone["callback_metrics"]
        assert float(report["callback_metrics"]["eval/return"]) == pytest.approx(
            returns(alone)["eval/BaseEnvEvents/reward/mean"]
        )


def test_episodes_of_the_evaluation_are_unequal_enough_to_tell(one_rank: Path) -> None:
    (alone,) = reports(one_rank / "three_episodes", 1)
    statistics = returns(alone)
    low, mean, high = (statistics[f"eval/BaseEnvEvents/reward/{name}"] for name in ("min", "mean", "max"))
    total = 3 * mean
    middle = total - low - high
    for second_rank in (low, middle, high):  # plays one episode, the first rank two
        mean_of_means = (second_rank + (total - second_rank) / 2) / 2
        assert mean_of_means != pytest.approx(mean, abs=0.05)


@pytest.mark.parametrize("case", TRAININGS)
def test_parameters_optimisers_and_statistics_are_equal_and_data_is_not(two_ranks: Path, case: str) -> None:
    first, second = reports(two_ranks / case)
    assert not set(first["seen"]) & set(second["seen"])
    for name in ("state_dict", "optimizer", "statistics", "callback_metrics", "env_steps", "global_step"):
        assert differences(first[name], second[name]) == [], name


def test_an_evaluation_before_it_changes_nothing_about_a_fit(two_ranks: Path) -> None:
    for plain, validated in zip(reports(two_ranks / "fit"), reports(two_ranks / "validate_and_fit"), strict=True):
        for name in ("state_dict", "optimizer", "callback_metrics", "seen", "env_steps"):
            found = differences(plain[name], validated[name])  # totals count all evaluations, and times vary
            assert [one for one in found if "/time_" not in one and "/total_" not in one] == [], name


def test_a_kl_stop_ends_the_update_of_all_ranks_after_the_same_pass(two_ranks: Path) -> None:
    for report in reports(two_ranks / "divergence"):
        assert report["global_step"] == 2 * 3 * (2 * 20 // 10)
        assert report["env_steps"] == 2 * 3 * 2 * 2 * 20


@pytest.mark.parametrize("case", ["arrays", "wrapped_tensors"])
def test_arrays_on_two_ranks_resume_exactly(two_ranks: Path, case: str) -> None:
    for whole, resumed in zip(reports(two_ranks / case), reports(two_ranks / f"resumed_{case}"), strict=True):
        assert resumed["seen"] == whole["seen"][3:]
        for name in ("state_dict", "optimizer", "statistics", "env_steps", "global_step"):
            found = differences(whole[name], resumed[name])
            assert [one for one in found if "/time_" not in one] == [], name


@pytest.mark.parametrize("case", ["sides_a2c", "sides_ppo"])
def test_a_policy_that_acts_on_one_rank_only_learns_on_both(two_ranks: Path, case: str) -> None:
    first, second = reports(two_ranks / case)
    left, right = sides.SIDES
    assert first["acted"] == {left: 2 * 3 * 20, right: 0}
    assert second["acted"] == {left: 0, right: 2 * 3 * 20}
    for report in (first, second):
        moved = {name for name, weight in report["state_dict"].items() if not weight.equal(report["before"][name])}
        assert moved == set(report["before"])
