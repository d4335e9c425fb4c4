"""Evolution that was interrupted, or played by others, ends exactly where undisturbed evolution ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maze_pl.collect.engines import ProcessEngine
from tests.exact.comparison import differences
from tests.exact.evolution import train

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("env", ["cartpole", pytest.param("team_memory", marks=pytest.mark.slow)])
def test_six_epochs_equal_three_and_three_more(tmp_path: Path, env: str) -> None:
    whole = train(tmp_path, "whole", env, max_epochs=6)
    assert (whole["epoch"], whole["global_step"]) == (6, 12)
    assert differences(whole, train(tmp_path, "again", env, max_epochs=6)) == []
    for point in ("epoch", "batch"):
        kept = torch.load(tmp_path / f"{point}.ckpt", weights_only=True)
        assert differences(kept["state_dict"], whole["state_dict"]) != []
        resumed = train(tmp_path, f"from-{point}", env, tmp_path / f"{point}.ckpt", max_epochs=6)
        assert differences(whole, resumed) == [], point


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("env", ["cartpole", "team_memory"])
def test_workers_decide_nothing_about_the_result(tmp_path: Path, env: str) -> None:
    expected = train(tmp_path, "here", env)
    for n_workers in (1, 2, 3):
        assert differences(expected, train(tmp_path, str(n_workers), env, engine=ProcessEngine(n_workers))) == []


@pytest.mark.slow
def test_a_run_resumes_exactly_with_other_workers(tmp_path: Path) -> None:
    whole = train(tmp_path, "whole", max_epochs=6, engine=ProcessEngine(2))
    assert differences(whole, train(tmp_path, "resumed", checkpoint=tmp_path / "epoch.ckpt", max_epochs=6)) == []


def test_the_best_and_the_last_checkpoint_are_written(tmp_path: Path) -> None:
    train(tmp_path, "kept")
    for name in ("best", "last"):
        (path,) = tmp_path.rglob(f"{name}.ckpt")
        assert torch.load(path, weights_only=True)["global_step"] in (2, 4)
