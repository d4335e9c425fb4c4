"""Training gives the same parameters and metrics, bit for bit, wherever rollouts are collected and episodes played."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.collect.engines import InProcessEngine, ProcessEngine
from tests.exact.comparison import comparable, differences, without_times
from tests.exact.runs import run
from tests.exact.worker import train

# These algorithms are stopped by the divergence, and small rollouts hold no episode that ended.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("algorithm", "name", "n_workers"),
    [
        ("ppo", "cartpole", [1, 3]),
        ("ppo", "hierarchy", [2]),
        ("ppo", "memory", [2]),
        ("a2c", "cartpole", [2]),
        ("a2c", "team_memory", [2]),
    ],
)
def test_workers_decide_nothing_about_the_result(
    tmp_path: Path, algorithm: str, name: str, n_workers: list[int]
) -> None:
    train(tmp_path, algorithm, name, "here", engine=InProcessEngine(), n_shards=0, max_epochs=2)
    expected = without_times(comparable(tmp_path / f"{name}-here.ckpt"))
    assert expected["global_step"] > 0 and len(expected["RolloutDataModule"]["ranks"][0]) == 3
    for n in n_workers:
        train(tmp_path, algorithm, name, f"{n}", engine=ProcessEngine(n), n_shards=0, max_epochs=2)
        assert differences(expected, without_times(comparable(tmp_path / f"{name}-{n}.ckpt"))) == []


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_a_run_resumes_exactly_with_other_workers(tmp_path: Path, algorithm: str) -> None:
    train(tmp_path, algorithm, "team_memory", "whole", n_shards=0, engine=ProcessEngine(2), max_epochs=6)
    for point, engine in (("epoch", InProcessEngine()), ("validation", ProcessEngine(1))):
        kept = tmp_path / f"team_memory-kept-{point}.ckpt"
        train(tmp_path, algorithm, "team_memory", point, kept, engine, n_shards=0)
    whole, *resumed = (
        without_times(comparable(tmp_path / f"team_memory-{how}.ckpt")) for how in ("whole", "epoch", "validation")
    )
    for other in resumed:
        assert differences(whole, other) == []


@pytest.mark.long
def test_each_of_two_ranks_has_workers_of_its_own(tmp_path: Path) -> None:
    run(tmp_path, ["ppo"], ["here", "workers"], ["cartpole"], 2)
    folder = tmp_path / "ppo"
    here, workers = (without_times(comparable(folder / f"cartpole-{how}.ckpt")) for how in ("here", "workers"))
    assert differences(here, workers) == []
    first, second = here["RolloutDataModule"]["ranks"]
    assert differences(first[0]["histories"], second[0]["histories"]) != []
