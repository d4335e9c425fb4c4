"""Callbacks that decide and keep, on a module whose evaluation results are scripted."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning import callbacks as lightning
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.plugins.io import AsyncCheckpointIO
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher

from maze_pl.callbacks import (
    BestCheckpoint,
    EarlyStopping,
    EpochTable,
    EvaluationCheck,
    LastCheckpoint,
    StopAtReturn,
    StopOnSignal,
)
from maze_pl.system.signals import StopSignals
from tests.faults.moments import FailAt


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
    kind = given.pop("kind", Scripted)
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
    trainer.fit(kind(returns), ckpt_path=ckpt_path, weights_only=True)
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


def test_a_run_that_is_resumed_by_a_relative_path_still_knows_what_was_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    returns = [5.0, 3.0, 4.0, 6.0]
    fit(tmp_path / "run", returns, [BestCheckpoint(), LastCheckpoint()], max_epochs=2)
    monkeypatch.chdir(tmp_path)
    for max_epochs, best in ((3, 1), (4, 4)):
        kept = BestCheckpoint()
        last = "run/checkpoints/last.ckpt"
        fit(Path("run"), returns, [kept, LastCheckpoint()], max_epochs=max_epochs, ckpt_path=last)
        assert epoch_of(tmp_path / "run", "best") == best
        assert kept.best_model_score == returns[best - 1]


def test_a_copied_run_keeps_its_best_and_leaves_that_of_the_original_alone(tmp_path: Path) -> None:
    returns = [5.0, 3.0, 4.0, 6.0]
    fit(tmp_path / "run", returns, [BestCheckpoint(), LastCheckpoint()], max_epochs=2)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    original = (tmp_path / "run" / "checkpoints" / "best.ckpt").read_bytes()
    last = str(tmp_path / "copy" / "checkpoints" / "last.ckpt")
    for max_epochs, best in ((3, 1), (4, 4)):
        kept = BestCheckpoint()
        fit(tmp_path / "copy", returns, [kept, LastCheckpoint()], max_epochs=max_epochs, ckpt_path=last)
        assert epoch_of(tmp_path / "copy", "best") == best
        assert Path(kept.best_model_path) == tmp_path / "copy" / "checkpoints" / "best.ckpt"
    assert (tmp_path / "run" / "checkpoints" / "best.ckpt").read_bytes() == original


@pytest.mark.slow
def test_a_best_checkpoint_that_is_newer_than_the_last_one_is_not_overwritten_by_a_worse_one(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    fit(tmp_path, [1.0], [BestCheckpoint(), LastCheckpoint()])
    former = (folder / "last.ckpt").read_bytes()
    fit(tmp_path, [1.0, 5.0], [BestCheckpoint(), LastCheckpoint()], ckpt_path=str(folder / "last.ckpt"))
    (folder / "last.ckpt").write_bytes(former)  # as if the process was killed between the two
    fit(tmp_path, [1.0, 3.0, 4.0], [BestCheckpoint(), LastCheckpoint()], ckpt_path=str(folder / "last.ckpt"))
    assert (epoch_of(tmp_path, "best"), epoch_of(tmp_path, "last")) == (2, 3)


def test_without_its_file_the_best_is_chosen_again(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    fit(tmp_path, [5.0], [BestCheckpoint(), LastCheckpoint()])
    (folder / "best.ckpt").unlink()
    fit(tmp_path, [5.0, 3.0], [BestCheckpoint(), LastCheckpoint()], ckpt_path=str(folder / "last.ckpt"))
    assert epoch_of(tmp_path, "best") == 2


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_what_was_best_by_another_value_is_replaced_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path, [5.0], [BestCheckpoint(), LastCheckpoint()])
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    callbacks = [EpochTable(), BestCheckpoint("eval_count"), LastCheckpoint()]
    fit(tmp_path, [5.0, 3.0], callbacks, ckpt_path=last)
    assert "best.ckpt was not selected by eval_count: the next evaluation replaces it" in capsys.readouterr().out
    assert epoch_of(tmp_path, "best") == 2


def test_best_waits_for_evaluations_that_are_rarer_than_epochs(tmp_path: Path) -> None:
    fit(tmp_path, [1.0, 2.0, 3.0, 4.0, 5.0], [BestCheckpoint(), LastCheckpoint()], check_val_every_n_epoch=2)
    assert (epoch_of(tmp_path, "best"), epoch_of(tmp_path, "last")) == (4, 5)


def test_the_best_may_be_the_least(tmp_path: Path) -> None:
    fit(tmp_path, [3.0, 1.0, 2.0], [BestCheckpoint(mode="min")])
    assert epoch_of(tmp_path, "best") == 2


@pytest.mark.parametrize(
    ("returns", "is_told"), [([0.0, 0.0, 0.0], True), ([0.0, 0.0, -1.0], False), ([0.0, 0.0], False)]
)
def test_evaluations_that_do_not_distinguish_policies_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], returns: list[float], is_told: bool
) -> None:
    fit(tmp_path, returns, [EpochTable(), BestCheckpoint(), LastCheckpoint()])
    said = "eval/return was 0.000 in all 3 evaluations: best.ckpt is the first of them" in capsys.readouterr().out
    assert said is is_told
    assert epoch_of(tmp_path, "best") == 1


def test_a_resumed_run_does_not_claim_that_evaluations_before_it_were_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    returns = [1.0, 5.0, 5.0, 5.0, 5.0]
    fit(tmp_path, returns, [BestCheckpoint(), LastCheckpoint()], max_epochs=2)
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    fit(tmp_path, returns, [EpochTable(), BestCheckpoint(), LastCheckpoint()], ckpt_path=last)
    assert "best.ckpt is the first of them" not in capsys.readouterr().out
    assert epoch_of(tmp_path, "best") == 2


def test_a_resumed_run_without_the_best_of_an_earlier_one_does_not_claim_that_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path, [1.0], [LastCheckpoint()])
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    fit(tmp_path, [1.0, 5.0, 5.0, 5.0], [EpochTable(), BestCheckpoint(), LastCheckpoint()], ckpt_path=last)
    assert "best.ckpt is the first of them" not in capsys.readouterr().out


def test_evaluations_of_an_earlier_run_are_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = BestCheckpoint()
    for folder, score in (("first", 1.0), ("second", 0.0)):
        fit(tmp_path / folder, [score, score], [EpochTable(), best, LastCheckpoint()])
        path = tmp_path / folder / "checkpoints" / "best.ckpt"
        assert path.is_file()
        assert (Path(best.best_model_path), best.best_model_score) == (path, score)
    assert "best.ckpt is the first of them" not in capsys.readouterr().out


def test_the_best_of_a_run_is_written_also_after_as_many_steps_as_that_of_an_earlier_one(tmp_path: Path) -> None:
    callbacks = [BestCheckpoint(), LastCheckpoint()]
    for folder in ("first", "second"):
        fit(tmp_path / folder, [1.0, 2.0], callbacks)
        assert (epoch_of(tmp_path / folder, "best"), epoch_of(tmp_path / folder, "last")) == (2, 2)


def test_an_evaluation_of_a_run_that_failed_is_not_compared_in_the_next_one(tmp_path: Path) -> None:
    best = BestCheckpoint()
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path / "first", [1.0], [FailAt("epoch_end"), best])
    fit(tmp_path / "second", [1.0, 2.0], [best], check_val_every_n_epoch=2)
    assert epoch_of(tmp_path / "second", "best") == 2


def test_a_trainer_that_trains_on_keeps_the_evaluations_so_far(tmp_path: Path) -> None:
    best = BestCheckpoint()
    impatient = EarlyStopping(2)
    returns = [1.0, 5.0, 3.0, 4.0, 6.0]
    trainer = fit(tmp_path, returns, [best, impatient, LastCheckpoint()], max_epochs=2)
    trainer.fit_loop.max_epochs = 5
    trainer.fit(Scripted(returns))
    assert (trainer.current_epoch, best.best_model_score) == (4, 5.0)


def test_a_trainer_that_trains_on_after_an_error_in_its_first_epoch_keeps_the_evaluations_so_far(
    tmp_path: Path,
) -> None:
    best, impatient, stop = BestCheckpoint(), EarlyStopping(9), StopAtReturn(9.0)
    trainer = pl.Trainer(
        default_root_dir=tmp_path,
        max_epochs=1,
        val_check_interval=1,
        callbacks=[FailAt("batch_end", count=1), best, impatient, stop, LastCheckpoint()],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    with pytest.raises(ZeroDivisionError):
        trainer.fit(Longer([5.0]))
    assert (trainer.global_step, trainer.current_epoch, best.best_model_score) == (2, 0, 5.0)
    trainer.fit(Longer([1.0]))
    assert impatient.wait_count == 4
    assert best.best_model_score == impatient.best_score == stop.best == 5.0


def test_last_may_be_written_more_rarely_but_never_misses_the_end(tmp_path: Path) -> None:
    fit(tmp_path, [1.0] * 5, [LastCheckpoint(every_n_epochs=3)])
    assert epoch_of(tmp_path, "last") == 5
    with pytest.raises(ValueError, match="every_n_epochs=0"):
        LastCheckpoint(every_n_epochs=0)


def test_the_first_last_checkpoint_is_written_with_the_first_best_one(tmp_path: Path) -> None:
    callbacks = [FailAt("epoch_start", count=3), BestCheckpoint(), LastCheckpoint(every_n_epochs=9)]
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, [1.0, 0.0, 2.0, 3.0], callbacks)
    assert (epoch_of(tmp_path, "best"), epoch_of(tmp_path, "last")) == (3, 1)


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


def test_evaluations_of_an_earlier_run_do_not_end_the_next_one(tmp_path: Path) -> None:
    stop = StopAtReturn(4.0)
    impatient = EarlyStopping(2)
    for folder, returns, n_epochs in (("first", [5.0, 1.0], 1), ("second", [1.0, 2.0, 3.0], 3)):
        trainer = fit(tmp_path / folder, returns, [stop, impatient])
        assert trainer.current_epoch == n_epochs
        assert stop.best == impatient.best_score == returns[n_epochs - 1]
    assert stop.missed


@pytest.mark.parametrize("kind", [EarlyStopping, StopAtReturn])
def test_a_value_that_was_missing_in_an_earlier_run_is_not_reported_again(tmp_path: Path, kind: Any) -> None:
    callback = kind(5, monitor="eval/kpi/waste")
    with pytest.raises(ValueError, match=r"eval/kpi/waste.*: evaluations do not have this value"):
        fit(tmp_path / "first", [1.0], [callback])
    callback.monitor = "eval/return"
    assert fit(tmp_path / "second", [1.0, 2.0], [callback]).current_epoch == 2


@pytest.mark.parametrize(("threshold", "missed", "epochs"), [(4.0, False, 2), (6.0, True, 3)])
def test_a_finished_run_that_is_resumed_knows_what_it_has_reached(
    tmp_path: Path, threshold: float, missed: bool, epochs: int
) -> None:
    fit(tmp_path, [1.0, 5.0, 3.0], [StopAtReturn(threshold), LastCheckpoint()])
    stop, last = StopAtReturn(threshold), str(tmp_path / "checkpoints" / "last.ckpt")
    trainer = fit(tmp_path, [1.0, 5.0, 3.0], [stop, LastCheckpoint()], ckpt_path=last, max_epochs=epochs)
    assert trainer.current_epoch == epochs
    assert (stop.best, stop.missed) == (5.0, missed)


def test_the_best_of_one_monitored_value_does_not_count_for_another(tmp_path: Path) -> None:
    for ckpt_path in (None, str(tmp_path / "checkpoints" / "last.ckpt")):
        stops = [StopAtReturn(4.0), StopAtReturn(4.0, "eval_count")]
        fit(tmp_path, [1.0, 5.0], [*stops, LastCheckpoint()], ckpt_path=ckpt_path)
        assert [(stop.best, stop.missed) for stop in stops] == [(5.0, False), (1.0, True)]


@pytest.mark.parametrize(
    ("before", "threshold", "epochs"), [(4.0, 4.0, 2), (4.0, None, 4), (4.0, 6.0, 3), (None, 4.0, 4), (None, 9.5, 4)]
)
def test_a_resumed_run_ends_at_once_if_it_has_reached_the_present_threshold(
    tmp_path: Path, before: float | None, threshold: float | None, epochs: int
) -> None:
    returns = [1.0, 5.0, 7.0, 2.0]
    fit(tmp_path, returns, [StopAtReturn(before), LastCheckpoint()])
    stop, last = StopAtReturn(threshold), str(tmp_path / "checkpoints" / "last.ckpt")
    trainer = fit(tmp_path, returns, [stop, LastCheckpoint()], ckpt_path=last)
    assert trainer.current_epoch == epochs
    assert (stop.best, stop.missed) == (max(returns[:epochs]), threshold == 9.5)


@pytest.mark.parametrize("is_spawned", [True, False])
def test_the_parent_of_spawned_ranks_learns_of_values_before_the_run_was_resumed(is_spawned: bool) -> None:
    launcher = _MultiProcessingLauncher.__new__(_MultiProcessingLauncher) if is_spawned else None
    trainer: Any = SimpleNamespace(callback_metrics={}, strategy=SimpleNamespace(launcher=launcher))
    stop, parent = StopAtReturn(5.1), StopAtReturn(5.1)
    stop.load_state_dict({"best": 5.1})
    stop.on_train_end(trainer, Scripted([]))
    parent.take(trainer)  # whose metrics come from the spawned rank
    assert (parent.best, parent.missed) == ((5.1, False) if is_spawned else (-torch.inf, True))


def test_a_missed_threshold_is_described() -> None:
    stop = StopAtReturn(4.0)
    assert stop.outcome == "no value of eval/return is known, so that it has not reached 4.0"
    stop.load_state_dict({"best": 3.25})
    assert stop.outcome == "eval/return reached 3.2, not 4.0"


def test_without_a_threshold_nothing_is_missed(tmp_path: Path) -> None:
    stop = StopAtReturn()
    assert fit(tmp_path, [1.0, 3.0], [stop]).current_epoch == 2
    assert not stop.missed


def test_a_threshold_on_something_unknown_names_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'eval/kpi/x'.*they have eval/return"):
        fit(tmp_path, [1.0], [StopAtReturn(1.0, monitor="eval/kpi/x")])


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.parametrize("every_n_epochs", [1, 2])
@pytest.mark.parametrize(
    "callback",
    [StopAtReturn(1.0, monitor="eval/kpi/x"), EarlyStopping(monitor="eval/kpi/x"), BestCheckpoint("eval/kpi/x")],
    ids=lambda callback: type(callback).__name__,
)
def test_what_was_learned_is_kept_when_a_callback_waits_for_something_unknown(
    tmp_path: Path, callback: Callback, every_n_epochs: int
) -> None:
    callbacks = [copy.deepcopy(callback), LastCheckpoint(every_n_epochs=7)]
    with pytest.raises(ValueError, match=r"'eval/kpi/x'.*they have eval/return"):
        fit(tmp_path, [1.0, 2.0, 3.0, 4.0], callbacks, check_val_every_n_epoch=every_n_epochs)
    assert epoch_of(tmp_path, "last") == every_n_epochs
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    assert fit(tmp_path, [1.0] * 4, [LastCheckpoint()], ckpt_path=last).current_epoch == 4


@pytest.mark.parametrize(("mode", "returns"), [("min", [1.0, 2.0, 3.0, 0.0]), ("max", [3.0, 2.0, 1.0, 4.0])])
def test_early_stopping_follows_the_best_checkpoint(tmp_path: Path, mode: str, returns: list[float]) -> None:
    follower = EarlyStopping(patience=2)
    trainer = fit(tmp_path, returns, [follower, BestCheckpoint("eval/return", mode), LastCheckpoint()])
    assert (trainer.current_epoch, follower.mode) == (3, mode)
    counting = EarlyStopping(patience=9)
    fit(tmp_path / "count", [1.0], [counting, BestCheckpoint("eval_count"), LastCheckpoint()])
    assert counting.monitor == "eval_count"
    state = torch.load(tmp_path / "count" / "checkpoints" / "last.ckpt", weights_only=True)["callbacks"]
    assert "maze_pl.EarlyStopping{'monitor': 'eval_count', 'mode': 'max'}" in state


def test_early_stopping_watches_what_it_is_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = EarlyStopping(monitor="eval/return")
    fit(tmp_path, [1.0], [EpochTable(), told, BestCheckpoint("eval_count"), EvaluationCheck()])
    assert told.monitor == "eval/return"
    said = capsys.readouterr().out
    assert "best.ckpt is chosen by eval_count, but early stopping monitors eval/return" in said
    with pytest.raises(ValueError, match="mode='min' applies to the value of monitor: set monitor, too"):
        EarlyStopping(mode="min")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"check_val_every_n_epoch": 4}, "trainer.check_val_every_n_epoch=4, and max_epochs=3"),
        ({"check_val_every_n_epoch": 3}, None),
        ({"limit_val_batches": 0}, "trainer.limit_val_batches=0"),
        (
            {"check_val_every_n_epoch": None, "val_check_interval": 4},
            "trainer.val_check_interval=4, and max_epochs=3 of 1 batches",
        ),
        ({"check_val_every_n_epoch": None, "val_check_interval": 3}, None),
    ],
)
def test_a_run_that_will_never_be_evaluated_says_so_at_its_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any], reason: str | None
) -> None:
    fit(tmp_path, [1.0] * 3, [EpochTable(), BestCheckpoint(), EvaluationCheck()], **options)
    said = [line for line in capsys.readouterr().out.splitlines() if "never evaluates" in line]
    wanted = [f"this run never evaluates its policy: {reason}; so it writes no best.ckpt"] if reason else []
    assert said == wanted
    assert (tmp_path / "checkpoints" / "best.ckpt").exists() == (reason is None)


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 4), (0, 6)])
def test_patience_counts_evaluations_without_improvement_and_zero_is_endless(
    tmp_path: Path, patience: int, epochs: int
) -> None:
    trainer = fit(tmp_path, [1.0, 2.0, 2.0, 1.0, 1.0, 1.0], [EarlyStopping(patience=patience)])
    assert trainer.current_epoch == epochs


def test_attributes_that_are_set_after_construction_count(tmp_path: Path) -> None:
    impatient, best, last = EarlyStopping(1), BestCheckpoint(), LastCheckpoint()
    impatient.patience = 2
    impatient.min_delta = 3.0
    best.dirpath = last.dirpath = str(tmp_path / "elsewhere")
    for folder in ("first", "second"):
        trainer = fit(tmp_path / folder, [1.0, 5.0, 6.0, 7.0, 8.0], [impatient, best, last])
        assert trainer.current_epoch == 4
        assert not (tmp_path / folder / "checkpoints").exists()
        assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {"best.ckpt", "last.ckpt"}
    best.dirpath = last.dirpath = None
    impatient.patience = 0
    assert fit(tmp_path / "third", [1.0] * 5, [impatient, best, last]).current_epoch == 5
    assert epoch_of(tmp_path / "third", "last") == 5


def test_the_smallest_change_follows_the_mode_of_the_best_checkpoint(tmp_path: Path) -> None:
    follower = EarlyStopping(patience=2, min_delta=1.5)
    trainer = fit(tmp_path, [9.0, 5.0, 4.0, 3.0, 0.0], [follower, BestCheckpoint(mode="min")])
    assert (trainer.current_epoch, follower.min_delta) == (5, -1.5)


class Longer(Scripted):
    """Four batches an epoch; evaluations all have the same result."""

    def train_dataloader(self) -> list[int]:
        return [0] * 4


@pytest.mark.parametrize(("interval", "batches"), [(1, 3), (2, 6), (0.25, 3), (0.5, 6), (1.0, 12), ("00:00:00:00", 3)])
def test_patience_counts_evaluations_within_epochs(tmp_path: Path, interval: Any, batches: int) -> None:
    stopping = EarlyStopping(patience=2)
    trainer = pl.Trainer(
        default_root_dir=tmp_path,
        max_epochs=4,
        callbacks=[stopping],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        val_check_interval=interval,
    )
    trainer.fit(Longer([1.0] * 4))
    assert (trainer.global_step, stopping.wait_count) == (batches, 2)


def test_an_end_within_an_epoch_does_not_compare_the_previous_evaluation_again(tmp_path: Path) -> None:
    impatient = EarlyStopping(patience=1)
    trainer = fit(tmp_path, [1.0, 2.0, 3.0], [impatient], kind=Longer, max_steps=6)
    assert (trainer.global_step, impatient.wait_count) == (6, 0)


class StopInEpoch(Callback):
    """Ends training after the second batch of the second epoch, as a time limit does."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.should_stop or trainer.global_step == 6


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_an_evaluation_at_an_end_within_an_epoch_counts_for_the_best_checkpoint_only(tmp_path: Path) -> None:
    returns = [1.0, 2.0, 2.0]
    for is_resumed in (False, True):
        patient, best, last = EarlyStopping(patience=9), BestCheckpoint(), LastCheckpoint()
        path = str(tmp_path / "checkpoints" / "last.ckpt") if is_resumed else None
        first = [] if is_resumed else [StopInEpoch()]
        fit(tmp_path, returns, [*first, patient, best, last], kind=Longer, ckpt_path=path)
        saved = torch.load(tmp_path / "checkpoints" / "best.ckpt", weights_only=True)
        assert saved["global_step"] == 6
    assert (patient.best_score, patient.wait_count) == (2.0, 1)


