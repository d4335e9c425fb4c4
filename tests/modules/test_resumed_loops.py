"""Runs that are resumed from checkpoints at which Lightning leaves out or repeats a part of the run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import OnExceptionCheckpoint

from maze_pl.modules import A2C
from tests.faults.moments import FailAt
from tests.modules.small_algorithms import flat

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
]

EPOCHS = 3
LENGTH = 2  # batches in an epoch


class OnPlateau(A2C):
    """Lowers its learning rate after each evaluation that is not better, which all later ones are not."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "eval/return"}}


class Moments(Callback):
    """Notes what happens in a run, and saves a checkpoint at one moment."""

    def __init__(self, moment: str, count: int, path: Path) -> None:
        self.moment, self.left, self.path = moment, count, path
        self.seen: list[str] = []
        self.returns: list[Any] = []  # of training, at the ends of epochs
        self.n_seen_before = -1  # events before the checkpoint

    def _save(self, trainer: Any, moment: str) -> None:
        self.left -= moment == self.moment
        if moment == self.moment and self.left == 0:
            self.n_seen_before = len(self.seen)
            trainer.save_checkpoint(self.path)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._save(trainer, "epoch start")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.seen.append(f"batch {trainer.fit_loop.batch_idx} of epoch {trainer.current_epoch}")
        self._save(trainer, "batch end")

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self._save(trainer, "evaluation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.seen.append(f"return {trainer.callback_metrics['eval/return']}")
        self._save(trainer, "evaluation end")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        n_logged = trainer.fit_loop.epoch_loop._batches_that_stepped
        self.seen.append(f"end of epoch {trainer.current_epoch} after {n_logged} batches")
        self.returns.append(pl_module.published.latest(trainer.callback_metrics).get("train/return"))
        self._save(trainer, "epoch end")


IN_EPOCH = {"val_check_interval": 1}
OVER_EPOCHS = {"val_check_interval": 3, "check_val_every_n_epoch": None}
WITHOUT = {"limit_val_batches": 0}
LIMITED = {"max_steps": 10_000}  # not reached


@pytest.mark.parametrize(
    ("moment", "count", "options"),
    [
        ("epoch start", 2, {}),
        ("batch end", 1, {}),
        ("batch end", 1, IN_EPOCH),
        ("batch end", 2, {}),
        ("batch end", 2, WITHOUT),
        ("batch end", 3, OVER_EPOCHS),
        ("batch end", EPOCHS * LENGTH, {}),
        ("batch end", EPOCHS * LENGTH, WITHOUT),
        ("evaluation", 1, IN_EPOCH),
        ("evaluation", 2, {}),
        ("evaluation end", 2, {}),
        ("epoch end", 2, WITHOUT),
        ("epoch end", 2, LIMITED),
    ],
    ids=str,
)
def test_a_resumed_run_leaves_out_nothing_that_follows_its_checkpoint(
    kit: SimpleNamespace, tmp_path: Path, moment: str, count: int, options: dict[str, Any]
) -> None:
    kind = A2C if options in (WITHOUT, OVER_EPOCHS) else OnPlateau

    def train(seen: Moments, **further: Any) -> A2C:
        module = kind(actor_critic=kit.make_actor_critic(), capture="off")
        kit.fit(module, epochs=EPOCHS, length=LENGTH, callbacks=[seen], **options, **further)
        return module

    path = tmp_path / "saved.ckpt"
    complete, rest = Moments(moment, count, path), Moments("never", 0, path)
    whole, resumed = train(complete), train(rest, ckpt_path=path)
    assert rest.seen == complete.seen[complete.n_seen_before :]
    if moment == "batch end":  # later, the statistics of the epoch are already logged
        assert rest.returns == complete.returns[-len(rest.returns) :]
    assert torch.equal(flat(resumed), flat(whole))
    for source, table in whole.epoch_statistics.items():
        for name, value in table.items():
            assert "/time_" in name or resumed.epoch_statistics[source][name] == value, name


@pytest.mark.parametrize("options", [{}, LIMITED], ids=str)
def test_a_checkpoint_from_after_training_is_continued_with_the_next_epoch(
    kit: SimpleNamespace, tmp_path: Path, options: dict[str, Any]
) -> None:
    def train(epochs: int, **further: Any) -> tuple[Any, list[str]]:
        seen = Moments("never", 0, tmp_path)
        module = A2C(actor_critic=kit.make_actor_critic(), capture="off")
        return kit.fit(module, epochs=epochs, length=LENGTH, callbacks=[seen], **options, **further), seen.seen

    path = tmp_path / "saved.ckpt"
    first, begun = train(1)
    first.save_checkpoint(path)
    assert begun + train(EPOCHS, ckpt_path=path)[1] == train(EPOCHS)[1]


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`", "ignore:.*ckpt_path=")
@pytest.mark.parametrize("failing", ["rollout", "batch_start"])
@pytest.mark.parametrize(
    ("n_before", "options"),
    [(0, {}), (1, {}), (1, LIMITED), (2, {"check_val_every_n_epoch": 2}), (1, OVER_EPOCHS)],
    ids=str,
)
def test_a_batch_that_fails_is_repeated_and_everything_else_comes_once(
    kit: SimpleNamespace, tmp_path: Path, failing: str, n_before: int, options: dict[str, Any]
) -> None:
    n_collected = 0

    def make_rollout(seed: int) -> Any:
        nonlocal n_collected
        n_collected += 1
        if failing == "rollout" and n_collected == n_before + 1:
            raise ZeroDivisionError
        return kit.make_flat_rollout(seed=seed)

    def train(make: Any, *callbacks: Callback, **further: Any) -> Moments:
        seen = Moments("never", 0, tmp_path)
        module = A2C(actor_critic=kit.make_actor_critic(), capture="off")
        kit.fit(module, make, EPOCHS, LENGTH, callbacks=[seen, *callbacks], **options, **further)
        return seen

    whole = train(kit.make_flat_rollout)
    fault = FailAt(failing, n_before)  # which has no effect on rollouts
    with pytest.raises(ZeroDivisionError):
        train(make_rollout, fault, OnExceptionCheckpoint(tmp_path), enable_checkpointing=True)
    rest = train(kit.make_flat_rollout, ckpt_path=tmp_path / "on_exception.ckpt")
    n_epochs, n_batches = divmod(n_before, LENGTH)
    place = whole.seen.index(f"batch {n_batches} of epoch {n_epochs}")
    assert rest.seen == whole.seen[place:]
    assert rest.returns == whole.returns[-len(rest.returns) :]
