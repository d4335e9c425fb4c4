"""A run that is stopped, wherever that is, and then resumed ends where a run ends that is not stopped."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import pandas as pd
import pytest

from maze_pl.envs import read_trajectories
from maze_pl.runs.seed_results import has_ended
from tests.exact.comparison import comparable, differences, without_times
from tests.faults.runs import SUBPROCESS, Server

# Epochs have three rollouts.
CHAIN = [("setup", 0), ("train_start", 0), ("batch_start", 1), ("epoch_start", 0), ("batch_end", 0), ("batch_start", 1)]
CHAIN += [("validation_start", 0), ("save", 0), ("batch_end", 1), ("validation_end", 0), ("epoch_end", 0)]

STATEFUL = [
    '--data.wrappers=[{"class_path": "tests.envs.stateful_wrappers.TurningWrapper"}, {"class_path": '
    '"tests.envs.stateful_wrappers.GrowingLimitWrapper", "init_args": {"limit": 5, "growth": 3}}]'
]


def signal_at(hook: str, count: int, number: int = SIGTERM) -> list[str]:
    init = f'{{"hook": "{hook}", "count": {count}, "number": {int(number)}}}'
    return [f'--trainer.callbacks=[{{"class_path": "tests.faults.moments.SignalAt", "init_args": {init}}}]']


def rows(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "metrics.csv").open(encoding="utf-8") as file:
        return [{name: row[name] for name in row if "time_" not in name} for row in csv.DictReader(file)]


def check_equal(first: Path, second: Path) -> None:
    """Compare the checkpoints and the metrics of two runs."""
    for name in ("last", "best"):
        one, other = (without_times(comparable(run / "checkpoints" / f"{name}.ckpt")) for run in (first, second))
        for content in (one, other):
            content["maze_pl"]["ranks"] = [without_times(rank) for rank in content["maze_pl"]["ranks"]]
        assert differences(one, other) == []
    assert rows(first) == rows(second)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "chain", "expected"),
    [
        pytest.param([], CHAIN[::3], [4, 6, 9], id="some"),
        pytest.param(STATEFUL, CHAIN[::2], [3, 4, 6, 8, 9], id="wrappers with state", marks=pytest.mark.long),
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
    assert comparable(tmp_path / "whole" / "checkpoints" / "last.ckpt")["epoch"] == 9
    check_equal(tmp_path / "whole", tmp_path / "run")


IN_EPOCHS = ["--trainer.val_check_interval", "2", "--last_checkpoint.every_n_epochs", "9"]
"""The first evaluation is before the last rollout of an epoch, and `last.ckpt` is not due until the end."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "epochs", "ends_the_epoch"),
    [
        pytest.param(IN_EPOCHS, 3, True, id="within an epoch"),
        pytest.param([], 2, False, id="after an epoch", marks=pytest.mark.long),
    ],
)
def test_a_run_that_was_killed_between_its_first_best_and_last_checkpoint_ends_as_if_it_was_not(
    server: Server, tmp_path: Path, options: list[str], epochs: int, ends_the_epoch: bool
) -> None:
    options = [*options, "--trainer.max_epochs", str(epochs)]
    whole = server.fit(tmp_path, *options, run_dir="whole")
    assert whole.end() == 0, whole.output[-5000:]
    run = server.fit(tmp_path, *options, *signal_at("save", 1, SIGKILL))
    assert run.end() == -SIGKILL
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("[!.]*")] == ["best.ckpt"]
    run = server.resume(tmp_path, "--trainer.callbacks=null")
    assert run.end() == 0, run.output[-5000:]
    assert "stopped before it wrote last.ckpt: it continues from run/checkpoints/best.ckpt" in run.output
    assert ("epoch 1 |" in run.output) == ends_the_epoch
    check_equal(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("view", [[], pytest.param(["--view"], marks=pytest.mark.long)], ids=["", "with view"])
def test_a_run_that_was_killed_after_its_last_epoch_ends_as_if_it_was_not(
    server: Server, tmp_path: Path, view: list[str]
) -> None:
    options = ["--trainer.max_epochs", "1", "--stop_at_return.threshold", "501", *view]
    whole = server.fit(tmp_path, *options, run_dir="whole")
    assert whole.end() == 1, whole.output[-5000:]
    run = server.fit(tmp_path, *options, *signal_at("train_end", 0, SIGKILL))
    assert run.end() == -SIGKILL
    run_dir = tmp_path / "run"
    assert not has_ended(run_dir)
    for _ in range(2):  # also a run that has ended
        run = server.resume(tmp_path, "--trainer.callbacks=null")
        assert run.end() == 1, run.output[-5000:]
        assert "ended: max_epochs=1 reached\n384 env steps, 0 of them in 0:00:00" in run.output
        assert "epoch 1 |" not in run.output
        assert has_ended(run_dir)
        final = [json.loads((tmp_path / name / "final_evaluation.json").read_text()) for name in ("whole", "run")]
        assert final[0] == final[1]
        assert {path.name for path in (tmp_path / "whole").iterdir()} <= {path.name for path in run_dir.iterdir()}
    check_equal(tmp_path / "whole", run_dir)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "count", "reason"),
    [
        pytest.param(["--stop_at_return.threshold", "1"], 0, "reached 1.0", id="threshold"),
        pytest.param(
            ["--early_stopping.patience", "1", "--model.lr", "1e-30"],
            1,
            "not improved for 1 evaluations",
            id="patience",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_run_that_is_stopped_in_the_epoch_in_which_it_ends_does_not_train_on(
    server: Server, tmp_path: Path, options: list[str], count: int, reason: str
) -> None:
    whole = server.fit(tmp_path, *options, run_dir="whole")
    assert whole.end() == 0, whole.output[-5000:]
    run = server.fit(tmp_path, *options, *signal_at("validation_end", count))
    assert run.end() == 128 + SIGTERM, run.output[-5000:]
    run = server.resume(tmp_path, "--trainer.callbacks=null")
    assert run.end() == 0, run.output[-5000:]
    for output in (whole.output, run.output):
        assert f"ended: eval/return has {reason}" in output
    assert not any(f"epoch {epoch} |" in run.output for epoch in (1, 2, 3))
    check_equal(tmp_path / "whole", tmp_path / "run")


def logged(format: str) -> dict[str, Any]:
    writer = {"class_path": "maze_pl.events.EventLogFiles", "init_args": {"folder": format, "format": format}}
    return {"class_path": "maze_pl.envs.wrappers.EventLogsWrapper", "init_args": {"writer": writer}}


RECORDER = {
    "class_path": "maze_pl.envs.wrappers.SpacesRecordingWrapper",
    "init_args": {"writer": "maze_pl.envs.TrajectoryFiles"},
}
SLOW_DISK = '{"class_path": "tests.faults.moments.SlowDisk"}'


def logged_rewards(run_dir: Path) -> list[list[Any]]:
    """Logged rewards in both formats, sorted, as environments write in any order."""
    tables = [
        pd.read_csv(run_dir / "csv" / "BaseEnvEvents.reward.csv"),
        pd.read_parquet(run_dir / "parquet" / "BaseEnvEvents.reward.parquet"),
    ]
    return [sorted(zip(one["episode_id"], one["env_time"], one["value"], strict=True)) for one in tables]


def recorded(run_dir: Path) -> dict[str, int]:
    """Number of acts in each file of a recorded episode."""
    episodes = {}
    for path in (run_dir / "trajectories").iterdir():
        (record,) = read_trajectories(path)
        episodes[path.name] = len(record)
    return episodes


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [[], pytest.param(SUBPROCESS, marks=pytest.mark.long)], ids=["in process", "subprocess"]
)
def test_records_and_logs_of_a_run_that_was_killed_are_those_of_one_that_was_not(
    server: Server, tmp_path: Path, options: list[str]
) -> None:
    wrappers = json.dumps([logged("csv"), logged("parquet"), RECORDER])
    options = [*options, "--data.wrappers", wrappers, "--trainer.max_epochs", "4"]
    whole = server.fit(tmp_path, *options, run_dir="whole")
    assert whole.end() == 0, whole.output[-5000:]
    (moment,) = signal_at("epoch_start", 1, SIGKILL)  # the first checkpoint has just been written
    run = server.fit(tmp_path, *options, moment.replace("=[", f"=[{SLOW_DISK}, "))
    assert run.end() == -SIGKILL, run.output[-5000:]
    for hook, count in (("batch_start", 1), ("validation_end", 0)):  # rows were written after the checkpoint
        run = server.resume(tmp_path, *signal_at(hook, count, SIGKILL))
        assert run.end() == -SIGKILL, (hook, run.output[-5000:])
    run = server.resume(tmp_path, "--trainer.callbacks=null")
    assert run.end() == 0, run.output[-5000:]
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")
    expected, found = (logged_rewards(tmp_path / name) for name in ("whole", "run"))
    assert expected[0] == expected[1]
    assert found == expected
    assert recorded(tmp_path / "run") == recorded(tmp_path / "whole")
