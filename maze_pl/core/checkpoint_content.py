"""Content of checkpoints: names and types of the entries, and the check of the format.

A checkpoint is the dict that Lightning saves. It holds tensors and plain values only, so that it
can be read with `weights_only=True`:

| entry | content |
|---|---|
| `state_dict` | weights of the module; names of policy and critic begin with `NETWORKS` |
| `optimizer_states`, `lr_schedulers`, `loops`, `callbacks`, ... | Lightning's own entries |
| the qualified name of the data module's class | its `state_dict`, see `data_module_state` |
| `CHECKPOINT_KEY` | `CheckpointEntry`, everything else that maze_pl adds |

Files are opened and written by `maze_pl.runs.checkpoint_files`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack, cast

from maze_pl.core.provenance import Provenance
from maze_pl.core.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT_KEY = "maze_pl"
WRAPPER_STATISTICS = "shared"
"""Key of the wrapper statistics in the state of a data module."""
REPLAY_BUFFERS = "replay"
"""Key of the files of replay buffers in the state of a data module."""
CHECKPOINT_FORMAT = 4  # increases when an older version could not read the content, or misread it
NETWORKS = "actor_critic."
WEIGHTS_ONLY = (
    "was written with save_weights_only, and holds neither the configuration nor the state of its run: "
    "use another checkpoint, such as last.ckpt, and leave out save_weights_only"
)
"""End of messages about such a checkpoint, which begin with its path."""


class RankState(TypedDict):
    """State of one rank's part of the module.

    Attributes:
        generator: State of `AlgorithmModule.generator`.
        random: States of the global random generators.
        statistics: Statistics of the current epoch that have not been averaged over ranks yet.
        unfinished_batches: Batches of the current epoch that these statistics cover.
        further: `AlgorithmModule.rank_state`; absent in checkpoints of earlier versions.
    """

    generator: Tensor
    random: dict[str, Any]
    statistics: dict[str, Any]
    unfinished_batches: int
    further: NotRequired[dict[str, Any]]


class GroupSettings(TypedDict):
    """Settings of a parameter group of an optimiser, to tell what callbacks have changed in it.

    Attributes:
        rates: Learning rates by name: `assigned`, which it was given last, `by_callback`, which a
            callback has set since, and `by_options`, that of the options then; None where there is
            none.
        options: Options that the group was made with.
    """

    rates: dict[str, float | None]
    options: dict[str, Any]


class RunConfiguration(TypedDict):
    """Configuration from which `maze_pl.load` and `maze_pl.load_env` instantiate classes.

    Attributes:
        model: Class path and arguments of the module, as in `config.yaml`.
        data: Class path and arguments of the data module.
    """

    model: dict[str, Any]
    data: dict[str, Any]


class EntryParts(TypedDict, total=False):
    """Parts of the entry that the module and callbacks add.

    Attributes:
        class_path: Class of the module, which adds this part and the following ones up to `ranks`.
        spec: `Spec.to_dict()` of the agent.
        env_steps: Environment steps learned from, over all ranks.
        statistics: Statistics of the whole run.
        monitored: Values that learning-rate schedulers monitor, by name.
        ranks: State of each rank; after an exception, only that of the writing rank.
        optimized: Names of the parameters of each optimiser, by group; absent in checkpoints of
            earlier versions.
        frozen: Names of those of them that require no gradient; absent in checkpoints of earlier
            versions.
        networks: Part of the networks -> names of its activations, or the distribution of an action
            head; absent in checkpoints of earlier versions.
        group_settings: Settings of the groups of each optimiser that the algorithm has made; absent in
            checkpoints of earlier versions.
        coefficients: Option -> its number as `option`, and the one that a callback has set as `value`;
            absent if none was set, and in checkpoints of earlier versions.
        config: Configuration of the run, added by the callback `RunRecord`.
        provenance: Command, versions and code that wrote the checkpoint, added by `RunRecord`;
            absent in checkpoints of earlier versions.
    """

    class_path: str
    spec: dict[str, Any]
    env_steps: int
    statistics: dict[str, Any]
    monitored: dict[str, float]
    ranks: list[RankState]
    optimized: list[list[list[str]]]
    frozen: list[str]
    networks: dict[str, str]
    group_settings: list[list[GroupSettings]]
    coefficients: dict[str, dict[str, float | None]]
    config: RunConfiguration
    provenance: Provenance


class CheckpointEntry(EntryParts, total=False):
    """Everything in a checkpoint under `CHECKPOINT_KEY`.

    Attributes:
        format: `CHECKPOINT_FORMAT` of the version that wrote it.
        version: Version of maze_pl that wrote it.
    """

    format: int
    version: str


def add_to_checkpoint(checkpoint: dict[str, Any], **parts: Unpack[EntryParts]) -> None:
    """Add parts to maze_pl's entry of a checkpoint; the first call creates the entry.

    Args:
        checkpoint: The checkpoint, changed in place.
        parts: Parts of the entry.
    """
    entry = checkpoint.setdefault(CHECKPOINT_KEY, {"format": CHECKPOINT_FORMAT, "version": __version__})
    entry.update(parts)


def written_entry(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return maze_pl's entry of any format, to describe a file; empty if it was not written by maze_pl."""
    entry = checkpoint.get(CHECKPOINT_KEY)
    return entry if isinstance(entry, dict) else {}


def checkpoint_entry(checkpoint: dict[str, Any], name: str = "the checkpoint") -> CheckpointEntry | None:
    """Return maze_pl's entry of a checkpoint; None if it was not written by maze_pl.

    Args:
        checkpoint: The checkpoint.
        name: Name of the checkpoint in messages.

    Raises:
        ValueError: It has another format.
    """
    entry = checkpoint.get(CHECKPOINT_KEY)
    if not isinstance(entry, dict):
        return None
    if entry.get("format") != CHECKPOINT_FORMAT:
        found = f"{name} has format {entry.get('format')} (maze_pl {entry.get('version')})"
        raise ValueError(f"{found}, this version ({__version__}) reads format {CHECKPOINT_FORMAT}")
    return cast(CheckpointEntry, entry)


def data_module_state(checkpoint: dict[str, Any], class_name: str) -> dict[str, Any]:
    """Return the state of a data module, empty if the checkpoint has none.

    Args:
        checkpoint: The checkpoint.
        class_name: Qualified name of the data module's class.
    """
    return cast(dict[str, Any], checkpoint.get(class_name, {}))


def wrapper_statistics(checkpoint: dict[str, Any], class_name: str) -> dict[str, Any] | None:
    """Return the wrapper statistics in the state of a data module, as tensors, if there are any.

    Args:
        checkpoint: The checkpoint.
        class_name: Qualified name of the data module's class.
    """
    return data_module_state(checkpoint, class_name).get(WRAPPER_STATISTICS)


def callback_state(checkpoint: dict[str, Any], state_key: str) -> dict[str, Any]:
    """Return the state of a callback, empty if the checkpoint has none.

    Args:
        checkpoint: The checkpoint.
        state_key: `Callback.state_key`.
    """
    return cast(dict[str, Any], checkpoint.get("callbacks", {}).get(state_key, {}))
