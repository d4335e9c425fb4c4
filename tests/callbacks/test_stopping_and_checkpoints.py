"""Callbacks that decide and keep, on a module whose evaluation results are scripted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks import BestCheckpoint, EarlyStopping, EpochTable, LastCheckpoint, StopAtReturn


class Scripted(pl.LightningModule):
    """One batch an epoch; `eval/return` is the next of the given values."""

    def __init__(self, returns: Sequence[float]) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.returns = returns
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        self.weight.grad = -torch.ones(())
        optimizer.step()  # type: ignore[union-attr]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("eval/return", self.returns[self.current_epoch], batch_size=1)
        self.log("eval_count", float(self.current_epoch), batch_size=1)

    def train_dataloader(self) -> list[int]:
        return [0]

    def val_dataloader(self) -> list[int]:
        return [0]


def fit(folder: Path, returns: Sequence[float], callbacks: list[Callback], **options: Any) -> pl.Trainer:
    given = {"max_epochs": len(returns), **options}
    ckpt_path = given.pop("ckpt_path", None)
    trainer = pl.Trainer(
        default_root_dir=folder,
        callbacks=callbacks,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **given,
    )
    trainer.fit(Scripted(returns), ckpt_path=ckpt_path, weights_only=True)
    return trainer


def epoch_of(folder: Path, name: str) -> int:
    state = torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)
    assert state["state_dict"]["weight"] == state["epoch"] + 1
    return int(state["epoch"]) + 1


def test_last_is_the_last_epoch_and_best_the_best_when_the_metric_worsens(tmp_path: Path) -> None:
    fit(tmp_path, [1.0, 5.0, 3.0, 2.0], [BestCheckpoint(), LastCheckpoint()])
    assert (epoch_of(tmp_path, "best"), epoch_of(tmp_path, "last")) == (2, 4)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]


def test_a_resumed_run_still_knows_what_was_best(tmp_path: Path) -> None:
    returns = [1.0, 5.0, 3.0, 4.0, 6.0]
    fit(tmp_path, returns, [BestCheckpoint(), LastCheckpoint()], max_epochs=3)
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    fit(tmp_path, returns, [BestCheckpoint(), LastCheckpoint()], max_epochs=4, ckpt_path=last)
    assert (epoch_of(tmp_path, "best"), epoch_of(tmp_path, "last")) == (2, 4)
    fit(tmp_path, returns, [BestCheckpoint(), LastCheckpoint()], max_epochs=5, ckpt_path=last)
    assert epoch_of(tmp_path, "best") == 5


def test_best_waits_for_evaluations_that_are_rarer_than_epochs(tmp_path: Path) -> None:
    fit(tmp_path, [1.0, 2.0, 3.0, 4.0, 5.0], [BestCheckpoint(), LastCheckpoint()], check_val_every_n_epoch=2)
    assert (epoch_of(tmp_path, "best"), epoch_of(tmp_path, "last")) == (4, 5)


def test_the_best_may_be_the_least(tmp_path: Path) -> None:
    fit(tmp_path, [3.0, 1.0, 2.0], [BestCheckpoint(mode="min")])
    assert epoch_of(tmp_path, "best") == 2


def test_last_may_be_written_more_rarely_but_never_misses_the_end(tmp_path: Path) -> None:
    fit(tmp_path, [1.0] * 5, [LastCheckpoint(every_n_epochs=3)])
    assert epoch_of(tmp_path, "last") == 5
    with pytest.raises(ValueError, match="every_n_epochs=0"):
        LastCheckpoint(every_n_epochs=0)


def test_a_checkpoint_that_fails_to_be_written_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(tmp_path, [1.0], [LastCheckpoint()])
    former = (tmp_path / "checkpoints" / "last.ckpt").read_bytes()

    def half(self: pl.Trainer, filepath: str, *args: Any, **kwargs: Any) -> None:
        Path(filepath).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pl.Trainer, "save_checkpoint", half)
    with pytest.raises(OSError, match="disk full"):
        fit(tmp_path, [1.0], [LastCheckpoint()])
    assert (tmp_path / "checkpoints" / "last.ckpt").read_bytes() == former


def test_training_ends_when_the_return_is_reached(tmp_path: Path) -> None:
    stop = StopAtReturn(4.0)
    trainer = fit(tmp_path, [1.0, 5.0, 9.0], [stop])
    assert trainer.current_epoch == 2
    assert (stop.best, stop.missed) == (5.0, False)


def test_a_return_that_is_never_reached_is_missed(tmp_path: Path) -> None:
    stop = StopAtReturn(4.0)
    assert fit(tmp_path, [1.0, 3.0, 2.0], [stop]).current_epoch == 3
    assert (stop.best, stop.missed) == (3.0, True)


@pytest.mark.parametrize(("threshold", "missed", "epochs"), [(4.0, False, 2), (6.0, True, 3)])
def test_a_finished_run_that_is_resumed_knows_what_it_has_reached(
    tmp_path: Path, threshold: float, missed: bool, epochs: int
) -> None:
    fit(tmp_path, [1.0, 5.0, 3.0], [StopAtReturn(threshold), LastCheckpoint()])
    stop, last = StopAtReturn(threshold), str(tmp_path / "checkpoints" / "last.ckpt")
    trainer = fit(tmp_path, [1.0, 5.0, 3.0], [stop, LastCheckpoint()], ckpt_path=last, max_epochs=epochs)
    assert trainer.current_epoch == epochs
    assert (stop.best, stop.missed) == (5.0, missed)


def test_what_one_value_has_reached_does_not_count_for_another_one(tmp_path: Path) -> None:
    for ckpt_path in (None, str(tmp_path / "checkpoints" / "last.ckpt")):
        stops = [StopAtReturn(4.0), StopAtReturn(4.0, "eval_count")]
        fit(tmp_path, [1.0, 5.0], [*stops, LastCheckpoint()], ckpt_path=ckpt_path)
        assert [(stop.best, stop.missed) for stop in stops] == [(5.0, False), (1.0, True)]


def test_without_a_threshold_nothing_is_missed(tmp_path: Path) -> None:
    stop = StopAtReturn()
    assert fit(tmp_path, [1.0, 3.0], [stop]).current_epoch == 2
    assert not stop.missed


def test_a_threshold_on_something_unknown_names_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'eval/kpi/x'.*it has eval/return"):
        fit(tmp_path, [1.0], [StopAtReturn(1.0, monitor="eval/kpi/x")])


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 4), (0, 6)])
def test_patience_counts_evaluations_without_improvement_and_zero_is_endless(
    tmp_path: Path, patience: int, epochs: int
) -> None:
    trainer = fit(tmp_path, [1.0, 2.0, 2.0, 1.0, 1.0, 1.0], [EarlyStopping(patience=patience)])
    assert trainer.current_epoch == epochs


def test_a_resumed_run_has_the_patience_that_it_is_given_now(tmp_path: Path) -> None:
    returns = [5.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    fit(tmp_path, returns, [EarlyStopping(patience=1), LastCheckpoint()])
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    assert fit(tmp_path, returns, [EarlyStopping(patience=3), LastCheckpoint()], ckpt_path=last).current_epoch == 4


def test_the_table_says_when_the_policy_is_the_best_so_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tmp_path, [1.0, 5.0, 3.0], [EpochTable(), BestCheckpoint()])
    best = [line for line in capsys.readouterr().out.splitlines() if line.startswith("->")]
    assert best == ["-> new best eval/return 1.000!", "-> new best eval/return 5.000!"]
