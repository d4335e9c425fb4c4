"""Examples in docstrings run, and print what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import maze_pl

PACKAGE = Path(maze_pl.__file__).parent
MODULES = sorted(
    str(path.relative_to(PACKAGE.parent).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if re.search(r">>> (?!.*# doctest: \+SKIP)", path.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted and not result.failed
