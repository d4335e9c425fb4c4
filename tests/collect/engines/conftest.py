from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver

import pytest


@pytest.fixture(scope="package", autouse=True)
def _server_of_engines() -> None:
    """Fork workers from a process that has imported torch; the one that other tests have started may not have."""
    if not multiprocessing.active_children():
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
