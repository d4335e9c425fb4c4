"""A sweep repairs a learning rate with which nothing is learned, within a small budget."""

from __future__ import annotations

from pathlib import Path

import pytest

import maze_pl

BROKEN = """
base: ppo_cartpole
model:
  init_args: {lr: 1.0e-8}
trainer: {max_epochs: 3}                 # 60,000 env steps a trial
stop_at_return: {threshold: 475}
"""
SEARCH = {
    "config": "broken.yaml",
    "search": {"model.lr": {"low": 1e-8, "high": 1.0, "log": True}},
    "pruner": {"name": "median", "n_startup_trials": 4},
    "n_trials": 20,
    "n_parallel": 2,
}


@pytest.mark.slow
@pytest.mark.long
def test_twenty_trials_find_a_learning_rate_that_solves_cartpole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text(BROKEN, encoding="utf-8")
    result = maze_pl.sweep(SEARCH, run_dir="sweep")
    assert len(result.trials) == 20
    best = result.best_trials[0]
    assert best.values[0] >= 475
    assert 1e-5 < best.assignment["model.lr"] < 0.1
    hopeless = [trial for trial in result.trials if trial.assignment["model.lr"] < 1e-6 and trial.values]
    assert all(trial.values[0] < 475 for trial in hopeless)
    assert not [trial for trial in result.trials if trial.status == "failed"]
