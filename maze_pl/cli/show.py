"""`maze-pl show`: describes a run directory or a file that a command has written, without running any of it."""

import sys
from collections.abc import Sequence
from typing import Any

from maze_pl.cli.command_options import OptionParser
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.reports.file_facts import file_facts
from maze_pl.reports.plain_text import as_json, as_lines
from maze_pl.reports.run_facts import folder_facts


def run(_: Any, command: Sequence[str], *__: Any) -> int:
    """Run the command.

    Args:
        command: The command line as the user gave it.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: There is nothing that maze_pl has written, or it is damaged.
    """
    parser = OptionParser("show", "Describe a run directory or a file that a command has written.")
    parser.add_paths("path", "a run directory, checkpoint, bundle, trajectory file, replay buffer, log or table")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    whole = "also print the whole configuration, which JSON always has"
    parser.add_argument("--config", action="store_true", help=whole)
    options = parser.parse(command[1:])
    facts = folder_facts(options.path) if options.path.is_dir() else file_facts(options.path)
    if facts.get("configuration") and not (options.config or options.json):
        place = options.path / RUN_CONFIG if options.path.is_dir() else "in this file"
        facts = {**facts, "configuration": f"{place} (--config prints it)"}
    text = as_json(facts) if options.json else "\n".join(as_lines(facts))
    sys.stdout.write(f"{text}\n")
    return 0
