"""Callbacks of a run, which read nothing from the device between rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maze_pl.__main__ import main
from maze_pl.collect.tensors import tensor_collector
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.run_module import RunModule
from tests.callbacks.no_waiting import NoWaiting
from tests.collect.late_episodes import LateEpisodes
from tests.devices import DEVICES

OBSERVER = "tests.callbacks.no_waiting.NoWaiting"
CUTTING = "maze_pl.envs.cutting_2d.tensor_environment.StructuredCutting2DTensorEnvironment"
ENVS = {
    "flat": ["--data.env", "maze_pl.envs.tensors.CartPoleTensorEnv", "--data.env.max_episode_steps", "6"],
    "structured": [
        *("--data.env", CUTTING, "--data.env.max_pieces_in_inventory", "8", "--data.env.raw_piece_size", "[4,3]"),
        *("--data.env.static_demand", "[[1,2],[2,2],[1,1]]", "--data.env.max_episode_steps", "6"),
    ],
}
ENVS["normalised"] = [
    *ENVS["flat"],
    *("--data.wrappers+", "maze_pl.envs.wrappers.RunningObservationNormalizationWrapper"),
    *("--data.wrappers+", "maze_pl.envs.wrappers.ObservationStackWrapper"),
    *("--data.wrappers.stack_config", '[{"observation": "observation", "stack_steps": 2}]'),
    *("--data.wrappers+", "maze_pl.envs.wrappers.ReturnNormalizationRewardWrapper"),
]
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[NoWaiting]]:
    monkeypatch.setattr(NoWaiting, "n_batches", [])
    yield NoWaiting
    NoWaiting.stop()


def learns_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave episodes and losses on the device of a CPU until the end of an epoch."""

    def on_train_batch_end(self: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        RunModule.on_train_batch_end(self, outputs, batch, batch_idx)

    monkeypatch.setattr(AlgorithmModule, "on_train_batch_end", on_train_batch_end)
    monkeypatch.setattr(tensor_collector, "TensorEpisodes", LateEpisodes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("flat", "PPO"),
        ("structured", "PPO"),
        ("flat", "tests.callbacks.no_waiting.LoggingPPO"),
        ("normalised", "PPO"),
    ],
    ids=["flat", "structured", "logging", "normalised"],
)
def test_the_callbacks_of_a_run_read_nothing_between_rollouts(
    name: str, model: str, device: str, observed: type[NoWaiting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if device == "cpu":
        learns_as_on_a_gpu(monkeypatch)
    small = ["--data.n_envs=16", "--data.n_rollout_steps=8", "--data.epoch_length=6", "--trainer.max_epochs=2"]
    small += ["--data.evaluators", '{"eval": {"n_episodes": 2}}', "--model.batch_size=64", "--run_dir=run"]
    small += ["--trainer.enable_progress_bar=true"]
    if name == "structured":  # its KPIs are declared, so that no episode has to be read to know them
        small += ["--early_stopping.monitor=eval/kpi/raw_piece_usage_per_step", "--early_stopping.patience=5"]
    where = [f"--trainer.accelerator={device}", "--trainer.devices=1", f"--trainer.callbacks+={OBSERVER}"]
    assert main(["fit", "--model", model, "--data", "RolloutDataModule", *ENVS[name], *small, *where]) == 0
    assert observed.n_batches == [*range(6), *range(6)]
