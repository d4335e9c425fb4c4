"""Every experiment that comes with maze_pl can be exported to a bundle that decides as it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.__main__ import main
from maze_pl_runtime import Policy
from tests.configs.small_experiments import FURTHER, NAMES, OWN, SMALL


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_experiments_export(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = [*SMALL, *OWN[name.partition("_")[0]], *FURTHER.get(name, [])]
    assert main(["fit", "--config", name, *small, "--run_dir", "here"]) == 0
    tested = ["--episodes", "2", "--max_steps", "60"]
    assert main(["export", "here", "--to", "agent.bundle", *tested]) == 0
    parity = Policy.load("agent.bundle").manifest["parity"]
    assert parity["largest_difference"] <= 1e-5
    assert parity["near_ties"] <= 0.1 * parity["decisions"]
    options = ["--n_episodes", "1", "--max_steps", "20", "--trajectories", "none", "--runner", "sequential"]
    assert main(["rollout", "here", "--policy", "agent.bundle", *options, "--output_dir", "there"]) == 0
