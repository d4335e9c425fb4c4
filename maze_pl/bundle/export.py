"""Export of a trained agent to a bundle."""

from __future__ import annotations

import importlib
import warnings
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from maze_pl.agents import TorchPolicy
from maze_pl.bundle.batch_parity import require_equal_batches
from maze_pl.bundle.bundle_files import bundle_bytes
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.onnx_graphs import OPSET
from maze_pl.bundle.parity import require_parity
from maze_pl.bundle.recorded_decisions import recorded_decisions
from maze_pl.bundle.recorded_episodes import RecordedEpisodes
from maze_pl.bundle.traced_policy import traced
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checkpoint_content import checkpoint_entry
from maze_pl.core.spec import Spec
from maze_pl.core.version import __version__
from maze_pl.envs.building import load_shared_states, make_wrapped, wrapper_stack
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers import ActionMasksWrapper
from maze_pl.runs.checkpoint_files import checkpoint_digest, named_checkpoint, read_checkpoint
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.recorders import without_recorders
from maze_pl.system.atomic_files import write_file
from maze_pl_runtime import Policy

_PACKAGES: Final = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy", "gymnasium")
_MOST_READS: Final = 5  # of a checkpoint that a running training replaces


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
    purpose, or in recorded ones if the training had no environment; see docs/bundles.md.

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
        ExportError: A part of the policy cannot be exported, the bundle decides differently, or the file cannot be
            written.
        ConfigurationError: There is no checkpoint, or it needs trust.
        ImportError: The packages of the extra `onnx` are missing.
    """
    for name, number in {"episodes": episodes, "max_steps": max_steps}.items():
        if number < 1:
            raise ExportError(f"{name}={number} must be at least 1")
    if not isinstance(run, str | Path):
        expected = "expected a run directory or a checkpoint, as maze-pl fit and RunContext write them"
        raise ExportError(f"{expected}, not a {type(run).__name__}")
    path = named_checkpoint(run, checkpoint)
    module, data, origin = _read(path, trust)
    policy = _exportable(module.policy)
    env, episodes = _tested_episodes(data, policy.spec, episodes)
    with closing(env):
        parts = traced(policy, env)
        manifest: dict[str, Any] = {
            "maze_pl": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "algorithm": f"{type(module).__module__}.{type(module).__qualname__}",
            **origin,
            "opset": OPSET,
            # not of their distributions, as ONNX Runtime has several
            "versions": {package: importlib.import_module(package).__version__ for package in _PACKAGES},
            **parts.described(),
        }
        decisions = recorded_decisions(env, policy, parts.roles, episodes, max_steps, seed)
        bundle = Policy(manifest, parts.members)
        parity, singles = require_parity(bundle, policy, parts.graphs, decisions, seed)
        require_equal_batches(parity, bundle, parts.graphs, singles)
    if parity.untested:
        remedy = "test it on more or longer episodes (episodes, max_steps)"
        fault = f"{', '.join(parity.untested)} decided nothing in the episodes of the test, so that it is not tested"
        warnings.warn(f"export of {path}: {fault}; {remedy}", stacklevel=2)
    manifest["parity"] = asdict(parity)
    try:
        write_file(to, bundle_bytes(manifest, parts.members))
    except OSError as error:
        raise ExportError(f"{to} cannot be written: {error.strerror or error}") from error
    return Policy.load(to).manifest


def _read(path: Path, trust: bool) -> tuple[Any, Any, dict[str, Any]]:
    """Read the module, the data module and the origin of a checkpoint, all of the same file.

    Raises:
        ExportError: A running training has replaced the file again and again.
    """
    for _ in range(_MOST_READS):
        digest = _digest(path)
        module = load(path, trust=trust)
        data = load_data(path, trust=trust)
        origin = _origin(path, digest)
        if _digest(path) == digest:
            return module, data, origin
    fault = f"{path} was replaced each time that it was read"
    raise ExportError(f"{fault}: export a copy of it, or wait until the training has ended")


def _digest(path: Path) -> str:
    """Return the digest of a checkpoint.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        return checkpoint_digest(path)
    except OSError as error:
        raise ConfigurationError(f"the checkpoint {path} cannot be read: {error.strerror}") from error


def _exportable(policy: Any) -> TorchPolicy:
    """Return a policy whose acts follow from its networks and distributions alone.

    Raises:
        ExportError: It acts in another way.
    """
    kind = type(policy)
    if issubclass(kind, TorchPolicy) and kind.act is TorchPolicy.act:
        return policy  # type: ignore[no-any-return]
    expected = "only a TorchPolicy without a wrapper can be exported"
    raise ExportError(f"the policy is a {kind.__name__}, whose code is not part of a bundle: {expected}")


def _tested_episodes(data: Any, spec: Spec, n_episodes: int) -> tuple[Wrapper, int]:
    """Return an environment for the test, and the number of episodes in it.

    Without an environment, these are episodes that the policy was trained on.

    Args:
        data: The data module.
        spec: Specification of the policy.
        n_episodes: Wanted number of episodes.

    Raises:
        ExportError: There is no environment, and the recorded episodes cannot be read.
    """
    if data.rollout_options["env"] is not None:
        return _silent_env(data), n_episodes
    try:
        recorded = RecordedEpisodes(data.dataset.load(spec=spec), spec)
    except (OSError, ValueError) as error:
        fault = "the training had no environment, and the test cannot read the episodes that it had instead"
        raise ExportError(f"{fault}: {error}") from error
    return ActionMasksWrapper(recorded, {}), min(n_episodes, recorded.n_episodes)


def _silent_env(data: Any) -> Wrapper:
    """Make the environment of a data module with frozen statistics, without wrappers that record."""
    options = data.rollout_options
    wrappers = without_recorders(options["wrappers"])
    env = make_wrapped(options["env"], wrappers, options["action_masks"])
    load_shared_states(wrapper_stack(env), data.wrapper_statistics(), freeze=True)
    return env


def _origin(path: Path, digest: str) -> dict[str, Any]:
    """Describe the checkpoint, and where it comes from."""
    entry = checkpoint_entry(read_checkpoint(path)) or {}
    return {
        "checkpoint": {"name": path.name, "sha256": digest, "env_steps": entry.get("env_steps")},
        "provenance": entry.get("provenance"),
    }
