"""`maze-pl serve`: options that do not fit what is served, and faults at its start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.bundle.written_bundles import write_bundle


@pytest.mark.parametrize("options", [["--checkpoint", "last"], ["--checkpoint", "best"], ["--trust"]])
def test_options_about_runs_are_refused_for_a_bundle(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "agent.bundle"
    bundle.write_text("x" * 100)
    assert main(["serve", str(bundle), *options]) == 2
    error = capsys.readouterr().err
    assert f"{bundle} is not a run or a checkpoint, which {options[0]} is for: omit it" in error


def test_a_missing_extra_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["serve", str(write_bundle(tmp_path / "agent.bundle"))]) == 2
    error = capsys.readouterr().err
    assert "onnxruntime" in error and error.endswith("install the extras: pip install 'maze-pl[onnx,serve]'\n")


def test_a_fault_of_what_is_loaded_is_not_taken_for_a_damaged_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(*_: object) -> None:
        int("x")

    monkeypatch.setattr("maze_pl.serving.served_policy.ServedPolicy.__init__", init)
    with pytest.raises(ValueError, match="invalid literal"):
        main(["serve", str(write_bundle(tmp_path / "agent.bundle"))])
