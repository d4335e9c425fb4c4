from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.modules.kit import KIT


@pytest.fixture
def kit() -> SimpleNamespace:
    """Small networks and rollouts made by hand."""
    return KIT
