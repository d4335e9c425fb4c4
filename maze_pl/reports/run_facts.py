"""Facts about run directories and other folders that commands have written."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from maze_pl.config.assembling import SEEDS_FILE, SWEEP_FILE, TRUST_OPTION
from maze_pl.config.learned_options import commands_of_training
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, read
from maze_pl.config.trust import LIBRARIES, class_paths
from maze_pl.core.provenance import Provenance
from maze_pl.reports.archive_values import archive_values
from maze_pl.reports.file_facts import Facts, faulty_provenance, file_facts, provenance_facts
from maze_pl.runs.metrics import METRICS_FILE, read_columns
from maze_pl.runs.provenance import is_provenance, recorded_provenance
from maze_pl.runs.run_checkpoints import BEST, CHECKPOINTS, LAST, checkpoint_folders
from maze_pl.runs.run_lock import lock_holder
from maze_pl.runs.seed_results import has_ended, read_values
from maze_pl.system.atomic_files import LOCK_FILE

_MOST_FILES: Final = 20
_EPISODES: Final = ("episodes.csv", "trajectories", "event_logs")
COMPARISON: Final = "comparison.json"


def is_run(folder: Path) -> bool:
    """True if a folder is the run directory of a training."""
    return (folder / RUN_CONFIG).is_file() and not is_rollout(folder)


def is_rollout(folder: Path) -> bool:
    """True if a folder holds episodes that `maze-pl rollout` has played."""
    has_episodes = any((folder / name).exists() for name in _EPISODES)
    is_trained = any((folder / name).exists() for name in (METRICS_FILE, "checkpoints", "run.log"))
    return (folder / RUN_CONFIG).is_file() and has_episodes and not is_trained


def runs_in(folder: Path) -> list[Path]:
    """Return the run directories that a path stands for: itself, or those of its seeds.

    Args:
        folder: A run directory, or the folder of `maze-pl fit --seeds`.

    Raises:
        ConfigurationError: It is neither.
    """
    if not folder.is_dir():
        fault = "is a file" if folder.exists() else "does not exist"
        raise ConfigurationError(f"{folder} {fault}: name a run directory")
    if (folder / SEEDS_FILE).is_file():
        runs = sorted(path for path in folder.iterdir() if path.is_dir() and is_run(path))
        if not runs:
            raise ConfigurationError(f"{folder} has no runs of seeds yet")
        return sorted(runs, key=lambda path: (len(path.name), path.name))
    if is_run(folder):
        return [folder]
    if is_rollout(folder):
        raise ConfigurationError(f"{folder} holds played episodes, not a training: name a run directory")
    raise ConfigurationError(f"{folder} is not a run directory: it has no {RUN_CONFIG} of `maze-pl fit`")


def run_status(run_dir: Path) -> str:
    """Describe in a few words how far a run has come."""
    if has_ended(run_dir):
        return "ended"
    process = lock_holder(run_dir)
    if process is None:
        return "stopped before its end"
    return f"in progress (process {process})" if process else "in progress"


def monitored(run_dir: Path) -> str:
    """Return the statistic by which a run selects its best checkpoint, such as `eval/return`; empty if unknown."""
    try:
        content = read(run_dir / RUN_CONFIG)
    except ConfigurationError:
        return ""
    selection = content.get("best_checkpoint") if isinstance(content, dict) else None
    return str(selection.get("monitor") or "") if isinstance(selection, dict) else ""


def trust_option(run_dir: Path) -> str:
    """Return ` --trust` if the configuration of a run names classes for which commands need it, else nothing.

    Nothing is imported to find that out.
    """
    try:
        content = read(run_dir / RUN_CONFIG)
    except ConfigurationError:
        return ""
    libraries = tuple(f"{library}." for library in LIBRARIES)
    is_foreign = any(not path.startswith(libraries) for path in class_paths(content))
    return f" {TRUST_OPTION}" if is_foreign else ""


def commands_of(run_dir: Path) -> list[str]:
    """Return the commands that have written to a run directory, in order."""
    try:
        return (run_dir / "command.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def run_provenance(run_dir: Path) -> Sequence[Provenance]:
    """Return the provenance of the commands of a run; else that of its last checkpoint, if it has any."""
    recorded = recorded_provenance(run_dir)
    if recorded:
        return recorded
    checkpoints = _checkpoints(run_dir)
    for name in (LAST, BEST):
        try:
            entry = archive_values(checkpoints[name]).get("maze_pl") if name in checkpoints else None
        except (OSError, ValueError):
            continue
        provenance = entry.get("provenance") if isinstance(entry, dict) else None
        if is_provenance(provenance):
            return [provenance]
    return []


def summaries(provenance: Sequence[Provenance]) -> list[str]:
    """Return what each command of a training changed in the configuration that it began with, in order.

    Args:
        provenance: The provenance of all commands in a run directory.
    """
    texts = [command.get("summary", "") for command in commands_of_training(provenance)]
    return [text for text in texts if text]


def _checkpoints(run_dir: Path) -> dict[str, Path]:
    """Return the checkpoints of a run by name; those in folders that its configuration names take precedence."""
    try:
        folders = checkpoint_folders(run_dir)
    except ConfigurationError:  # of a damaged configuration
        folders = [run_dir / CHECKPOINTS]
    files = [path for folder in folders for path in sorted(folder.glob("*.ckpt"))]
    return {path.stem: path for path in files}


def folder_facts(folder: Path) -> Facts:
    """Return facts about a folder that a command has written; nothing in it is executed.

    Args:
        folder: A run directory, a folder of several seeds, or a folder of played episodes.

    Raises:
        ConfigurationError: It is another folder.
    """
    if (folder / SEEDS_FILE).is_file():
        runs = {path.name: _run_line(path) for path in runs_in(folder)}
        return {"folder": str(folder), "kind": "training with several seeds", "runs": runs}
    if (folder / SWEEP_FILE).is_file():
        trials = sorted(folder.glob("trial_*"))
        runs = {path.name: _run_line(path) if is_run(path) else "several seeds" for path in trials}
        return {"folder": str(folder), "kind": "sweep; `maze-pl sweep --show` has its table", "trials": runs}
    if is_rollout(folder):
        facts = file_facts(folder / "episodes.csv") if (folder / "episodes.csv").is_file() else {}
        episodes = {"kind": "played episodes", "episodes": facts.get("rows")}
        return {"folder": str(folder), **episodes, **_described(folder), "files": _files(folder)}
    if (folder / COMPARISON).is_file() and not is_run(folder):
        return {"folder": str(folder), "kind": "comparison of policies", "files": _files(folder)}
    (run_dir,) = runs_in(folder)
    checkpoints = {name: f"{path.stat().st_size:,} bytes" for name, path in _checkpoints(folder).items()}
    return {
        "folder": str(folder),
        "kind": "run directory",
        "status": run_status(run_dir),
        "results": _results(run_dir),
        **_described(folder),
        "checkpoints": checkpoints,
        "files": _files(folder),
        "configuration": _configuration(folder),
    }


def _configuration(folder: Path) -> str:
    """Return the text of a folder's configuration; empty if it cannot be read."""
    try:
        return (folder / RUN_CONFIG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _described(folder: Path) -> Facts:
    """Describe the last command in a folder, with all commands if there are several."""
    provenance = run_provenance(folder)
    commands = commands_of(folder)
    last = provenance_facts(provenance[-1]) if provenance else {"command": commands[-1] if commands else None}
    if len(commands) > 1:
        last = {"commands": commands, **{name: value for name, value in last.items() if name != "command"}}
        last["differences"] = summaries(provenance)
    return {**last, **faulty_provenance(folder)}


def _results(run_dir: Path) -> Facts:
    """Return the last and best results of a run; a reason if there are none."""
    try:
        n_rows = len(read_columns(run_dir)["step"])
    except ConfigurationError as error:
        return {"none": str(error)}
    return {"logged epochs": n_rows, **read_values(run_dir / METRICS_FILE)}


def _run_line(run_dir: Path) -> str:
    """Describe a run in a line."""
    results = _results(run_dir)
    values = [f"{name} {value:,.6g}" for name, value in results.items() if isinstance(value, int | float)]
    return ", ".join([run_status(run_dir), *values])


def _files(folder: Path) -> list[Any]:
    """List files of a folder, the first ones by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != LOCK_FILE)
    names = [path.relative_to(folder).as_posix() for path in paths[:_MOST_FILES]]
    n_more = len(paths) - len(names)
    return [*names, f"and {n_more} more"] if n_more else names


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None if there is none or it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
