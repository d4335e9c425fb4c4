"""A script with several devices, which Lightning runs again for each further rank."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.distributed.launch import run

SCRIPT = str(Path(__file__).with_name("training_twice.py"))


@pytest.mark.slow
def test_launched_ranks_know_the_directory_and_the_provenance_of_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run([sys.executable, SCRIPT], folders=[tmp_path], timeout=240)
    first, second = (json.loads((tmp_path / f"rank_{rank}.json").read_text(encoding="utf-8")) for rank in range(2))
    assert first == second
    assert [entry["seed"] for entry in first] == [1, 2]
    directories = [Path(entry["directory"]) for entry in first]
    assert len(set(directories)) == 2
    assert sorted(directories) == sorted((tmp_path / "outputs" / "a2c_cartpole").iterdir())
    monkeypatch.chdir(tmp_path)
    for entry in first:  # one process plays the same episodes
        assert main(["validate", entry["directory"], "--trainer.devices", "1"]) == 0
        assert f"{entry['return']:.3f}" in capsys.readouterr().out
