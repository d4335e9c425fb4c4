"""`maze-pl serve`: options that do not fit what is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.__main__ import main


@pytest.mark.parametrize("options", [["--checkpoint", "last"], ["--checkpoint", "best"], ["--trust"]])
def test_options_about_runs_are_refused_for_a_bundle(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "agent.bundle"
    bundle.write_text("x" * 100)
    assert main(["serve", str(bundle), *options]) == 2
    error = capsys.readouterr().err
    assert f"{bundle} is not a run or a checkpoint, which {options[0]} is for: omit it" in error
