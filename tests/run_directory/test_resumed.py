"""Dashboards of a run that was killed beyond its last checkpoint, resumed, and counts beyond 2**24 env steps."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import maze_pl
from maze_pl.core.histogram import Histogram
from maze_pl.loggers.dashboard import bins
from tests.run_directory import wandb_file
from tests.run_directory.probe import expected

pytestmark = pytest.mark.slow

STEPS = [2**24 - 1, 2**24 + 199, 2**24 + 399, 2**24 + 599]
ACTIONS = "DiscreteActionEvents/action/substep_0/action"


def number(value: Any) -> float:
    return value["mean"] if isinstance(value, dict) else value


@pytest.fixture(scope="module")
def events(resumed: Path) -> EventAccumulator:
    return EventAccumulator(
        str(resumed / "here" / "tensorboard"),
        size_guidance=dict.fromkeys(("scalars", "tensors", "histograms", "images"), 0),
    ).Reload()


@pytest.fixture(scope="module")
def offline(resumed: Path) -> list[wandb_file.OfflineRun]:
    return [wandb_file.read(path) for path in sorted(resumed.glob("here/wandb/offline-run-*/*.wandb"))]


def test_the_probe_saw_what_the_run_really_did(resumed: Path) -> None:
    wanted = expected(resumed / "probe.txt")
    assert list(wanted) == STEPS
    names = {"mean", "std", "min", "max", "episode_count", "mean_step_count", "median_step_count"}
    names |= {"total_step_count", "total_episode_count"}
    for source in ("train", "eval"):
        assert {f"{source}_BaseEnvEvents/reward/{name}" for name in names} <= set(wanted[STEPS[0]])
    names = {"learning_rate", "time_epoch", "time_rollout", "time_update"}
    for name in ("policy_loss", "policy_grad_norm", "policy_entropy", "critic_value", "critic_value_loss"):
        names.add(f"{name}/substep_0")
    names.add("critic_grad_norm/substep_0")
    assert {f"train_ActorCriticEvents/{name}" for name in names} <= set(wanted[STEPS[0]])


def test_tensorboard_has_every_statistic_once_at_its_env_steps(resumed: Path, events: EventAccumulator) -> None:
    wanted = expected(resumed / "probe.txt")
    names = [name for name in events.Tags()["scalars"] if not name.startswith("final_")]
    assert set(names) == {name for table in wanted.values() for name in table}
    for name in names:
        points = events.Scalars(name)
        assert [point.step for point in points] == [step for step in STEPS if name in wanted[step]]
        for point in points:
            np.testing.assert_allclose(point.value, number(wanted[point.step][name]), rtol=1e-6, atol=1e-30)


def test_tensorboard_shows_distributions(resumed: Path, events: EventAccumulator) -> None:
    wanted = expected(resumed / "probe.txt")
    for source in ("train", "eval"):
        found = events.Histograms(f"{source}_{ACTIONS}/histogram")
        assert [point.step for point in found] == STEPS
        for point in found:
            taken = dict(
                zip(*(wanted[point.step][f"{source}_{ACTIONS}"][key] for key in ("values", "counts")), strict=True)
            )
            value = point.histogram_value
            assert dict(zip([limit - 0.5 for limit in value.bucket_limit], value.bucket, strict=True)) == taken
            assert value.num == sum(taken.values())


def test_pictures_are_shown_at_their_env_steps(
    events: EventAccumulator, offline: list[wandb_file.OfflineRun], resumed: Path
) -> None:
    for name in ("probe/picture", "probe/figure"):
        assert [point.step for point in events.Images(name)] == STEPS
        rows = [row for run in offline for row in run.history if f"{name}._type" in row]
        assert [row["env_steps"] for row in rows] == STEPS
        assert {row[f"{name}._type"] for row in rows} == {"image-file"}
        for row in rows:
            (file,) = resumed.glob(f"here/wandb/offline-run-*/files/{row[f'{name}.path']}")
            assert file.read_bytes().startswith(b"\x89PNG")
    assert (events.Images("probe/picture")[0].height, events.Images("probe/picture")[0].width) == (8, 6)


def test_tensorboard_has_configuration_command_and_hyper_parameters(events: EventAccumulator) -> None:
    texts = {
        name: [point.tensor_proto.string_val[0].decode() for point in events.Tensors(f"{name}/text_summary")]
        for name in ("configuration", "command")
    }
    assert "lr: 0.00025" in texts["configuration"][0]
    assert "lr: 0.001" in texts["configuration"][1]
    assert "maze-pl fit --config ppo_cartpole" in texts["command"][0]
    assert "maze-pl fit --resume here" in texts["command"][1]
    plugin = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    for part in (b"model.lr", b"PPO", b"data.env.name", b"CartPole-v1"):
        assert part in plugin


def test_totals_go_on(resumed: Path, events: EventAccumulator) -> None:
    wanted = expected(resumed / "probe.txt")
    for source in ("train", "eval"):
        base = f"{source}_BaseEnvEvents/reward"
        played = np.cumsum([wanted[step][f"{base}/episode_count"] for step in STEPS])
        assert [point.value for point in events.Scalars(f"{base}/total_episode_count")] == played.tolist()
        totals = [point.value for point in events.Scalars(f"{base}/total_step_count")]
        assert totals == sorted(set(totals))


def test_the_metrics_file_has_every_digit(resumed: Path) -> None:
    wanted = expected(resumed / "probe.txt")
    with (resumed / "here" / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == STEPS
    for row in rows:
        found = {name: float(value) for name, value in row.items() if value}
        assert found.pop("step") and found.pop("time_wall_clock") > 0
        assert found == {name: number(value) for name, value in wanted[int(row["step"])].items()}


def test_a_tensorboard_log_becomes_a_table(resumed: Path) -> None:
    wanted = expected(resumed / "probe.txt")
    frame = maze_pl.tensorboard_to_pandas(resumed / "here")
    assert list(frame.index) == STEPS
    assert frame.index.name == "env_steps"
    final = {f"final_eval/{which}/return" for which in ("best", "last")}
    assert set(frame.columns) == {name for table in wanted.values() for name in table} | final
    mean = "eval_BaseEnvEvents/reward/mean"
    assert frame[mean].tolist() == pytest.approx([wanted[step][mean] for step in STEPS])
    assert frame.equals(maze_pl.tensorboard_to_pandas(resumed / "here" / "tensorboard"))
    with pytest.raises(ValueError, match="there is no TensorBoard log in"):
        maze_pl.tensorboard_to_pandas(resumed / "here" / "checkpoints")


def test_wandb_goes_on_as_the_same_run_over_env_steps(resumed: Path, offline: list[wandb_file.OfflineRun]) -> None:
    first, second = offline
    assert first.run_id == second.run_id == json.loads((resumed / "here/wandb/maze_pl.json").read_text())["id"]
    assert (first.project, first.exit_code, second.exit_code) == ("maze_pl", None, 0)
    for run in offline:
        assert run.metrics == {"env_steps": "", "*": "env_steps"}
        assert run.config["seed_everything"] == 0
        assert "--config ppo_cartpole" in first.config["command"]
    assert first.config["model"]["init_args"]["lr"] == 2.5e-4
    assert second.config["model"]["init_args"]["lr"] == 1e-3


def test_wandb_has_every_statistic_once_at_its_env_steps(resumed: Path, offline: list[wandb_file.OfflineRun]) -> None:
    wanted = expected(resumed / "probe.txt")
    rows = [row for run in offline for row in run.history]
    for name in {name for table in wanted.values() for name in table}:
        points = [(row["env_steps"], row[name]) for row in rows if name in row]
        assert [step for step, _ in points] == [step for step in STEPS if name in wanted[step]]
        for step, value in points:
            if step != STEPS[2]:  # logged by the run that was killed, and learned anew at another rate
                assert value == number(wanted[step][name])


def test_wandb_has_texts_and_distributions(resumed: Path, offline: list[wandb_file.OfflineRun]) -> None:
    wanted = expected(resumed / "probe.txt")
    for run in offline:
        panels = {
            row[f"{name}._type"]
            for row in run.history
            for name in ("configuration", "command")
            if f"{name}._type" in row
        }
        assert panels == {"html-file"}
    texts = "".join(path.read_text(encoding="utf-8") for path in resumed.glob("here/wandb/*/files/media/html/*.html"))
    assert "class_path: maze_pl.modules.PPO" in texts
    assert "maze-pl fit --resume here" in texts
    name = f"train_{ACTIONS}"
    rows = [row for row in offline[0].history if f"{name}/histogram.bins" in row]
    assert [row["env_steps"] for row in rows] == STEPS[:2]
    for row in rows:
        taken = wanted[row["env_steps"]][name]
        counts, edges = bins(Histogram(np.array(taken["values"]), np.array(taken["counts"]))) or ([], [])
        assert row[f"{name}/histogram.values"] == list(counts)
        assert row[f"{name}/histogram.bins"] == list(edges)


def test_the_log_and_the_console_tell_the_whole_story(resumed: Path) -> None:
    log = (resumed / "here" / "run.log").read_text(encoding="utf-8")
    assert (resumed / "output.txt").read_text(encoding="utf-8").splitlines()[-1] in log
    assert not set(log) & {"\x1b", "\r", "█"}
    table = [line for line in log.splitlines() if line[:6].strip("=").strip().endswith("|")]
    assert table
    assert max(map(len, table)) <= 100
    assert [line.split(" | ")[0] for line in log.splitlines() if line.startswith("epoch ")] == [
        f"epoch {number}" for number in (1, 2, 3, 4)
    ]
    for text in ("command: maze-pl fit --config", "class_path: maze_pl.modules.PPO", "-> new best eval/return"):
        assert text in log