def test_a_resumed_run_has_the_patience_that_it_is_given_now(tmp_path: Path) -> None:
    returns = [5.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    fit(tmp_path, returns, [EarlyStopping(patience=1), LastCheckpoint()])
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    for patience, epochs in ((1, 2), (3, 4), (0, 6)):
        callbacks = [EarlyStopping(patience=patience), LastCheckpoint()]
        assert fit(tmp_path, returns, callbacks, ckpt_path=last).current_epoch == epochs


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_early_stopping_of_lightning_works_besides_that_of_maze_pl(tmp_path: Path) -> None:
    ours, theirs = EarlyStopping(patience=3), lightning.EarlyStopping("eval/return", mode="max", patience=9)
    trainer = fit(tmp_path, [5.0, 1.0, 1.0], [theirs, ours, LastCheckpoint()])
    assert (ours.wait_count, theirs.wait_count) == (2, 2)
    last = tmp_path / "checkpoints" / "last.ckpt"
    saved = torch.load(last, weights_only=True)
    kept = saved["callbacks"].pop(ours.state_key)
    for earlier in (False, True):  # versions without a key of maze_pl
        key = "EarlyStopping{'monitor': 'eval/return', 'mode': 'max'}" if earlier else ours.state_key
        torch.save({**saved, "callbacks": {**saved["callbacks"], key: kept}}, last)
        resumed = [EarlyStopping(patience=3), LastCheckpoint()]
        trainer = fit(tmp_path, [5.0] + [1.0] * 9, resumed, ckpt_path=str(last))
        assert trainer.current_epoch == 4


@pytest.mark.filterwarnings("ignore:.*multiple `ModelCheckpoint` callbacks")
@pytest.mark.parametrize("first", ["last", "signal", "best"])
def test_lightning_finds_the_best_checkpoint_whatever_the_order_of_callbacks(tmp_path: Path, first: str) -> None:
    with StopSignals() as signals:
        given = {"last": LastCheckpoint(), "signal": StopOnSignal(signals), "best": BestCheckpoint()}
        order = sorted(given, key=lambda name: name != first)
        trainer = fit(tmp_path, [1.0, 5.0, 3.0, 0.0], [given[name] for name in order], max_epochs=3)
        trainer.validate(ckpt_path="best", verbose=False, weights_only=True)
    assert trainer.lightning_module.weight == 2.0
    assert LastCheckpoint().best_model_path == ""


def test_checkpoints_that_are_written_later_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="AsyncCheckpointIO is not supported"):
        fit(tmp_path, [1.0], [LastCheckpoint()], plugins=[AsyncCheckpointIO()])


def test_the_table_says_when_the_policy_is_the_best_so_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tmp_path, [1.0, 5.0, 3.0], [EpochTable(), BestCheckpoint()])
    best = [line for line in capsys.readouterr().out.splitlines() if line.startswith("->")]
    assert best == ["-> new best eval/return 1.000!", "-> new best eval/return 5.000!"]


def test_a_large_score_is_shown_with_the_digits_that_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path, [9_123.456, 66_933.209, 1_234_567.8], [EpochTable(), BestCheckpoint()])
    best = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if line.startswith("->")]
    assert best == ["9,123.456!", "66,933.21!", "1,234,568!"]
