from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonargparse import ArgumentParser

from maze_pl.config.search_path import ConfigurationError, dump, parse, read

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="ascii"))
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1.-", max_size=3) | st.integers(), inner, max_size=3)
    ),
)


@given(VALUES)
def test_what_is_written_in_one_line_is_read_back_as_it_was(value: Any) -> None:
    assert parse(dump(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("2.5e-4", 0.00025),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("1_000", 1000),
        (".inf", math.inf),
        ("2026-01-01", "2026-01-01"),
        ("2026-02-30", "2026-02-30"),
        ("1e", "1e"),
        ("v1.2", "v1.2"),
        ("null", None),
    ],
)
def test_scalars_mean_the_same_to_jsonargparse_when_they_have_passed_through_here(text: str, value: Any) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--x", type=Any)
    for content in (f"x: {text}", dump(parse(f"x: {text}"))):
        found = parser.parse_string(content).x
        assert found == value
        assert type(found) is type(value)


def test_a_file_that_is_no_yaml_or_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    for content in (b"a: [1", b"\xff\xfe\x00"):
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"broken\.yaml cannot be read"):
            read(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_is_refused_with_the_remedy(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "umlaut.yaml"
    path.write_text("name: Jürgen", encoding=encoding)
    with pytest.raises(ConfigurationError, match=r"umlaut\.yaml cannot be read: .*; save it as UTF-8$"):
        read(path)
    path.write_text("name: Jürgen", encoding="utf-8")
    assert read(path) == {"name": "Jürgen"}
