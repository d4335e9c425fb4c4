"""The runtime where nothing but NumPy and ONNX Runtime can be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import maze_pl_runtime
from tests.bundle.written_bundles import write_bundle

FORBIDDEN = ("torch", "pytorch_lightning", "lightning_fabric", "gymnasium", "maze_pl", "jsonargparse", "yaml", "onnx")
CODE = f"""
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FORBIDDEN}:
            raise ImportError("forbidden: " + name)

sys.meta_path.insert(0, Refuse())
from maze_pl_runtime import Policy
assert "onnxruntime" not in sys.modules
policy = Policy.load(sys.argv[1])
print(policy.act({{"place": [0.5, -1.0], "allowed": [1, 1, 1], "kind": 2}})[0])
print(sorted(set(sys.modules) & set({FORBIDDEN})))
"""


def test_it_runs_without_torch_lightning_gymnasium_and_maze_pl(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    command = [sys.executable, "-c", CODE, str(path)]
    folder = Path(maze_pl_runtime.__file__).parents[1]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert result.stdout.splitlines() == ["{'turn': 0}", "[]"]


def test_it_has_at_most_400_lines() -> None:
    folder = Path(maze_pl_runtime.__file__).parent
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py")) <= 400
