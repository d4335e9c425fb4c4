from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import gymnasium
import pytest

from maze_pl.core.class_path import import_class, import_object


def test_a_path_to_nothing_is_said_to_lead_nowhere() -> None:
    assert import_object("gymnasium.Env") is gymnasium.Env
    with pytest.raises(ImportError, match="has nothing named Nothing"):
        import_object("gymnasium.Nothing")
    with pytest.raises(ImportError, match="not a dotted path"):
        import_object("gymnasium")


class Outer:
    class Inner:
        @staticmethod
        def method() -> None:
            pass


def test_a_path_may_lead_through_classes() -> None:
    assert import_object(f"{__name__}.Outer.Inner.method") is Outer.Inner.method
    with pytest.raises(ImportError, match=r"test_class_path\.Outer has nothing named small"):
        import_object(f"{__name__}.Outer.small")
    with pytest.raises(ImportError, match=r"^No module named 'logging\.os'$"):
        import_object("logging.os.getcwd")  # a module that another one imports
    for path in ("renamed.team.make", "renamed.Team.small"):
        with pytest.raises(ImportError, match=r"^No module named 'renamed'$"):
            import_object(path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("__main__.Nope.small", r"^__main__ has nothing named Nope: define it in the running script or notebook, or"),
        ("__main__.Nope.Inner.small", r"^__main__ has nothing named Nope: define it"),
        (f"{__name__}.Nope.small", r"test_class_path has nothing named Nope$"),
        (f"{__name__}.Outer.Nope.small", r"test_class_path\.Outer has nothing named Nope$"),
        ("logging.Nope.small", r"^No module named 'logging\.Nope'$"),  # of a package, it may be a module
    ],
)
def test_the_part_of_a_path_that_does_not_exist_is_named(path: str, message: str) -> None:
    with pytest.raises(ImportError, match=message):
        import_object(path)


def test_a_module_that_lacks_another_one_is_not_taken_for_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lacking.py").write_text("import lost_module\n", encoding="utf-8")
    with pytest.raises(ImportError, match=r"^No module named 'lost_module'$"):
        import_object("lacking.Team.small")


def test_classes_come_by_themselves_or_by_their_path_and_are_of_the_kind_that_is_wanted() -> None:
    assert import_class("collections.OrderedDict", dict) is import_class(OrderedDict, dict) is OrderedDict
    with pytest.raises(ValueError, match=r"^layer: cannot import 'collections\.Unknown'"):
        import_class("collections.Unknown", dict, "layer: ")
    for path in ("collections.OrderedDict", "collections.namedtuple"):
        with pytest.raises(ValueError, match=rf"^layer: '{path}' is not a subclass of list"):
            import_class(path, list, "layer: ")
