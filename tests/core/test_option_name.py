"""Names of options, however they are spelled."""

from __future__ import annotations

import pytest

from maze_pl.core.option_name import option_name


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("model.lr", "model.lr"),
        ("model.init_args.lr", "model.lr"),
        ("data.init_args.env.init_args.size", "data.env.size"),
        ("data.env.init_args", "data.env"),
        ("data.init_args_of", "data.init_args_of"),
        ("data.wrappers+", "data.wrappers"),
        ("data.env.dict_kwargs.size", "data.env.dict_kwargs.size"),
    ],
)
def test_an_option_has_one_name(option: str, name: str) -> None:
    assert option_name(option) == name
