"""What all tests share: one thread, so that they do not fight for cores, and no search path or seed from outside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

LONG = ("test_readme", "test_generated", "test_imitation", "test_strategies", "test_resume.py", "learning/")
FOLDER = Path(__file__).parent
# Helper modules check things, too.
pytest.register_assert_rewrite(*(f"tests.{path.stem}" for path in FOLDER.iterdir() if path.stem != "conftest"))
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let long tests begin first, so that no process waits for one in the end."""
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONG))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a former run of the command line, or the developer's shell, has set; undo what this test sets."""
    for name in ("MAZE_PL_CONFIG_PATH", "MAZE_PL_RUN_DIR", "PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands put the current folder there
