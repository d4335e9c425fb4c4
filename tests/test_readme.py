"""What the README shows works as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

README = Path(__file__).parents[1] / "README.md"
# Left out: what sets up, and what goes on until somebody ends it.
RUN = ("maze-pl ", "cd ", "python ")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def commands() -> list[str]:
    lines = [line.partition(" # ")[0].rstrip() for block in blocks("") for line in block.splitlines()]
    return [line for line in lines if line.startswith(RUN)]


def test_its_commands_are_all_found() -> None:
    assert {command.split()[1] for command in commands() if command.startswith("maze-pl")} >= {"fit", "list", "new"}
    assert len(commands()) >= 15


def test_its_yaml_is_well_formed() -> None:
    assert [next(iter(yaml.safe_load(text))) for text in blocks("yaml")] == ["data", "base"]


@pytest.mark.slow
def test_its_commands_and_programs_run_in_their_order(tmp_path: Path) -> None:
    algorithm, use = blocks("python")
    (tmp_path / "cautious.py").write_text(algorithm, encoding="utf-8")
    (tmp_path / "use.py").write_text(use, encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
    assert shutil.which("maze-pl", path=path)
    script = "\n".join(["set -ex", *commands(), "python use.py"])
    result = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert {"first", "second"} <= {folder.name for folder in (tmp_path / "outputs").iterdir()}
