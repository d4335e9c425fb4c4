"""A run that is stopped, wherever that is, and then resumed ends where a run ends that is not stopped."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.exact.comparison import comparable, differences, without_times
from tests.faults.runs import SUBPROCESS, Server

# Epochs have three rollouts.
CHAIN = [("setup", 0), ("train_start", 0), ("batch_start", 1), ("epoch_start", 0), ("batch_end", 0), ("batch_start", 1)]
CHAIN += [("validation_start", 0), ("save", 0), ("batch_end", 1), ("validation_end", 0), ("epoch_end", 0)]

STATEFUL = [
    '--data.wrappers=[{"class_path": "tests.envs.stateful_wrappers.TurningWrapper"}, {"class_path": '
    '"tests.envs.stateful_wrappers.GrowingLimitWrapper", "init_args": {"limit": 5, "growth": 3}}]'
]


def signal_at(hook: str, count: int) -> list[str]:
    init = f'{{"hook": "{hook}", "count": {count}}}'
    return [f'--trainer.callbacks=[{{"class_path": "tests.faults.moments.SignalAt", "init_args": {init}}}]']


def rows(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "metrics.csv").open(encoding="utf-8") as file:
        return [{name: row[name] for name in row if "time_" not in name} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "chain", "expected"),
    [
        pytest.param([], CHAIN[::2], [3, 4, 6, 8, 9], id="some"),
        pytest.param(STATEFUL, CHAIN[::2], [3, 4, 6, 8, 9], id="wrappers with state"),
        pytest.param([], CHAIN, [2, 4, 7, 8, 10, 12, 15, 17, 18, 21], id="all", marks=pytest.mark.long),
        pytest.param(SUBPROCESS, CHAIN[::3], [4, 6, 9], id="subprocess", marks=pytest.mark.long),
    ],
)
def test_a_run_that_is_stopped_at_many_moments_ends_as_if_it_was_not(
    server: Server, tmp_path: Path, options: list[str], chain: list[tuple[str, int]], expected: list[int]
) -> None:
    whole = server.fit(tmp_path, *options, "--trainer.max_epochs", "10", run_dir="whole")
    assert whole.end() == 0, whole.output[-5000:]
    (hook, count), *others = chain
    run = server.fit(tmp_path, *options, "--trainer.max_epochs", "10", *signal_at(hook, count))
    assert run.end() == 143, run.output[-5000:]
    steps = []
    for hook, count in others:
        run = server.resume(tmp_path, *signal_at(hook, count))
        assert run.end() == 143, (hook, run.output[-5000:])
        steps.append(comparable(tmp_path / "run" / "checkpoints" / "last.ckpt")["maze_pl"]["env_steps"] // 128)
    run = server.resume(tmp_path, "--trainer.callbacks=null")
    assert run.end() == 0, run.output[-5000:]
    assert steps == expected
    first, second = (
        without_times(comparable(tmp_path / name / "checkpoints" / "last.ckpt")) for name in ("whole", "run")
    )
    assert first["epoch"] == 9
    assert differences(first, second) == []
    first, second = (
        without_times(comparable(tmp_path / name / "checkpoints" / "best.ckpt")) for name in ("whole", "run")
    )
    assert differences(first, second) == []
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")
