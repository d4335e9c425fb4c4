"""`maze-pl COMMAND --help`: each begins with what `maze-pl --help` says of the command, and shows its options once."""

from __future__ import annotations

import re

import pytest

from maze_pl import __main__
from maze_pl.__main__ import COMMANDS, main

LISTED = dict(re.findall(r"^  (\w+) +(.+)$", str(__main__.__doc__).split("examples:")[0], re.MULTILINE))


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The help of a command, in one line."""
    try:
        status: object = main([command, "--help"])
    except SystemExit as ended:
        status = ended.code
    assert status == 0
    return " ".join(capsys.readouterr().out.split())


def test_all_commands_are_listed() -> None:
    assert LISTED.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_the_line_of_the_list(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(command, capsys)
    usage, _, rest = text.partition(" options: -h")
    head = usage if rest else text
    described = LISTED[command].split(":")[0]
    assert described.lower() in head.lower()
    assert "Args:" not in text and "Raises:" not in text
    assert "Runs the full" not in text


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("rollout", "usage: maze-pl rollout [RUN_DIR] [options] Play"),
        ("check", "usage: maze-pl check [RUN_DIR] [options] Find"),
        ("compare", "usage: maze-pl compare [RUN_DIR|POLICY ...] [options] Play"),
        ("new", "usage: maze-pl new [-h] [--structured] DIR Create"),
    ],
)
def test_usage_shows_what_a_command_takes(command: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(command, capsys)
    assert text.startswith(usage)
    assert "(required, type: Callable" not in text
    if command in ("rollout", "check"):
        assert "(required without RUN_DIR or --config, type: Callable" in text


def test_the_help_of_view_shows_each_option_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("view", capsys)
    assert text.count("Second policy that plays the same seeds") == 1


def test_the_help_of_fit_names_configurations_and_the_help_of_components(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("fit", capsys)
    assert "Options of an algorithm are listed by `--model.help ALGORITHM`" in text
    assert "Name or file of a configuration" in text
    assert "registry" not in text.partition("--ckpt_path")[2].partition("--")[0]
