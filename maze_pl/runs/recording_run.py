"""The run whose environment and agent a rollout used, and its checkpoint, from the folder of the rollout."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.checkpoint_files import checkpoint_digest
from maze_pl.runs.provenance import recorded_provenance
from maze_pl.runs.rollout_table import EPISODES_FILE
from maze_pl.runs.run_checkpoints import BEST, LAST, checkpoint_folders, holds_checkpoints


def recording_run(folder: Path, config: Mapping[str, Any]) -> Path | None:
    """Return the run of a rollout, or its checkpoint: the one around its folder, or the named one; None without one.

    Args:
        folder: Folder of the rollout.
        config: Its configuration.

    Raises:
        ConfigurationError: The configuration of the run around the folder cannot be read.
    """
    around = folder.parent.parent
    if folder.parent.name == "rollouts" and holds_checkpoints(around):
        return around
    return Path(str(config["run"])) if config.get("run") else None


def recording_checkpoint(folder: Path, run: Path, name: str, candidate: Path | None = None) -> Path:
    """Return the checkpoint that played a rollout.

    Args:
        folder: Folder of the rollout. Its provenance holds the digest of the checkpoint, unless an
            earlier version wrote it; then a checkpoint counts as changed if it is newer than the
            episodes.
        run: The run directory, or a checkpoint.
        name: The checkpoint, as the rollout named it.
        candidate: Another file that counts if it has the digest, such as a copy.

    Raises:
        ConfigurationError: The checkpoint is gone or has changed.
    """
    entries = [entry for entry in recorded_provenance(folder) if "checkpoint" in entry]
    recorded: Mapping[str, Any] = entries[-1]["checkpoint"] if entries else {}
    digest = recorded.get("sha256")
    names = (BEST, LAST) if name == BEST else (name,)
    folders = [] if run.is_file() else checkpoint_folders(run)
    paths = [inside / f"{one}.ckpt" for one in names for inside in folders]
    if digest is not None:
        paths += [*(inside / Path(name).name for inside in folders), Path(name)]
        paths += [Path(recorded["file"])] if isinstance(recorded.get("file"), str) else []
        paths += [] if candidate is None else [candidate]
    paths = [path for path in [run, *paths] if path.is_file()]
    if not paths:
        raise ConfigurationError(f"the checkpoint {name} of {run} is missing")
    if digest is None:
        if paths[0].stat().st_mtime <= (folder / EPISODES_FILE).stat().st_mtime:
            return paths[0]
        raise ConfigurationError(f"{paths[0]} is newer than the episodes in {folder}")
    for path in paths:
        if checkpoint_digest(path) == digest:
            return path
    raise ConfigurationError(f"{paths[0]} is not the checkpoint that played the episodes in {folder}")
