"""Facts about files that commands have written, by name and content, without running any of it."""

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checkpoint_content import NETWORKS, written_entry
from maze_pl.core.provenance import PROVENANCE_KEY
from maze_pl.reports.archive_values import TensorShape, archive_values
from maze_pl.reports.plain_text import bounded, is_printable_count
from maze_pl.runs.provenance import (
    PROVENANCE_FILE,
    fault_of_file,
    fault_of_provenance,
    is_provenance,
    recorded_provenance,
)
from maze_pl.runs.step_units import step_unit

Facts = dict[str, Any]
"""Name -> number, text, list or nested facts."""

_RECORDS: Final = (b"maze_pl spaces format", b"maze_pl states format")
_LONGEST_TEXT: Final = 20_000
_TEXTS: Final = {
    "config.yaml": "configuration",
    "command.txt": "commands",
    "run.log": "log of the console",
    "source_folders.txt": "folders of imported classes",
    PROVENANCE_FILE: "provenance of commands",
    "seeds.json": "seeds of a training",
    "seed_results.json": "results of several seeds",
    "final_evaluation.json": "results of the final evaluation",
    "comparison.json": "comparison of policies",
}
_TABLES: Final = {
    "metrics.csv": "logged statistics",
    "episodes.csv": "table of episodes",
    "statistics.csv": "statistics of episodes",
}
_SUFFIXES: Final = {
    ".gif": "animated episode",
    ".png": "picture",
    ".svg": "picture",
    ".html": "page for a browser",
    ".parquet": "event log",
    ".wandb": "log of Weights & Biases",
}


