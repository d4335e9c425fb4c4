"""What all tests share: one thread, so that they do not fight for cores, and no search path or seed from outside."""

from __future__ import annotations

import os
import sys

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many as there are cores; half as many again for slow tests, which often wait for what they have started."""
    n_cores = len(os.sched_getaffinity(0))
    return n_cores * 3 // 2 if config.option.markexpr == "slow" else n_cores


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest test begin first, so that no process waits for it in the end."""
    items.sort(key=lambda item: "test_readme" not in item.nodeid)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a former run of the command line, or the developer's shell, has set; undo what this test sets."""
    for name in ("MAZE_PL_CONFIG_PATH", "MAZE_PL_RUN_DIR", "PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands put the current folder there
