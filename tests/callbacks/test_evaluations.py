"""KPIs that callbacks and schedulers monitor are those of the environment that an evaluator plays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.callbacks import BestCheckpoint, EarlyStopping, EpochTable, StopAtReturn
from maze_pl.callbacks.evaluations import EvaluationCheck
from maze_pl.callbacks.monitors import check_monitors
from maze_pl.config.search_path import ConfigurationError
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv, Wrapper
from maze_pl.events.episode_log import EpisodeEventLog, KpiCalculator
from maze_pl.modules import PPO
from tests.datamodules.trainers import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")


class Length(KpiCalculator):
    """The number of steps of an episode."""

    def __init__(self, name: str, is_declared: bool) -> None:
        self.name = name
        self.kpi_names = (name,) if is_declared else None

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        return {self.name: float(len(episode_event_log.step_event_logs))}


class MeasuredWrapper(Wrapper):
    """Adds a KPI."""

    def __init__(self, env: Any, name: str = "length", is_declared: bool = True) -> None:
        super().__init__(env)
        self.calculator = Length(name, is_declared)

    def get_kpi_calculator(self) -> KpiCalculator:
        return self.calculator


class OnPlateau(PPO):
    """Lowers its learning rate where a KPI stands still."""

    monitor = ""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters())
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": self.monitor}}


def fit(
    folder: Path,
    monitor: str,
    training: Callable[[Any], Any] | None = None,
    held_out: Callable[[Any], Any] = MeasuredWrapper.wrap,
    module: type[PPO] = PPO,
) -> pl.Trainer:
    """Train, and choose the best checkpoint by a value."""
    pl.seed_everything(0, verbose=False)
    evaluators = {"eval": RolloutEvaluator(2), "held_out": RolloutEvaluator(2, wrappers=[held_out])}
    data = RolloutDataModule(
        lambda: GymMazeEnv("CartPole-v1", max_episode_steps=9),
        [training] if training else [],
        n_envs=2,
        n_rollout_steps=10,
        epoch_length=1,
        seed=1,
        evaluators=evaluators,
    )
    best = [BestCheckpoint(monitor=monitor, dirpath=str(folder))]
    callbacks = [EpochTable(), EvaluationCheck(), *(best if module is PPO else [])]
    options = {"callbacks": callbacks, "enable_checkpointing": module is PPO, "is_evaluated": True}
    trainer = make_trainer(folder, max_epochs=1, **options)
    trainer.fit(module(spec=data.spec, batch_size=20), data)
    return trainer


@pytest.mark.slow
def test_a_kpi_of_an_evaluator_alone_chooses_the_best_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for held_out in (MeasuredWrapper.wrap, partial(MeasuredWrapper, is_declared=False)):
        trainer = fit(tmp_path, "held_out/kpi/length", held_out=held_out)
        assert trainer.callback_metrics["held_out/kpi/length"] == 9.0
        assert Path(trainer.checkpoint_callback.best_model_path).is_file()  # type: ignore[union-attr, attr-defined]
        assert "the first episodes of training have" not in capsys.readouterr().out


def test_kpis_that_an_evaluator_does_not_have_are_refused_with_its_own(tmp_path: Path) -> None:
    message = r"monitor='held_out/kpi/size'\): the environment has the KPIs length"
    with pytest.raises(ValueError, match=message):
        fit(tmp_path, "held_out/kpi/size", training=lambda env: MeasuredWrapper.wrap(env, "size"))
    with pytest.raises(ValueError, match=r"monitor='eval/kpi/length'\): the environment has no KPI calculator"):
        fit(tmp_path, "eval/kpi/length")


@pytest.mark.slow
def test_columns_of_kpis_are_monitored_and_refused_as_their_short_names(tmp_path: Path) -> None:
    column = "held_out_BaseEnvEvents/kpi/mean/length"
    assert fit(tmp_path, column).callback_metrics[column] == 9.0
    with pytest.raises(ValueError, match=r"kpi/std/size'\): the environment has the KPIs length"):
        fit(tmp_path, "held_out_BaseEnvEvents/kpi/std/size")


def test_an_idle_threshold_needs_no_evaluator() -> None:
    trainer = pl.Trainer(logger=False, enable_checkpointing=False, callbacks=[StopAtReturn(), EarlyStopping()])
    data = SimpleNamespace(evaluators={"held_out": RolloutEvaluator()})
    trainer.callbacks = [StopAtReturn(), BestCheckpoint("held_out/return")]  # type: ignore[attr-defined]
    check_monitors(trainer, data)
    trainer.callbacks += [StopAtReturn(3.0)]  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match=r"StopAtReturn\(monitor='eval/return'\) needs an evaluator 'eval'"):
        check_monitors(trainer, data)


@pytest.mark.parametrize(
    ("monitor", "is_known"),
    [
        *(("eval/return", True), ("eval/kpi/cost", True), ("eval_BaseEnvEvents/reward/max", True)),
        *(("train/anything", True), ("eval/retrun", False), ("eval/reward", False)),
    ],
)
def test_values_that_no_evaluation_has_are_refused_unless_other_code_may_log_them(monitor: str, is_known: bool) -> None:
    trainer = pl.Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.callbacks = [BestCheckpoint(monitor)]  # type: ignore[attr-defined]
    data = SimpleNamespace(evaluators={"eval": RolloutEvaluator()})
    check_monitors(trainer, data)  # modules may log more
    module = object.__new__(PPO)
    check_monitors(trainer, SimpleNamespace(evaluators=data.evaluators, validation_percentage=10), module)
    refused = pytest.raises(ConfigurationError, match="evaluations do not have this value")
    with nullcontext() if is_known else refused:
        check_monitors(trainer, data, module)
    trainer.callbacks += [Further()]  # type: ignore[attr-defined]
    check_monitors(trainer, data, module)


class Further(pl.Callback):
    """May log anything."""


@pytest.mark.slow
def test_schedulers_monitor_kpis_of_evaluators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnPlateau, "monitor", "held_out/kpi/length")
    fit(tmp_path, "", module=OnPlateau)
    monkeypatch.setattr(OnPlateau, "monitor", "held_out_BaseEnvEvents/kpi/mean/length")
    fit(tmp_path, "", module=OnPlateau)
    monkeypatch.setattr(OnPlateau, "monitor", "held_out/kpi/size")
    with pytest.raises(ValueError, match=r"'held_out/kpi/size', but the environment has the KPIs length"):
        fit(tmp_path, "", module=OnPlateau)
    monkeypatch.setattr(OnPlateau, "monitor", "eval/kpi/length")
    with pytest.raises(ValueError, match=r"'eval/kpi/length', but the environment has no KPI calculator"):
        fit(tmp_path, "", module=OnPlateau)
