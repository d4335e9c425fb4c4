from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.runs import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Forks runs; all tests here share it."""
    server = Server()
    yield server
    server.close()
