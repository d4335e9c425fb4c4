from __future__ import annotations

import gymnasium
import pytest

from maze_pl.core.class_path import import_object


def test_a_path_to_nothing_is_said_to_lead_nowhere() -> None:
    assert import_object("gymnasium.Env") is gymnasium.Env
    with pytest.raises(ImportError, match="has nothing named Nothing"):
        import_object("gymnasium.Nothing")
    with pytest.raises(ImportError, match="not a dotted path"):
        import_object("gymnasium")
