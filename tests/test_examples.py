"""Every example runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_low_level_example_is_short() -> None:
    assert len((EXAMPLES / "low_level_cartpole.py").read_text(encoding="utf-8").splitlines()) <= 40


def test_the_low_level_example_trains_and_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLES / "low_level_cartpole.py"))
    assert 1.0 <= example["train"](max_epochs=1) <= 500.0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_low_level_example_learns() -> None:
    import pytorch_lightning as pl

    pl.seed_everything(0)
    assert runpy.run_path(str(EXAMPLES / "low_level_cartpole.py"))["train"]() >= 300.0


def test_stable_baselines3_trains_on_observations_that_are_normalised_here() -> None:
    example = runpy.run_path(str(EXAMPLES / "stable_baselines3_cartpole.py"))
    seen = [example["make_env"]().reset(seed=seed)[0] for seed in range(3)]
    assert all(abs(observation).max() > 0.05 for observation in seen)  # which the bare environment's never exceed
    assert 1.0 <= example["train"](total_timesteps=300) <= 500.0
