"""Sections of the page of a run with results: final evaluation, comparison with others, KPIs."""

import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from maze_pl.config.search_path import ConfigurationError
from maze_pl.reports.html_parts import Content, Markup, element, folded, missing, section, table
from maze_pl.reports.run_facts import COMPARISON, read_json, trust_option
from maze_pl.reports.run_groups import run_names
from maze_pl.runs.checkpoint_files import checkpoint_digest
from maze_pl.runs.intervals import Interval, estimate
from maze_pl.runs.metrics import read_columns
from maze_pl.runs.seed_results import FINAL_FILE
from maze_pl.runs.step_units import step_units_of
from maze_pl.runs.tables import number_text

_HEAD: Final = ("episodes", "mean", "95% interval", "IQM", "95% interval of the IQM")
_PAGE: Final = "comparison.html"
_RETURN: Final = "_BaseEnvEvents/reward/mean"
_KPI: Final = "_BaseEnvEvents/kpi/mean/"


def number(value: Any) -> str:
    """Format a number of a file; empty for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number_text(value) if is_number else ""


def interval_text(interval: Interval | Any) -> str:
    """Format an interval of a file; empty for anything else."""
    if not isinstance(interval, tuple | list) or len(interval) != 2:
        return ""
    return f"{number(interval[0])} to {number(interval[1])}"


# ------------------------------------------------------------------------------------------ final evaluation


def final_section(runs: Sequence[Path]) -> Markup:
    """Return the results of the final evaluation, with intervals over episodes."""
    rows: list[list[Content]] = []
    for run, name in run_names(runs).items():
        for cells in _final_rows(read_json(run / FINAL_FILE)):
            rows.append([name, *cells] if len(runs) > 1 else cells)
    if rows:
        named = ["evaluator", "policy", "quantity", *_HEAD]
        if len(runs) > 1:
            named.insert(0, "run")
        note = "Intervals are over the episodes of one run: of the mean by Student's t, of the IQM by the bootstrap."
        shown = table(named, rows, len(named) - len(_HEAD))
        return section("Final evaluation", shown, element("p", note, class_="muted"))
    note = "There is no final evaluation: training has not finished, or an earlier version wrote this run."
    command = f"maze-pl validate {shlex.quote(str(runs[0]))}{trust_option(runs[0])}"
    parts: list[Content] = [missing(f"{note} To evaluate the best policy:", command)]
    last = _last_evaluations(runs)
    if last:
        head = ["run", "evaluator", step_units_of(runs), "mean return", "standard deviation"]
        parts.insert(0, table([*head, "episodes"], last, 2))
        parts.insert(0, element("p", "The last evaluation during training:"))
    return section("Final evaluation", *parts)


def _final_rows(content: Any) -> list[list[Content]]:
    """Return a row for each evaluator, policy and quantity of a final evaluation."""
    evaluators = content.get("evaluators") if isinstance(content, dict) else None
    rows: list[list[Content]] = []
    for name, policies in _items(evaluators):
        for which, episodes in _items(policies):
            for quantity, values in _quantities(episodes).items():
                found = estimate(values)
                intervals = [interval_text(found.mean_interval), interval_text(found.iqm_interval)]
                cells = [str(found.n), number(found.mean), intervals[0], number(found.iqm), intervals[1]]
                rows.append([str(name), f"{which}.ckpt" if which == "best" else str(which), quantity, *cells])
    return rows


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _quantities(episodes: Any) -> dict[str, list[float]]:
    """Return the values of each quantity in episodes as read from a file."""
    found: dict[str, list[float]] = {}
    if not isinstance(episodes, list):
        return found
    for episode in episodes:
        for name, value in _items(episode):
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(str(name), []).append(float(value))
    return found


def _last_evaluations(runs: Sequence[Path]) -> list[list[Content]]:
    """Return a row for the last evaluation of each run by each evaluator, from the logged statistics."""
    rows: list[list[Content]] = []
    for run, run_name in run_names(runs).items():
        columns = _columns(run)
        for name in columns:
            source = name.removesuffix(_RETURN)
            if source in (name, "train"):
                continue
            last = _last(columns, name)
            if last is not None:
                rest = [
                    _at(columns, f"{source}_BaseEnvEvents/reward/{part}", last) for part in ("std", "episode_count")
                ]
                values = [columns["step"][last], columns[name][last], *rest]
                rows.append([run_name, source, *map(number, values)])
    return rows


def _columns(run: Path) -> dict[str, Any]:
    try:
        return dict(read_columns(run))
    except ConfigurationError:  # the section with the curves says so
        return {}


def _last(columns: Mapping[str, Any], name: str) -> int | None:
    """Return the index of the last row with a value; None if there is none."""
    places = [index for index, value in enumerate(columns.get(name, ())) if math.isfinite(value)]
    return places[-1] if places else None


def _at(columns: Mapping[str, Any], name: str, index: int) -> float:
    return float(columns[name][index]) if name in columns else math.nan


def kpi_section(runs: Sequence[Path]) -> Markup:
    """Return the KPIs of the last evaluation of each run."""
    rows: list[list[Content]] = []
    for run, run_name in run_names(runs).items():
        columns = _columns(run)
        for name in columns:
            source, found, kpi = name.partition(_KPI)
            last = _last(columns, f"{source}{_RETURN}") if found else None
            if last is not None and _last(columns, name) is not None:
                mean = float(columns[name][last])
                shown = "no episode has it" if math.isnan(mean) else number(mean)
                rows.append([run_name, source, kpi, number(columns["step"][last]), shown])
    if rows:
        head = ["run", "source", "KPI", step_units_of(runs), "last mean"]
        return section("KPIs", table(head, rows, 3))
    reason = "No KPIs were logged: the environment has no KpiCalculator, or no episode has ended yet."
    return section("KPIs", missing(reason))


# ------------------------------------------------------------------------------------------------ comparison


def named_paths(path: Path, runs: Sequence[Path]) -> Sequence[Path]:
    """Return the paths by which a command names all runs: the folder that they share, or each of them.

    Args:
        path: Path as the user gave it.
        runs: Run directories.
    """
    is_folder = all(run.is_relative_to(path) for run in runs)
    return [path] if is_folder else runs


def comparison_section(path: Path, runs: Sequence[Path], folder: Path | None) -> Markup:
    """Return the results of `maze-pl compare`.

    Args:
        path: Path as the user gave it.
        runs: Run directories.
        folder: Folder of the comparison; None looks in these folders.
    """
    file = _comparison_file((path, *runs)) if folder is None else folder / COMPARISON
    target = shlex.quote(str(path / "comparison"))
    command = f"maze-pl compare {shlex.join(map(str, named_paths(path, runs)))} --baseline random --to {target}"
    command += trust_option(runs[0])
    title = "Against other policies"
    if file is None:
        note = "To play the same episodes with a random policy (and --baseline heuristic, if the environment has one):"
        return section(title, missing(f"There is no comparison with baselines. {note}", command))
    content = read_json(file)
    rows = _entry_rows(content)
    if not rows:
        return section(title, missing(f"{file} is damaged, or of another version. To compare again:", command))
    winner = content.get("winner")
    sentence = f"Best by {content.get('metric')}: {winner}" if winner else "No policy is better than all others."
    parts: list[Content] = [element("p", element("b", sentence)), table(["entry", "metric", *_HEAD], rows, 2)]
    parts += [missing(text) for text in _changed_checkpoints(content, runs)]
    parts += _difference_tables(content)
    played = f"{number(content.get('n_episodes'))} episodes of each, from seed {content.get('seed')}; {file}"
    parts.append(element("p", played, class_="muted"))
    if (file.parent / _PAGE).is_file():
        note = f"Plots, and links to episodes in the viewer: {file.parent / _PAGE}"
        parts.append(element("p", note, class_="muted"))
    if isinstance(content.get("command"), str):
        parts.append(folded("command", element("pre", element("code", content["command"]))))
    return section(title, *parts)


def _changed_checkpoints(content: Mapping[str, Any], runs: Sequence[Path]) -> list[str]:
    """Name the checkpoints that have changed since they played in a comparison.

    Args:
        content: The comparison as read from a file.
        runs: Run directories, in which files are also looked for, as they may have been moved.
    """
    played: list[tuple[Any, dict[Any, Any]]] = []  # name of an entry and a checkpoint
    for entry in content["entries"]:
        found = entry.get("checkpoints") if isinstance(entry, dict) else None
        if isinstance(found, list):
            played += [(entry.get("name"), dict(_items(checkpoint))) for checkpoint in found]
    moved = _moved_runs([Path(str(checkpoint.get("file"))) for _, checkpoint in played], runs)
    notes = []
    for name, checkpoint in played:
        file = Path(str(checkpoint.get("file")))
        run = moved.get(file.parent.parent)
        if run is not None and not file.is_file():
            file = run / Path(*file.parts[-2:])
        if file.is_file() and checkpoint_digest(file) != checkpoint.get("sha256"):
            steps = f"after {number(checkpoint.get('env_steps'))} env steps"
            notes.append(f"{name} was played by an earlier checkpoint, {steps}: {file} has changed.")
    return notes


def _moved_runs(files: Sequence[Path], runs: Sequence[Path]) -> dict[Path, Path]:
    """Return the run directories of checkpoints as they were recorded, with those to which they may have been moved.

    A run belongs to the one recorded directory whose path ends as its own; that of one seed with
    its parent, as other trainings have directories of the same name.
    """
    recorded = {file.parent.parent for file in files}
    moved: dict[Path, Path] = {}
    for run in runs:
        path = run.resolve()
        shared = {folder: _n_shared(folder, path) for folder in recorded}
        longest = max(shared.values(), default=0)
        nearest = [folder for folder, n in shared.items() if n == longest]
        needed = 2 if path.name.startswith("seed_") else 1
        if len(nearest) == 1 and longest >= min(needed, max(1, len(nearest[0].parts))):
            moved.setdefault(nearest[0], run)
    return moved


def _n_shared(folder: Path, path: Path) -> int:
    """Return the number of last parts that the paths of two directories share."""
    parts = folder.resolve().parts if folder.is_dir() else folder.parts
    pairs = zip(reversed(parts), reversed(path.parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _comparison_file(folders: Sequence[Path]) -> Path | None:
    """Return the newest results of a comparison in or below the first folder that has any."""
    for folder in folders:
        found = sorted([*folder.glob(COMPARISON), *folder.glob(f"*/{COMPARISON}")])
        if found:
            return max(found, key=lambda path: path.stat().st_mtime)
    return None


def _difference_tables(content: Mapping[str, Any]) -> list[Content]:
    """Return the differences by the metric of the winner and by others, if any, with a heading."""
    differences = _difference_rows(content)
    if not differences:
        return []
    parts: list[Content] = [element("h3", "Differences on the same episodes")]
    for name, is_chosen in (("improvement", True), ("a higher value", False)):
        shown = [row for row in differences if (row[2] == str(content.get("metric"))) == is_chosen]
        if shown:
            head = ["entry", "baseline", "metric", "difference", "95% interval"]
            parts.append(table([*head, f"probability of {name}", "episodes needed"], shown, 3))
    return parts


def _entry_rows(content: Any) -> list[list[Content]]:
    """Return a row for each entry and metric of a comparison as read from a file."""
    entries = content.get("entries") if isinstance(content, dict) else None
    rows: list[list[Content]] = []
    if not isinstance(entries, list):
        return rows
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        for metric, summary in _items(entry.get("metrics")):
            if isinstance(summary, dict):
                cells = [number(summary.get("n_values")), number(summary.get("mean"))]
                cells += [interval_text(summary.get("mean_interval")), number(summary.get("iqm"))]
                cells.append(interval_text(summary.get("iqm_interval")))
                rows.append([str(entry.get("name")), str(metric), *cells])
    return rows


def _difference_rows(content: Mapping[str, Any]) -> list[list[Content]]:
    """Return a row for each difference of a comparison as read from a file."""
    differences = content.get("differences")
    rows: list[list[Content]] = []
    if not isinstance(differences, list):
        return rows
    shown: set[tuple[str, str, str]] = set()  # of two baselines in one direction only
    for one in differences:
        if not isinstance(one, dict):
            continue
        entry, baseline, metric = (str(one.get(name)) for name in ("entry", "baseline", "metric"))
        if (baseline, entry, metric) in shown:
            continue
        shown.add((entry, baseline, metric))
        probability = number(one.get("probability_of_improvement"))
        needed = "more runs" if one.get("needs_more_runs") is True else number(one.get("episodes_needed"))
        cells = [number(one.get("difference")), interval_text(one.get("interval")), probability, needed]
        rows.append([entry, baseline, metric, *cells])
    return rows
