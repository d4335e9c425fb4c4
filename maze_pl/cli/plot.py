"""`maze-pl plot`: draws learning curves of runs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from maze_pl.cli.command_options import OptionParser
from maze_pl.config.search_path import ConfigurationError
from maze_pl.reports.run_facts import runs_in
from maze_pl.reports.run_groups import grouped_runs
from maze_pl.runs.metrics import NoMetricsError

_NAME: Final = "curves"
_FORMS: Final = ("png", "svg")
_OTHER_FORMS: Final = (".eps", ".gif", ".html", ".jpeg", ".jpg", ".pdf", ".webp")


def run(_: Any, command: Sequence[str], *__: Any) -> int:
    """Run the command.

    Args:
        command: The command line as the user gave it.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: There is nothing to draw, or it cannot be drawn.
    """
    from maze_pl.reports.curves import chart, default_statistics, full_name, read_all

    options = _parser().parse(command[1:])
    if options.smooth < 1:
        raise ConfigurationError(f"--smooth {options.smooth} is a number of values to average: it must be at least 1")
    metrics, faults = read_all(run for path in options.runs for run in runs_in(path))
    for fault in faults.values():
        if not metrics or not isinstance(fault, NoMetricsError):
            raise fault
    for fault in faults.values():
        sys.stderr.write(f"maze-pl: {fault}; the run is left out\n")
    groups, unreadable = grouped_runs(list(metrics))
    for fault in unreadable.values():
        sys.stderr.write(f"maze-pl: {fault}; the run is a group by itself\n")
    names = [full_name(name, metrics) for name in options.statistic] or default_statistics(metrics)
    charts = [chart(groups, metrics, name, options.x, options.smooth) for name in dict.fromkeys(names)]
    if not any(one.bands for one in charts):
        raise ConfigurationError("the runs have logged no values yet: wait for the first epoch")
    targets = _targets(options.to, options.runs)
    _draw(charts, targets)
    for target in targets:
        sys.stdout.write(f"{target}\n")
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("plot", "Draw learning curves; runs that differ only in their seed become one band.")
    parser.add_paths("runs", "run directories, or folders of several seeds", nargs="+")
    axis = "horizontal axis (default: env_steps)"
    parser.add_argument("--x", choices=("env_steps", "wall_clock"), default="env_steps", help=axis)
    statistic = "name in metrics.csv, eval/return or eval/kpi/NAME; may be repeated (default: mean returns)"
    parser.add_argument("--statistic", action="append", default=[], metavar="NAME", help=statistic)
    smooth = "number of values to average over (default: 1)"
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help=smooth)
    target = "file.png, file.svg, or a name for both (default: curves in the run directory; of several runs, here)"
    parser.add_argument("--to", type=Path, metavar="FILE", help=target)
    return parser


def _targets(wanted: Path | None, runs: Sequence[Path]) -> list[Path]:
    """Return the files to write: one if its kind is named, otherwise a picture of each kind.

    Raises:
        ConfigurationError: The ending is that of another kind of file.
    """
    if wanted is not None and wanted.suffix.lstrip(".") in _FORMS:
        return [wanted]
    if wanted is not None and wanted.suffix in _OTHER_FORMS:
        raise ConfigurationError(f"--to {wanted}: pictures are .png or .svg; a name without ending gives both")
    if wanted is None:
        wanted = Path(_NAME) if len(runs) > 1 else runs[0] / _NAME
    elif wanted.is_dir():
        wanted = wanted / _NAME
    return [wanted.with_name(f"{wanted.name}.{form}") for form in _FORMS]


def _draw(charts: Sequence[Any], targets: Sequence[Path]) -> None:
    """Draw charts, and write the files once all of them are drawn."""
    from maze_pl.events.display import require_matplotlib
    from maze_pl.reports.chart_drawing import draw_charts, rendered
    from maze_pl.system.atomic_files import write_file

    try:
        require_matplotlib("maze-pl plot")
    except ImportError as error:
        raise ConfigurationError(str(error)) from error
    figure = draw_charts(charts)
    contents = [rendered(figure, target.suffix.lstrip(".")) for target in targets]
    for target, content in zip(targets, contents, strict=True):
        try:
            write_file(target, content)
        except OSError as error:
            raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from error
