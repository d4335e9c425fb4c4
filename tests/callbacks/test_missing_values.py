"""Monitored values that some evaluations or epochs lack are not replaced by earlier ones."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning import callbacks as of_lightning

from maze_pl.callbacks import BestCheckpoint, EarlyStopping, EpochTable, LastCheckpoint, StopAtReturn
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv, Wrapper
from maze_pl.events.episode_log import EpisodeEventLog, KpiCalculator
from maze_pl.modules import PPO
from tests.datamodules.trainers import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")

KPI = "eval/kpi/length"
OF_TRAINING = "train_BaseEnvEvents/reward/mean"


class Length(KpiCalculator):
    """The number of steps of an episode, as long as it is given."""

    is_given = True

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        length = float(len(episode_event_log.step_event_logs))
        return {"length": length} if type(self).is_given else {}


class MeasuredWrapper(Wrapper):
    """Adds the KPI."""

    def get_kpi_calculator(self) -> KpiCalculator:
        return Length()


class Omit(pl.Callback):
    """Takes the KPI away after the second epoch."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        Length.is_given = trainer.current_epoch < 2


class Returns(pl.Callback):
    """The mean return of the episodes of each epoch."""

    def __init__(self) -> None:
        self.means: list[float] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.means.append(float(trainer.callback_metrics["train/return"]))


class OnPlateau(PPO):
    """Lowers its learning rate where a value stands still."""

    monitor = ""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", factor=0.5, patience=0, threshold=1e6)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": self.monitor}}


def make_env(n_steps: int) -> Any:
    return MeasuredWrapper.wrap(GymMazeEnv("Pendulum-v1", max_episode_steps=n_steps))


def fit(
    folder: Path,
    callbacks: list[pl.Callback],
    n_steps: int = 5,
    module: type[PPO] = PPO,
    max_epochs: int = 4,
    ckpt_path: Path | None = None,
    epoch_length: int = 1,
    **options: Any,
) -> pl.Trainer:
    """Train for epochs of batches of 10 steps of each environment; `options` are those of the trainer."""
    pl.seed_everything(0, verbose=False)
    data = RolloutDataModule(
        lambda: make_env(n_steps),
        n_envs=2,
        n_rollout_steps=10,
        epoch_length=epoch_length,
        seed=1,
        evaluators={"eval": RolloutEvaluator(2)},
    )
    given = {"callbacks": callbacks, "enable_checkpointing": True, "is_evaluated": True, "max_epochs": max_epochs}
    trainer = make_trainer(folder, **given, **options)
    learner = module(spec=data.spec, batch_size=20, n_optimization_epochs=1, capture="off")
    trainer.fit(learner, data, ckpt_path=ckpt_path)
    return trainer


def epochs_of(folder: Path) -> int:
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    return int(state["epoch"]) + 1


@pytest.mark.parametrize(
    "callback",
    [BestCheckpoint(KPI), EarlyStopping(patience=9, monitor=KPI), StopAtReturn(99.0, KPI)],
    ids=lambda callback: type(callback).__name__,
)
def test_a_value_that_an_evaluation_lacks_ends_the_run_although_earlier_ones_had_it(
    callback: pl.Callback, tmp_path: Path
) -> None:
    message = r"monitor='eval/kpi/length'\): earlier evaluations had this value, but no episode of the last one"
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, [Omit(), callback, LastCheckpoint()])
    assert epochs_of(tmp_path) == 3


def test_so_does_a_resumed_run(tmp_path: Path) -> None:
    fit(tmp_path, [Omit(), BestCheckpoint(KPI), LastCheckpoint()], max_epochs=2)
    with pytest.raises(ValueError, match=r"monitor='eval/kpi/length'\): earlier evaluations had this value"):
        fit(
            tmp_path,
            [Omit(), BestCheckpoint(KPI), LastCheckpoint()],
            ckpt_path=tmp_path / "checkpoints" / "last.ckpt",
        )
    assert epochs_of(tmp_path) == 3


