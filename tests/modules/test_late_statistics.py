"""Losses whose numbers are fetched once per epoch, as on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

from maze_pl.collect.tensors import tensor_collector
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs.tensors import CartPoleTensorEnv
from maze_pl.modules import A2C
from tests.collect.late_episodes import LateEpisodes

LOSSES = {f"ActorCriticEvents/{name}/substep_0" for name in ("policy_loss", "policy_entropy", "critic_value_loss")}


class LateA2C(A2C):
    """A2C whose losses are fetched at the end of an epoch."""

    is_late = False

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Fetch nothing, unless the epoch ends."""
        self.is_late = True
        super().on_train_batch_end(outputs, batch, batch_idx)

    def _finish_updates(self, *, alone: bool = False) -> None:
        """Do nothing in the first call after a batch, which there is only on the CPU."""
        is_late, self.is_late = self.is_late, False
        if not is_late:
            super()._finish_updates(alone=alone)


class Broken(CartPoleTensorEnv):
    """CartPole, whose environment 2 observes NaN after three steps."""

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        """Return the state."""
        is_broken = (torch.arange(self.n_envs) == 2) & (self.n_steps > 3)
        return {"observation": torch.where(is_broken[:, None], torch.nan, super().observe(step_key)["observation"])}


class StopsEarly(pl.Callback):
    """Stops in the second batch of the second epoch."""

    def on_train_batch_end(self, trainer: pl.Trainer, *arguments: Any) -> None:
        """Ask the trainer to stop."""
        if trainer.current_epoch == 1 and arguments[-1] == 1:
            trainer.should_stop = True


pytestmark = pytest.mark.filterwarnings("ignore:Total length of .* is zero")


def fit(
    env: Any, callback: pl.Callback | None = None, precision: Any = "32-true", module: LateA2C | None = None
) -> LateA2C:
    pl.seed_everything(0, verbose=False)
    data = RolloutDataModule(env, n_envs=4, n_rollout_steps=10, epoch_length=4, evaluators={}, seed=0)
    module = module or LateA2C(spec=data.spec)
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        precision=precision,
        logger=False,
        callbacks=[callback] if callback else [],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data)
    return module


def test_an_epoch_that_ends_early_has_the_statistics_of_its_losses() -> None:
    module = fit(CartPoleTensorEnv, StopsEarly())
    assert module.current_epoch == 2
    table = module.epoch_statistics["train"]
    assert set(table) >= LOSSES
    assert module._gradient_steps.finish().n_steps == 0, "nothing is left for the next epoch"


def test_an_environment_at_fault_is_named_where_losses_fail_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_collector, "TensorEpisodes", LateEpisodes)
    with pytest.raises(ValueError, match=r"observation.* of environment 2 "):
        fit(Broken)


def test_invalid_data_of_a_run_that_failed_is_not_reported_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_collector, "TensorEpisodes", LateEpisodes)
    module = LateA2C(spec=Spec.of(CartPoleTensorEnv()))
    with pytest.raises(ValueError, match=r"observation.* of environment 2 "):
        fit(Broken, module=module)
    for parameter in module.parameters():  # which the update has made NaN
        torch.nn.init.normal_(parameter, std=0.01)
    fit(CartPoleTensorEnv, module=module)
    assert module.epoch_statistics["train"]["BaseEnvEvents/reward/total_episode_count"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_batches_in_another_precision_keep_their_episodes_on_the_device(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kinds(pl.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            kinds.append((type(batch.summaries), len(batch.summaries._received)))
            types.append(batch.segments[0].observation["observation"].dtype)

    kinds: list[Any] = []
    types: list[torch.dtype] = []
    monkeypatch.setattr(tensor_collector, "TensorEpisodes", LateEpisodes)
    module = fit(CartPoleTensorEnv, Kinds(), precision)
    assert module.env_steps == 3 * 4 * 40
    assert kinds == [(LateEpisodes, 0)] * 12, "nothing is fetched"
    assert set(types) == {torch.float64 if precision == "64-true" else torch.float32}
    assert module.epoch_statistics["train"]
