"""Processes of trials on a Ray cluster: what their last poll returns."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from maze_pl.sweeps import ray_processes


def test_the_last_poll_returns_all_of_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nhead -c 3000000 /dev/zero\necho 'maze-pl: error: the reason'\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    process = ray_processes._actor_class()(["fit"], dict(os.environ), str(tmp_path))
    process.process.wait()
    status, text = process.poll([])
    assert status == 3
    assert text == b"\0" * 3_000_000 + b"maze-pl: error: the reason\n"
    assert process.poll([]) == (3, b"")
    process.output.close()
