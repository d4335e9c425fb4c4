"""Processes that are spawned train, and the main process has what they learned."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.launch import run
from tests.distributed.rank_report import reports
from tests.exact.comparison import differences

pytestmark = pytest.mark.slow


def spawn(folder: Path, case: str, *, fails: bool = False) -> str:
    command = [sys.executable, str(Path(__file__).with_name("spawn.py")), case]
    return run(command, folders=[folder], timeout=100, fails=fails)[0]


@pytest.mark.long
@pytest.mark.parametrize("case", ["python", pytest.param("configuration", marks=pytest.mark.long)])
def test_the_main_process_has_the_trained_weights(tmp_path: Path, case: str) -> None:
    spawn(tmp_path, case)
    first, second = reports(tmp_path)
    assert not set(first["seen"]) & set(second["seen"])
    assert differences(first["state_dict"], second["state_dict"]) == []
    result: dict[str, Any] = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["n_weights"] == len(first["state_dict"]) > 0
    assert set(result["changed"]) == set(result["as_trained"]) == set(first["state_dict"])
    if case == "python":
        assert result["return"] == pytest.approx(float(first["callback_metrics"]["eval/return"]))
        assert result["env_steps"] == first["env_steps"] > 0
    else:
        assert result["status"] == 0  # the return that had to be reached was


@pytest.mark.long
def test_networks_that_would_be_lost_with_the_spawned_process_are_refused(tmp_path: Path) -> None:
    assert "networks built in a spawned process are lost" in spawn(tmp_path, "networks_too_late", fails=True)
