"""Export of a trained agent to a bundle."""

from __future__ import annotations

import importlib.metadata
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from maze_pl.bundle.bundle_files import bundle_bytes
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.onnx_graphs import OPSET
from maze_pl.bundle.parity import require_parity
from maze_pl.bundle.recorded_decisions import recorded_decisions
from maze_pl.bundle.traced_policy import traced
from maze_pl.core.checkpoint import checkpoint_entry
from maze_pl.core.version import __version__
from maze_pl.envs.building import load_shared_states, make_wrapped, wrapper_stack
from maze_pl.envs.wrappers import LogStatsWrapper
from maze_pl.runs.checkpoint import checkpoint_digest, named_checkpoint, read_checkpoint
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.recorders import without_recorders
from maze_pl.system.atomic_files import write_file
from maze_pl_runtime import Policy

_PACKAGES: Final = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy", "gymnasium")


def export(
    run: str | Path,
    to: str | Path,
    *,
    checkpoint: str = "best",
    episodes: int = 5,
    max_steps: int = 200,
    seed: int = 0,
    trust: bool = False,
) -> dict[str, Any]:
    """Write the policy of a run and its wrappers to one file, which `maze_pl_runtime` runs without maze_pl.

    The file is written only if it decides as the policy does, in episodes that are played for this
    purpose; see docs/bundles.md.

    Args:
        run: A run directory, or a checkpoint.
        to: The file.
        checkpoint: Checkpoint of the run: `best` (or `last` if there is none), `last`, or a file.
        episodes: Episodes that the bundle is tested on.
        max_steps: Acts after which such an episode is abandoned.
        seed: Determines these episodes.
        trust: Whether the run may name any class, because you know who made it; see `maze_pl.load`.

    Returns:
        The manifest of the bundle.

    Raises:
        ExportError: A part of the policy cannot be exported, or the bundle decides differently.
        ConfigurationError: There is no checkpoint, or it needs trust.
        ImportError: The packages of the extra `onnx` are missing.
    """
    for name, number in {"episodes": episodes, "max_steps": max_steps}.items():
        if number < 1:
            raise ExportError(f"{name}={number} must be at least 1")
    path = named_checkpoint(run, checkpoint)
    module = load(path, trust=trust)
    policy = module.policy
    with closing(_silent_env(path, trust)) as env:
        parts = traced(policy, env)
        manifest: dict[str, Any] = {
            "maze_pl": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "algorithm": f"{type(module).__module__}.{type(module).__qualname__}",
            **_origin(path),
            "opset": OPSET,
            "versions": {package: importlib.metadata.version(package) for package in _PACKAGES},
            **parts.described(),
        }
        decisions = recorded_decisions(env, policy, parts.roles, episodes, max_steps, seed)
        parity = require_parity(Policy(manifest, parts.members), policy, parts.graphs, decisions, seed)
    manifest["parity"] = asdict(parity)
    write_file(to, bundle_bytes(manifest, parts.members))
    return Policy.load(to).manifest


def _silent_env(path: Path, trust: bool) -> LogStatsWrapper:
    """Make the environment of the run with frozen statistics, without wrappers that record."""
    data = load_data(path, trust=trust)
    options = data.rollout_options
    if options["env"] is None:
        return data.make_env()  # says that there is no environment
    wrappers = without_recorders(options["wrappers"])
    env = make_wrapped(options["env"], wrappers, options["action_masks"])
    load_shared_states(wrapper_stack(env), data.wrapper_statistics(), freeze=True)
    return env


def _origin(path: Path) -> dict[str, Any]:
    """Describe the checkpoint, and where it comes from."""
    entry = checkpoint_entry(read_checkpoint(path)) or {}
    return {
        "checkpoint": {"name": path.name, "sha256": checkpoint_digest(path), "env_steps": entry.get("env_steps")},
        "provenance": entry.get("provenance"),
    }
