from __future__ import annotations

from collections import OrderedDict

import gymnasium
import pytest

from maze_pl.core.class_path import import_class, import_object


def test_a_path_to_nothing_is_said_to_lead_nowhere() -> None:
    assert import_object("gymnasium.Env") is gymnasium.Env
    with pytest.raises(ImportError, match="has nothing named Nothing"):
        import_object("gymnasium.Nothing")
    with pytest.raises(ImportError, match="not a dotted path"):
        import_object("gymnasium")


def test_classes_come_by_themselves_or_by_their_path_and_are_of_the_kind_that_is_wanted() -> None:
    assert import_class("collections.OrderedDict", dict) is import_class(OrderedDict, dict) is OrderedDict
    with pytest.raises(ValueError, match=r"^layer: cannot import 'collections\.Unknown'"):
        import_class("collections.Unknown", dict, "layer: ")
    for path in ("collections.OrderedDict", "collections.namedtuple"):
        with pytest.raises(ValueError, match=rf"^layer: '{path}' is not a subclass of list"):
            import_class(path, list, "layer: ")
