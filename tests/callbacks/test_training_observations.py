"""The sample of observations in the checkpoints of a run, also of one that was resumed."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from maze_pl.__main__ import main
from maze_pl.callbacks import TrainingObservations
from maze_pl.core.batches import Rollout
from maze_pl.core.observation_sample import ObservationSample
from maze_pl.modules import A2C
from tests.modules.kit import fit, make_actor_critic, make_flat_rollout


def sample_in(run: Path) -> ObservationSample:
    checkpoint: Any = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    sample = ObservationSample()
    sample.load_state_dict(checkpoint["callbacks"]["TrainingObservations"])
    return sample


@pytest.mark.slow
def test_a_resumed_run_continues_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--data.n_envs", "2", "--data.n_rollout_steps", "50", "--data.epoch_length", "2"]
    options = [*small, "--data.evaluators", "null"]
    for name, n_epochs in (("whole", 2), ("parts", 1)):
        command = ["fit", "--config", "ppo_cartpole", "--run_dir", name, *options]
        assert main([*command, "--trainer.max_epochs", str(n_epochs)]) == 0
    assert sample_in(Path("parts")).overall[0, "observation"].shape == (128, 4)
    assert main(["fit", "--resume", "parts", "--trainer.max_epochs", "2"]) == 0
    whole, parts = sample_in(Path("whole")), sample_in(Path("parts"))
    assert whole.overall[0, "observation"].shape == (256, 4), "64 of each of four batches"
    np.testing.assert_array_equal(parts.overall[0, "observation"], whole.overall[0, "observation"])
    np.testing.assert_array_equal(parts.recent[0, "observation"], whole.recent[0, "observation"])


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_observations_of_an_earlier_run_are_not_sampled() -> None:
    callback = TrainingObservations()
    for n_batches in (3, 2):
        fit(A2C(actor_critic=make_actor_critic()), length=n_batches, callbacks=[callback])
        assert callback.sample.overall[0, "observation"].shape == (64 * n_batches, 3)


def test_only_rank_0_samples() -> None:
    batch = make_flat_rollout()
    for is_global_zero in (True, False):
        callback = TrainingObservations()
        trainer: Any = SimpleNamespace(is_global_zero=is_global_zero)
        callback.on_train_batch_start(trainer, pl.LightningModule(), batch, 0)
        assert bool(callback.sample.overall) is is_global_zero


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_large_observations_are_named_after_the_first_epoch(caplog: pytest.LogCaptureFixture) -> None:
    def make(seed: int) -> Rollout:
        rollout = make_flat_rollout(seed=seed)
        rollout.segments[0].observation["observation"] *= 1e4
        return rollout

    with caplog.at_level(logging.INFO):
        fit(A2C(actor_critic=make_actor_critic()), make=make, epochs=2, callbacks=[TrainingObservations()])
    assert caplog.text.count("note: the observation 'observation' has numbers of the size of") == 1