def file_facts(path: Path) -> Facts:
    """Return facts about a file that a command has written; nothing in it is executed.

    Args:
        path: The file.

    Returns:
        `kind`, `size` and what the file says about itself.

    Raises:
        ConfigurationError: It is damaged, or not a file of maze_pl.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(24)
        describe = _describer(path, start)
        facts = describe(path)
    except (ValueError, OSError) as error:
        reason = str(error).removeprefix(f"{path}: ") if isinstance(error, ValueError) else error.strerror
        raise ConfigurationError(f"{path} cannot be described: {reason}") from error
    return {"file": str(path), "kind": facts.pop("kind"), "size": f"{size:,} bytes", **facts}


def _describer(path: Path, start: bytes) -> Callable[[Path], Facts]:
    """Return the function that describes a file with a name and first bytes."""
    if path.suffix == ".ckpt" or (path.suffix == ".pt" and start.startswith(b"PK")):
        return _archive
    if start.startswith(b"PK"):
        return _bundle
    if start.startswith(_RECORDS) or path.suffix in (".spaces", ".states"):
        return _records
    if path.name in _TEXTS:
        return _text
    if path.suffix == ".csv":
        return _table
    if path.suffix in _SUFFIXES or path.name.startswith("events.out.tfevents"):
        return _named
    kinds = "a checkpoint, a bundle, a trajectory file, a replay buffer, a log, a table or a run directory"
    raise ValueError(f"it is not a file of maze_pl; expected {kinds}")


def provenance_facts(provenance: Any) -> Facts:
    """Return provenance as facts: command, commit, seed, versions and machine.

    Args:
        provenance: Provenance as read from a file. None gives no facts, and another value its fault.
    """
    if provenance is None:
        return {}
    if not is_provenance(provenance):
        return {"provenance": f"damaged: {fault_of_provenance(provenance)}"}
    versions = [f"{name} {version}" for name, version in bounded(provenance["versions"]).items()]
    machine = [f"{name} {value}" for name, value in bounded(provenance.get("machine", {})).items()]
    return {
        "command": provenance["command"],
        "started": provenance.get("started"),
        "git": git_text(provenance["git"]),
        "seed": bounded(provenance.get("seed")),
        "versions": ", ".join(versions),
        "machine": ", ".join(machine),
        "differences": provenance.get("summary"),
    }


def git_text(git: Mapping[str, Any] | None) -> str:
    """Describe the state of a repository in a line."""
    if git is None:
        return "no repository"
    known = bounded(git)  # a damaged file may hold anything
    is_dirty = known.get("is_dirty")
    if isinstance(is_dirty, bool):
        tree = "with changes that were not committed" if is_dirty else "without other changes"
    else:
        tree = "changes unknown"
    if is_dirty is not None and not isinstance(is_dirty, bool):
        tree = f"{tree} (damaged: is_dirty is of type {type(git['is_dirty']).__name__})"
    branch = f" (branch {known['branch']})" if known.get("branch") else ""
    return f"commit {known.get('commit') or 'none yet'}{branch}, {tree}"


# ------------------------------------------------------------------------------------------------ checkpoints


def _archive(path: Path) -> Facts:
    """Describe a checkpoint or a replay buffer."""
    values = archive_values(path)
    if "storages" in values:
        return _buffer(values)
    if "state_dict" in values:
        return _checkpoint(values)
    raise ValueError("it is neither a checkpoint nor a replay buffer")


def _checkpoint(values: Mapping[str, Any]) -> Facts:
    entry = written_entry(values)
    provenance = entry.get("provenance")
    configuration = provenance.get("configuration") if is_provenance(provenance) else None
    return {
        "kind": "checkpoint" if entry else "checkpoint of another program",
        "format": bounded(entry.get("format")),
        "maze_pl": bounded(entry.get("version")),
        "module": bounded(entry.get("class_path")),
        bounded(step_unit(provenance)): bounded(entry.get("env_steps")),
        "epoch": bounded(values.get("epoch")),
        "gradient steps": bounded(values.get("global_step")),
        "parameters": _parameters(values["state_dict"]),
        **provenance_facts(provenance),
        "spaces": spec_facts(entry.get("spec")),
        "configuration": configuration or bounded(entry.get("config")),
    }


def _items(value: Any) -> list[tuple[Any, Any]]:
    """Return the items of a dict that was read from a file; none of anything else."""
    return list(value.items()) if isinstance(value, dict) else []


def _parameters(weights: Any) -> Facts:
    """Count the numbers in weights, for each of the networks."""
    counts: Facts = {}
    for name, value in _items(weights):
        if isinstance(value, TensorShape) and str(name).startswith(NETWORKS):
            part = str(name).removeprefix(NETWORKS).partition(".")[0]
            counts[part] = counts.get(part, 0) + value.size
    return counts


def _buffer(values: Mapping[str, Any]) -> Facts:
    described = values.get("described")
    described = dict(described) if isinstance(described, dict) else {}
    spec = described.pop("spec", None)
    return {
        "kind": "replay buffer",
        "transitions": _storages(values["storages"]),
        "properties": bounded(described),
        **provenance_facts(values.get(PROVENANCE_KEY)),
        "spaces": spec_facts(spec),
    }


def _storages(kept: Any) -> Facts | str:
    """Describe the sizes of the storages of a buffer, for each sub-step."""
    if not isinstance(kept, dict):
        return f"damaged: storages is of type {type(kept).__name__} instead of dict"
    storages: Facts = {}
    for key, states in kept.items():
        is_list = isinstance(states, list)
        fault = f"damaged: of type {type(states).__name__} instead of list"
        storages[f"sub-step {bounded(key)}"] = [_storage(state) for state in states] if is_list else fault
    return storages


def _storage(state: Any) -> str:
    """Describe the size of one storage of a buffer."""
    if not isinstance(state, dict):
        return f"damaged: of type {type(state).__name__} instead of dict"
    for name in ("written", "capacity"):
        if not is_printable_count(state.get(name)):
            return f"damaged: {name} is {f'{bounded(state.get(name))!r:.80}' if name in state else 'missing'}"
    written, capacity = state["written"], state["capacity"]
    return f"{min(written, capacity):,} of at most {capacity:,}, {written:,} written so far"


def _bundle(path: Path) -> Facts:
    """Describe an exported policy."""
    from maze_pl_runtime.bundle_file import read_bundle

    manifest, _ = read_bundle(path)
    checkpoint = dict(_items(manifest.get("checkpoint")))
    parity = dict(_items(manifest.get("parity")))
    described = {f"sub-step {bounded(step.get('key'))}": _bundle_step(step) for step in _dicts(manifest.get("steps"))}
    wrappers = [one for one in _dicts(manifest.get("wrappers")) if one.get("is_included")]
    return {
        "kind": "bundle",
        "format": bounded(manifest.get("format")),
        "maze_pl": bounded(manifest.get("maze_pl")),
        "module": bounded(manifest.get("algorithm")),
        "checkpoint": bounded(checkpoint.get("name")),
        bounded(step_unit(manifest.get("provenance"))): bounded(checkpoint.get("env_steps")),
        "decisions of the test": bounded(parity.get("decisions")),
        "contained wrappers": [str(one.get("name")).rpartition(".")[2] for one in wrappers],
        **provenance_facts(manifest.get("provenance")),
        "spaces": described,
    }


def _bundle_step(step: Mapping[str, Any]) -> Facts:
    """Return the names of the observations, actions and policy states of a sub-step."""
    names: Facts = {}
    for part in ("observations", "actions", "state"):
        names[part] = ", ".join(str(name) for name, _ in _items(step.get(part)))
    return names


def _dicts(value: Any) -> list[dict[str, Any]]:
    """Return the dicts in a list that was read from a file; none of anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# ---------------------------------------------------------------------------------------------------- records


