"""Messages about options that are lost when a command line replaces a class."""

from __future__ import annotations

from pathlib import Path

from maze_pl.cli.replaced_classes import parsing_logger


def test_a_file_that_is_not_utf_8_is_left_to_the_parser(tmp_path: Path) -> None:
    file = tmp_path / "latin1.yaml"
    file.write_bytes(b"# \xe9\nclass_path: maze_pl.modules.PPO\n")
    assert parsing_logger(["fit", f"--model={file}"]).filters
