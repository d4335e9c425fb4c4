"""The page of a run, or of the runs of several seeds: its configuration, its results, and parts that are missing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from maze_pl.config.learned_options import commands_of_training
from maze_pl.config.search_path import ConfigurationError
from maze_pl.reports.file_facts import git_text
from maze_pl.reports.html_parts import (
    NOTHING,
    Content,
    Markup,
    code,
    document,
    element,
    escaped,
    facts,
    folded,
    frame,
    joined,
    missing,
    picture,
    section,
    table,
)
from maze_pl.reports.page_results import comparison_section, final_section, kpi_section, named_paths, number
from maze_pl.reports.run_facts import commands_of, monitored, run_provenance, run_status, summaries, trust_option
from maze_pl.reports.run_groups import RunGroup, grouped_runs, run_names
from maze_pl.runs.metrics import METRICS_FILE
from maze_pl.runs.provenance import PROVENANCE_FILE, fault_of_file
from maze_pl.runs.seed_results import read_values
from maze_pl.runs.step_units import step_unit_of

if TYPE_CHECKING:
    from maze_pl.reports.curves import Metrics

_VIEW: Final = "view.html"
_LARGEST_PICTURE: Final = 5_000_000
_LARGEST_VIEW: Final = 30_000_000
_MOST_CHARTS: Final = 8
_CHART: Final = (4.8, 3.0)
_KPI: Final = "_BaseEnvEvents/kpi/mean/"


@dataclass(frozen=True)
class ReportedRuns:
    """The runs that a page is about.

    Attributes:
        path: Path as the user gave it.
        runs: Run directories, the first of which stands for all where they are the same.
        comparison: Folder with the results of `maze-pl compare`; None looks in the run directories.
    """

    path: Path
    runs: list[Path]
    comparison: Path | None = None


def run_page(reported: ReportedRuns) -> str:
    """Return the page; parts that are missing are named, with the command that would add them."""
    title = _title(reported)
    parts = [
        _header(title, reported),
        _origin(reported),
        _runs(reported),
        _curves(reported),
        final_section(reported.runs),
        comparison_section(reported.path, reported.runs, reported.comparison),
        kpi_section(reported.runs),
        _networks(reported.runs[0]),
        _episode(reported.runs[0]),
    ]
    return document(f"{title}: report", element("main", joined(parts)))


def _title(reported: ReportedRuns) -> str:
    """Return the name of the run or of the folder of runs; several paths are named or counted."""
    paths = named_paths(reported.path, reported.runs)
    if len(paths) == 1:
        return reported.path.resolve().name
    return " and ".join(run_names(paths).values()) if len(paths) == 2 else f"{len(paths)} runs"


def _header(title: str, reported: ReportedRuns) -> Markup:
    """Return title, place, and the most important numbers."""
    values = read_values(reported.runs[0] / METRICS_FILE)
    tiles: dict[str, str] = {"status": run_status(reported.runs[0])}
    if len(reported.runs) > 1:
        ended = sum(run_status(run) == "ended" for run in reported.runs)
        tiles = {"runs that have ended": f"{ended} of {len(reported.runs)}"}
    else:
        shown = {step_unit_of(reported.runs[0])} | _monitored_columns(reported.runs)
        for name, value in values.items():
            if name in shown or "return" in name:
                tiles[name] = number(value)
    provenance = run_provenance(reported.runs[0])
    git = provenance[-1]["git"] if provenance else None
    if git is not None and git.get("commit"):
        is_dirty: object = git.get("is_dirty")  # as read from a file
        mark = (", changed" if is_dirty else ", clean") if isinstance(is_dirty, bool) else ""
        tiles["git commit"] = f"{str(git['commit'])[:10]}{mark}"
    boxes = [element("div", joined([element("b", value), element("span", name)])) for name, value in tiles.items()]
    paths = ", ".join(map(str, named_paths(reported.path, reported.runs)))
    head = element("header", joined([element("h1", title), element("p", paths)]))
    return joined([head, element("div", joined(boxes), class_="tiles")])


def _origin(reported: ReportedRuns) -> Markup:
    """Return command, differences of the configuration, versions, machine and commit."""
    run = reported.runs[0]
    provenance = run_provenance(run)
    commands = commands_of(run) or [one["command"] for one in provenance]
    values: dict[str, Content | None] = {}
    values["command" if len(commands) < 2 else "commands"] = joined([code(command) for command in commands])
    notes: list[Content] = []
    if provenance:
        first, last = commands_of_training(provenance)[0], provenance[-1]
        differences = [code(text) for text in summaries(provenance)]
        values["differences"] = joined(differences) if differences else None
        values["git"] = git_text(last["git"])
        values["seed"] = str(last.get("seed"))
        values["started"] = str(first.get("started", ""))
        values["versions"] = ", ".join(f"{name} {version}" for name, version in last["versions"].items())
        values["machine"] = ", ".join(f"{name} {value}" for name, value in last.get("machine", {}).items())
        if any(one["versions"] != last["versions"] or one["git"] != last["git"] for one in provenance):
            notes.append(element("p", "Commands of this run had different versions or commits: see provenance.json."))
    else:
        reason = "Versions, machine and git commit are unknown: the version that wrote this run did not record them."
        notes.append(missing(reason))
    if (fault := fault_of_file(run)) is not None:
        notes.append(missing(f"Of {PROVENANCE_FILE}, parts are left out: {fault}."))
    try:
        text = (run / "config.yaml").read_text(encoding="utf-8", errors="replace")
        notes.append(folded("the whole configuration", code(text)))
    except OSError:
        notes.append(missing("config.yaml cannot be read."))
    groups = _configurations(reported.runs) if len(reported.runs) > 1 else []
    return section("Configuration", *groups, facts(values), *notes)


def _configurations(runs: Sequence[Path]) -> list[Content]:
    """Say which of several runs the section is about, and how the configurations of the others differ."""
    names = run_names(runs)
    groups, faults = grouped_runs(runs)
    if len(groups) == 1:
        return [element("p", f"Of {names[runs[0]]}, which stands for all runs:", class_="muted")]
    notes: list[Content] = [missing(f"{names[run]} is a group by itself: {fault}") for run, fault in faults.items()]
    rows = [[group.name, ", ".join(names[run] for run in group.runs)] for group in groups]
    if any(group.is_repeated for group in groups):
        remark = "Runs of the same configuration and seed are not independent: they are in different groups."
        notes.append(missing(remark))
    is_plain = not notes
    shown = f"have {len(groups)} different configurations" if is_plain else "are these groups"
    groups_table = table(["configuration", "runs"], rows, 2)
    of_first = element("p", f"Of {names[runs[0]]}:", class_="muted")
    return [element("p", f"The runs {shown}:"), groups_table, *notes, of_first]


def _runs(reported: ReportedRuns) -> Markup:
    """Return a table of the runs, if there are several."""
    if len(reported.runs) < 2:
        return NOTHING
    results = [read_values(run / METRICS_FILE) for run in reported.runs]
    names = list(dict.fromkeys(name for values in results for name in values))
    first = {step_unit_of(run) for run in reported.runs} | _monitored_columns(reported.runs)
    names.sort(key=lambda name: name not in first)
    rows: list[list[Content]] = []
    labels = run_names(reported.runs)
    for run, values in zip(reported.runs, results, strict=True):
        provenance = run_provenance(run)
        git = provenance[-1]["git"] if provenance else None
        commit = "" if git is None else str(git.get("commit") or "")[:10]
        cells = [number(values.get(name)) for name in names]
        rows.append([labels[run], run_status(run), commit, *cells])
    return section("Runs", table(["run", "status", "commit", *names], rows, 3))


def _monitored_columns(runs: Sequence[Path]) -> set[str]:
    """Return the names, among the results of runs, of the KPIs that select their best checkpoints."""
    columns = set()
    for run in runs:
        source, _, kpi = monitored(run).partition("/kpi/")
        columns |= {f"{source} {kpi}, last", f"{source} kpi/{kpi}, last"}
    return columns


def _curves(reported: ReportedRuns) -> Markup:
    """Return the learning curves."""
    from maze_pl.events.display import require_matplotlib
    from maze_pl.reports.curves import read_all

    names = run_names(reported.runs)
    metrics, faults = read_all(reported.runs)
    notes: list[Content] = []
    for run, fault in faults.items():
        is_new = not (run / METRICS_FILE).exists()
        text = f"{names[run]} has no metrics.csv yet: it appears after the first epoch." if is_new else str(fault)
        notes.append(missing(text))
    try:
        require_matplotlib("Curves")
    except ImportError as error:
        return section("Curves", missing(str(error)))
    if not metrics:
        return section("Curves", *notes)
    groups, unreadable = grouped_runs(list(metrics))
    notes += [missing(f"{names[run]} is a group by itself: {fault}") for run, fault in unreadable.items()]
    charts = _charts(groups, metrics)
    if not charts:
        notes.append(missing("metrics.csv has no values yet."))
    shown = element("div", joined(charts), class_="charts")
    paths = named_paths(reported.path, reported.runs)
    more = f"maze-pl plot {shlex.join(map(str, paths))} --statistic NAME"
    return section("Curves", *notes, shown, folded("other statistics", code(more)))


def _charts(groups: Sequence[RunGroup], metrics: Metrics) -> list[Content]:
    """Draw the default statistics of groups of runs, returns of training, and KPIs."""
    from maze_pl.reports.chart_drawing import draw_charts, inline_svg
    from maze_pl.reports.curves import chart, default_statistics, known_statistics, short_name, spelled_out

    known = known_statistics(metrics)
    selecting = {spelled_out(monitored(run)) for run in metrics}
    names = default_statistics(metrics)
    names += [name for name in known if name.endswith("train_BaseEnvEvents/reward/mean")]
    kpis = [name for name in known if _KPI in name and not name.startswith("train_")]
    names += sorted(kpis, key=lambda name: name not in selecting)
    charts: list[Content] = []
    for name in list(dict.fromkeys(names))[:_MOST_CHARTS]:
        try:
            drawn = chart(groups, metrics, name, "env_steps")
        except ConfigurationError as error:
            charts.append(missing(str(error)))
            continue
        if drawn.bands:
            svg = inline_svg(draw_charts([drawn], _CHART), escaped(f"curve of {short_name(name)}"))
            charts.append(element("div", Markup(svg)))
    return charts


def _networks(run: Path) -> Markup:
    """Return the pictures of the networks."""
    figures = []
    for path in sorted((run / "networks").glob("*.svg")):
        if path.stat().st_size <= _LARGEST_PICTURE:
            shown = picture(path.read_bytes(), "svg", f"network {path.stem}")
            figures.append(element("figure", joined([shown, element("figcaption", path.stem)])))
    if figures:
        return section("Networks", element("div", joined(figures), class_="pictures"))
    reason = "There are no pictures of networks. Training draws them after its first epoch, if matplotlib is installed:"
    return section("Networks", missing(reason, "pip install 'maze-pl[rendering]'"))


def _episode(run: Path) -> Markup:
    """Return the view of an episode."""
    path = run / _VIEW
    command = f"maze-pl view {shlex.quote(str(run))} --to {shlex.quote(str(path))}{trust_option(run)}"
    if not path.is_file():
        return section("Episode", missing("There is no view of an episode. To play one and add it:", command))
    if path.stat().st_size > _LARGEST_VIEW:
        return section("Episode", missing(f"{_VIEW} is too large to be part of this page: open it in the browser."))
    text = path.read_text(encoding="utf-8", errors="replace")
    return section("Episode", frame(text, "view of an episode"))