def _records(path: Path) -> Facts:
    """Describe a file of recorded episodes."""
    from maze_pl.records.file_contents import file_contents

    contents = file_contents(path)
    names = {"spaces": "observations and actions", "states": "states of the simulation"}
    note = None
    if contents.kind == "states":
        note = "states are pickles, which may run code, and were not read"
    return {
        "kind": f"recorded episodes: {names[contents.kind]}",
        "format": contents.format,
        "episodes": contents.n_episodes,
        "acts": contents.n_acts,
        "env steps": contents.n_env_steps,
        "note": note,
        **(provenance_facts(contents.provenance) or provenance_nearby(path)),
        "spaces": spec_facts(contents.spec),
    }


def provenance_nearby(path: Path) -> Facts:
    """Return the last provenance in the innermost folder around a file that has any, and faults of its file."""
    for folder in path.resolve().parents[:4]:
        commands = recorded_provenance(folder)
        faults = faulty_provenance(folder)
        if commands or faults:
            last = provenance_facts(commands[-1]) if commands else {}
            return {"provenance of": str(folder), **last, **faults}
    return {}


def faulty_provenance(folder: Path) -> Facts:
    """Return what is damaged in the file with the provenance of a folder; nothing if it is whole or missing."""
    fault = fault_of_file(folder)
    return {} if fault is None else {"provenance": f"{folder / PROVENANCE_FILE}: {fault}"}


def spec_facts(spec: Any) -> Facts:
    """Return the spaces of a description of `Spec.to_dict` as facts.

    Args:
        spec: The description, as read from a file; parts in another form are left out.
    """
    facts: Facts = {}
    steps = spec.get("steps") if isinstance(spec, dict) else None
    if not isinstance(steps, list):
        return facts
    for step in steps:
        if not isinstance(step, dict):
            continue
        masks = step.get("masks")
        facts[f"sub-step {bounded(step.get('key'))}"] = {
            "agents": "any number" if step.get("n_agents") == -1 else bounded(step.get("n_agents")),
            "observations": _spaces(step.get("observation_space")),
            "actions": _spaces(step.get("action_space")),
            "masks": bounded(masks) if isinstance(masks, dict) else None,
        }
    return facts


def _spaces(description: Any) -> Facts:
    """Describe the parts of a Dict space in a line each."""
    parts = description.get("spaces") if isinstance(description, dict) else None
    facts: Facts = {}
    for name, part in _items(parts):
        facts[str(name)] = space_text(part) if isinstance(part, dict) else None
    return facts


def space_text(space: Mapping[str, Any]) -> str:
    """Describe a space in a line, such as `box [4] float32`."""
    known = bounded(space)
    sizes = known.get("shape", known.get("nvec", known.get("n")))
    text = f"{known.get('type')} {sizes} {known.get('dtype', '')}".rstrip()
    return text[:200]


# --------------------------------------------------------------------------------------------- texts and tables


def _text(path: Path) -> Facts:
    """Describe a text; long ones are cut."""
    text = path.read_text(encoding="utf-8", errors="replace")
    is_log = path.name == "run.log"
    return {"kind": _TEXTS[path.name], "lines": text.count("\n"), "text": None if is_log else text[:_LONGEST_TEXT]}


def _table(path: Path) -> Facts:
    """Describe a table in CSV by the names of its columns and its number of rows."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            columns = next(rows, [])
            n_rows = _count(rows)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"it is not a table: {error}") from error
    kind = _TABLES.get(path.name, "event log" if "episode_id" in columns else "table")
    return {"kind": kind, "rows": n_rows, **provenance_nearby(path), "columns": columns}


def _count(rows: Iterable[Any]) -> int:
    return sum(1 for _ in rows)


def _named(path: Path) -> Facts:
    """Describe a file by its name alone."""
    kind = _SUFFIXES.get(path.suffix, "log of TensorBoard")
    return {"kind": kind, **provenance_nearby(path)}