@pytest.mark.parametrize("monitor", [KPI, "train/kpi/length"])
@pytest.mark.parametrize("kind", ["ModelCheckpoint", "EarlyStopping"])
def test_callbacks_of_lightning_see_the_earlier_value(monitor: str, kind: str, tmp_path: Path) -> None:
    checkpoint = of_lightning.ModelCheckpoint(tmp_path, monitor=monitor)
    stop = of_lightning.EarlyStopping(monitor, patience=9)
    trainer = fit(tmp_path, [Omit(), checkpoint if kind == "ModelCheckpoint" else stop])
    assert trainer.current_epoch == 4
    assert trainer.callback_metrics[monitor] == 5.0


@pytest.mark.parametrize("is_resumed", [False, True])
def test_schedulers_refuse_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_resumed: bool) -> None:
    monkeypatch.setattr(OnPlateau, "monitor", KPI)
    options: dict[str, Any] = {}
    if is_resumed:
        fit(tmp_path, [Omit(), LastCheckpoint()], module=OnPlateau, max_epochs=2)
        options["ckpt_path"] = tmp_path / "checkpoints" / "last.ckpt"
    with pytest.raises(ValueError, match=r"ReduceLROnPlateau monitors 'eval/kpi/length', which has no value"):
        fit(tmp_path, [Omit(), LastCheckpoint()], module=OnPlateau, **options)


def test_epochs_in_which_no_training_episode_ends_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(OnPlateau, "monitor", OF_TRAINING)
    best, early, threshold = BestCheckpoint(OF_TRAINING), EarlyStopping(9), StopAtReturn(0.0, OF_TRAINING)
    trainer = fit(tmp_path, [EpochTable(), early, threshold, best], n_steps=25, module=OnPlateau)
    # two environments each finish an episode in epoch 3, after 25 of 40 steps
    assert trainer.current_epoch == 4
    assert best._n_evaluations == 1
    assert early.wait_count == 0 and early.best_score == best.best_model_score == threshold.best
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.01
    output = capsys.readouterr().out
    assert output.count(f"no training episode has ended in this epoch, which has no {OF_TRAINING}: best.ckpt") == 3
    counts = re.findall(r"train BaseEnvEvents +reward +episode_count *\| +(\d)", output)
    assert counts == ["0", "0", "2", "0"]


@pytest.mark.parametrize(("interval", "writes_last_first"), [(2, False), (3, False), (3, True)])
def test_values_of_training_are_compared_at_the_end_of_epochs_with_evaluations(
    tmp_path: Path, interval: int, writes_last_first: bool
) -> None:
    options: dict[str, Any] = {"epoch_length": 4, "val_check_interval": interval}

    def train(folder: str, **limits: Any) -> tuple[list[float], Any]:
        returns, name = Returns(), "train/return"
        early, threshold = EarlyStopping(9, name, min_delta=1e6), StopAtReturn(0.0, name)
        best, last = BestCheckpoint(name), LastCheckpoint()
        files = [last, best] if writes_last_first else [best, last]
        fit(tmp_path / folder, [returns, early, threshold, *files], **options, **limits)
        assert best._n_evaluations == (1 if "max_steps" in limits else len(returns.means))
        return returns.means, (best.best_model_score, threshold.best, early.wait_count)

    means, compared = train("whole", max_epochs=3)
    assert compared == (max(means), max(means), 2)
    _, in_between = train("resumed", max_epochs=3, max_steps=interval + 4)  # after an evaluation in the second epoch
    assert in_between == (means[0], means[0], 0)
    resumed, again = train("resumed", max_epochs=3, ckpt_path=tmp_path / "resumed" / "checkpoints" / "last.ckpt")
    assert (resumed, again) == (means[1:], compared)


@pytest.mark.parametrize(("n_steps", "is_refused"), [(25, False), (5, True)])
def test_names_that_do_not_exist_are_refused_once_an_episode_has_ended(
    tmp_path: Path, n_steps: int, is_refused: bool
) -> None:
    refused = pytest.raises(ValueError, match=r"do not have this value.*did you mean train_BaseEnvEvents/reward/mean")
    with refused if is_refused else nullcontext():
        fit(tmp_path, [BestCheckpoint("train_BaseEnvEvents/reward/maen")], n_steps, max_epochs=1)
