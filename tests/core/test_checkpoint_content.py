"""The entry of maze_pl in checkpoints: parts from several writers, one format."""

from __future__ import annotations

from typing import Any

import pytest

from maze_pl import __version__
from maze_pl.core.checkpoint_content import (
    CHECKPOINT_FORMAT,
    CHECKPOINT_KEY,
    add_to_checkpoint,
    callback_state,
    checkpoint_entry,
    data_module_state,
)


def test_parts_of_several_writers_are_in_one_entry_with_format_and_version() -> None:
    checkpoint: dict[str, Any] = {"state_dict": {}}
    add_to_checkpoint(checkpoint, config={"model": {}, "data": {}})
    add_to_checkpoint(checkpoint, env_steps=7, class_path="my.Module")
    assert checkpoint_entry(checkpoint) == {
        "format": CHECKPOINT_FORMAT,
        "version": __version__,
        "config": {"model": {}, "data": {}},
        "env_steps": 7,
        "class_path": "my.Module",
    }
    assert set(checkpoint) == {"state_dict", CHECKPOINT_KEY}


@pytest.mark.parametrize("content", [{}, {CHECKPOINT_KEY: None}, {CHECKPOINT_KEY: [1]}])
def test_a_checkpoint_of_another_program_has_no_entry(content: dict[str, Any]) -> None:
    assert checkpoint_entry(content) is None


def test_another_format_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match=rf"^x\.ckpt has format 3 \(maze_pl 0\.0\.1\).* reads format {CHECKPOINT_FORMAT}$"
    ):
        checkpoint_entry({CHECKPOINT_KEY: {"format": 3, "version": "0.0.1"}}, "x.ckpt")


def test_missing_states_of_data_modules_and_callbacks_are_empty() -> None:
    checkpoint = {"Data": {"shared": None}, "callbacks": {"Callback{}": {"best": 1}}}
    assert data_module_state(checkpoint, "Data") == {"shared": None}
    assert data_module_state(checkpoint, "Other") == {}
    assert callback_state(checkpoint, "Callback{}") == {"best": 1}
    assert callback_state(checkpoint, "Other") == callback_state({}, "Other") == {}
