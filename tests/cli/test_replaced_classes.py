"""Messages about options that are lost when a command line replaces a class."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from maze_pl.cli.replaced_classes import parsing_logger
from maze_pl.config.replaced_environments import Dropped


def test_a_file_that_is_not_utf_8_is_left_to_the_parser(tmp_path: Path) -> None:
    file = tmp_path / "latin1.yaml"
    file.write_bytes(b"# \xe9\nclass_path: maze_pl.modules.PPO\n")
    assert parsing_logger(["fit", f"--model={file}"]).filters


@pytest.mark.parametrize(
    ("previous", "current", "said"),
    [
        ("maze_pl.modules.PPO", "maze_pl.modules.A2C", "A2C replaces PPO, whose"),
        ("maze_pl.envs.make_env", "grid.make_env", "grid.make_env replaces maze_pl.envs.make_env, whose"),
    ],
)
def test_classes_of_equal_names_are_named_with_their_modules(
    capsys: pytest.CaptureFixture[str], previous: str, current: str, said: str
) -> None:
    (report,) = parsing_logger(["fit", f"--part={current}"]).filters
    text = f"Due to class_path change from '{previous}' to '{current}', discarding init_args: {{'a': 1}}."
    assert callable(report) and not report(logging.makeLogRecord({"msg": text}))
    assert capsys.readouterr().err == f"maze-pl: {said} options are dropped: 'a': 1\n"


@pytest.mark.parametrize(("option", "n_messages"), [("--data.env", 1), ("--config", 0)])
def test_further_arguments_are_reported_if_the_user_replaces_their_environment(
    option: str, n_messages: int, capsys: pytest.CaptureFixture[str]
) -> None:
    dropped = [Dropped("maze_pl.envs.make_gym_maze_env", "grid.Maze", {"limit": 3, "mode": "a"})]
    parsing_logger(["fit", f"{option}={{class_path: grid.Maze}}"], dropped)
    message = "maze-pl: Maze replaces make_gym_maze_env, whose options are dropped: 'limit': 3, 'mode': 'a'\n"
    assert capsys.readouterr().err == message * n_messages
