"""Refusal of Lightning features that do not fit reinforcement learning, with the alternatives.

Options, callbacks and plugins belong here that Lightning accepts and that would fail late or
silently do nothing. docs/lightning.md lists them together with all that works, and a test tries
each.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

from pytorch_lightning.plugins.io import AsyncCheckpointIO
from pytorch_lightning.utilities import rank_zero_only

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.unsuitable_features import BATCHES, refuse_callbacks

ASYNCHRONOUS: Final = (
    "the plugin AsyncCheckpointIO is not supported: a checkpoint is renamed when it is complete, which must not "
    "happen before it is written; use last_checkpoint.every_n_epochs to write less often"
)
"""Message about this plugin."""
_OPTIONS: Final[dict[str, tuple[Any, str]]] = {
    "gradient_clip_val": (None, "algorithms clip the gradient themselves: use model.max_grad_norm"),
    "gradient_clip_algorithm": (None, "algorithms limit the norm of the gradient themselves: use model.max_grad_norm"),
    "accumulate_grad_batches": (1, f"algorithms step their optimisers themselves: {BATCHES}"),
    "barebones": (
        False,
        "a run without checkpoints and logs is `--trainer.logger false --trainer.enable_checkpointing false "
        "--trainer.enable_progress_bar false`",
    ),
}


def refuse_unsuitable(options: Mapping[str, Any]) -> None:
    """Refuse Trainer options that do not fit; the first rank says if nothing would be trained.

    Args:
        options: Arguments of `Trainer`, callbacks and plugins as instances.

    Raises:
        ConfigurationError: Names such an option and the remedy.
    """
    for name, (harmless, remedy) in _OPTIONS.items():
        value = options.get(name)
        if value is not None and value != harmless:
            raise ConfigurationError(f"trainer.{name}={value} is not supported: {remedy}")
    try:
        refuse_callbacks(as_list(options.get("callbacks")))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    for plugin in as_list(options.get("plugins")):
        if isinstance(plugin, AsyncCheckpointIO):
            raise ConfigurationError(ASYNCHRONOUS)
    if options.get("limit_train_batches") == 0 and getattr(rank_zero_only, "rank", 0) == 0:
        sys.stderr.write("maze-pl: trainer.limit_train_batches=0: nothing is trained\n")


def as_list(configured: Any) -> list[Any]:
    """Return a list of callbacks or plugins, from None, one or several; names are left out."""
    if configured is None or isinstance(configured, str):
        return []
    return list(configured) if isinstance(configured, list | tuple) else [configured]
