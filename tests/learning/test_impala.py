"""IMPALA solves CartPole by the shipped configuration, in one process and with actors that run ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

import maze_pl
from maze_pl.__main__ import main
from tests.learning.training import mean_return

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")

WORKERS = ["--data", "runner/local", "--data.engine.n_workers", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("runner", [[], pytest.param(WORKERS, marks=pytest.mark.long)], ids=["here", "workers"])
def test_the_shipped_configuration_solves_cartpole(
    runner: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["fit", "--config", "impala_cartpole", "--stop_at_return.threshold", "475", "--run_dir", "run"]
    assert main([*command, *runner]) == 0
    assert maze_pl.load("run/checkpoints/best.ckpt").env_steps <= 400_000
    assert mean_return(Path("run", "checkpoints", "best.ckpt")) >= 450
