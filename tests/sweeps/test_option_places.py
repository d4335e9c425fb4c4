"""Places of options: the order in which they are set, and those that would replace each other."""

from __future__ import annotations

import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.sweeps.option_places import in_order, refuse_same_values, spelled_alike


@pytest.mark.parametrize(
    ("options", "assignment", "order"),
    [
        (["model.gamma", "data.n_envs"], ["model", "model.lr"], ["data.n_envs", "model", "model.gamma", "model.lr"]),
        (["model.gamma"], ["model.class_path"], ["model.class_path", "model.gamma"]),
        (["model.init_args.gamma"], ["model"], ["model", "model.init_args.gamma"]),
        (["a.b", "a.b.c.d"], ["a", "a.b.c", "e"], ["a", "a.b", "a.b.c", "a.b.c.d", "e"]),
        (["trainer.callbacks+"], ["trainer.callbacks"], ["trainer.callbacks", "trainer.callbacks+"]),
        (["model_x.y", "data"], ["model", "data.env"], ["model_x.y", "data", "model", "data.env"]),
        (["trainer.callbacks"], ["trainer.callbacks+"], ["trainer.callbacks", "trainer.callbacks+"]),
        (["model"], ["model.init_args"], ["model", "model.init_args"]),
        (["model.init_args"], ["model"], ["model", "model.init_args"]),
        (["model.init_args"], ["model.class_path"], ["model.class_path", "model.init_args"]),
        (["model.gamma"], ["model.init_args"], ["model.init_args", "model.gamma"]),
        (["model.gamma"], ["model.gamma_x"], ["model.gamma", "model.gamma_x"]),
    ],
)
def test_an_option_follows_the_searched_one_that_it_belongs_to(
    options: list[str], assignment: list[str], order: list[str]
) -> None:
    ordered = in_order(dict.fromkeys(options, 1), dict.fromkeys(assignment, 2))
    assert ordered == [(option, 1 if option in options else 2) for option in order]


@pytest.mark.parametrize(
    ("first", "second", "are_same"),
    [
        ("model.lr", "model.lr", True),
        ("model.lr", "model.init_args.lr", True),
        ("data.env.name", "data.init_args.env.init_args.name", True),
        ("data.wrappers+", "data.init_args.wrappers+", True),
        ("model", "model.class_path", True),
        ("model", "model.init_args", False),
        ("data.wrappers", "data.wrappers+", False),
        ("model", "model.lr", False),
        ("model.lr", "model.lr_x", False),
        ("model.lr", "models.lr", False),
    ],
)
def test_options_that_would_replace_each_other_are_refused(first: str, second: str, are_same: bool) -> None:
    for fixed, searched in (([first], ["x", second]), ([second], [first]), ([], [first, "x", second])):
        if are_same:
            with pytest.raises(ConfigurationError, match="keep one of them") as error:
                refuse_same_values(fixed, searched)
            assert first in str(error.value) and second in str(error.value)
        else:
            refuse_same_values(fixed, searched)
    refuse_same_values([first, second], ["x"])  # the later one takes precedence, as on a command line


def test_options_are_spelled_alike_with_and_without_init_args() -> None:
    assert spelled_alike("model.lr", "model.init_args.lr") and spelled_alike("--model.lr", "model.lr")
    assert spelled_alike("a.init_args.b.init_args.c", "a.b.c")
    for other in ("model.init_args", "model.class_path", "model.lr+", "data.lr"):
        assert not spelled_alike("model.lr", other) and not spelled_alike("model", other)
