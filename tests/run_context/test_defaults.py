"""Training from the documented defaults of each algorithm, and once more after a run that has failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maze_pl import RunContext
from maze_pl.datamodules import RolloutEvaluator


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "a2c": {},
    "impala": {},
    "sac": {"env.name": "Pendulum-v1"},
    "td3": {"env.name": "Pendulum-v1"},
    "dqn": {},
    "es": {"data.shared_noise_table_size": 1_000_000},
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", DEFAULTS)
def test_each_algorithm_trains_from_its_defaults(algorithm: str) -> None:
    shorter = {"data.epoch_length": 2, "data.evaluators": {"eval": RolloutEvaluator(n_episodes=1)}}
    overrides = {"env.name": "CartPole-v1", **shorter, **DEFAULTS[algorithm], "early_stopping.patience": 1}
    context = RunContext(algorithm=algorithm, overrides=overrides, silent=True)
    context.train()
    metrics = (context.run_directory / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert len(metrics) > 2
    assert (context.run_directory / "checkpoints" / "best.ckpt").is_file()


def dqn(max_epochs: int) -> RunContext:
    sizes = {"data.initial_buffer_size": 64, "data.epoch_length": 1, "data.evaluators": {}}
    overrides = {"env.name": "CartPole-v1", **sizes, "trainer.max_epochs": max_epochs}
    return RunContext(algorithm="dqn", overrides=overrides, run_dir="here", silent=True)


@pytest.mark.slow
def test_a_corrected_run_may_use_the_directory_of_one_that_has_trained_nothing() -> None:
    message = "DQN's default epsilon falls over a tenth of the run, whose length is unknown: set trainer.max_epochs"
    with pytest.raises(ValueError, match=f"{message}, or model.epsilon to a number"):
        dqn(max_epochs=0).train()
    log = Path("here", "run.log")
    assert message in log.read_text(encoding="utf-8")
    context = dqn(max_epochs=1)
    assert context.command[-2:] == ["--run_dir", "here"]
    context.train()
    assert "max_epochs: 1\n" in Path("here", "config.yaml").read_text(encoding="utf-8")
    assert Path("here", "checkpoints", "last.ckpt").is_file()
    assert message in log.read_text(encoding="utf-8")
    assert dqn(max_epochs=1).command[-2:] == ["--warm-start", "here"]
