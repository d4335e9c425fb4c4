"""`maze-pl report`: writes one HTML page about a run, or about the runs of several seeds."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from maze_pl.cli.command_options import OptionParser
from maze_pl.config.search_path import ConfigurationError
from maze_pl.reports.run_facts import COMPARISON, runs_in

_NAME: Final = "report.html"


def run(_: Any, command: Sequence[str], *__: Any) -> int:
    """Run the command.

    Args:
        command: The command line as the user gave it.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: A path is not a run, or the page cannot be written.
    """
    from maze_pl.reports.run_page import ReportedRuns, run_page
    from maze_pl.system.atomic_files import write_file

    parser = OptionParser("report", "Write one HTML page about a run; it names missing parts.")
    parser.add_paths("runs", "run directories, or a folder of several seeds", nargs="+")
    target = f"the page (default: {_NAME} in the first run directory)"
    parser.add_argument("--to", type=Path, metavar="FILE", help=target)
    comparison = "folder of `maze-pl compare --to` (default: looked for in the run directory)"
    parser.add_argument("--comparison", type=Path, metavar="FOLDER", help=comparison)
    options = parser.parse(command[1:])
    runs = list(dict.fromkeys(run for path in options.runs for run in runs_in(path)))
    if options.comparison is not None and not (options.comparison / COMPARISON).is_file():
        raise ConfigurationError(f"--comparison {options.comparison} has no {COMPARISON} of `maze-pl compare --to`")
    page = run_page(ReportedRuns(options.runs[0], runs, options.comparison))
    file = options.to or options.runs[0] / _NAME
    try:
        write_file(file / _NAME if file.is_dir() else file, page.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
    sys.stdout.write(f"{file / _NAME if file.is_dir() else file}\n")
    return 0
