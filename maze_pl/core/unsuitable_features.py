"""Callbacks and options of Lightning that do not fit reinforcement learning, with the alternatives.

They would fail late, silently do nothing, or do something else than under Lightning's own
optimisation. The command line refuses them before it makes a Trainer, and algorithms when training
starts.
"""

from collections.abc import Iterable
from typing import Any, Final

import pytorch_lightning as pl
from pytorch_lightning import callbacks

BATCHES: Final = "a larger model.batch_size, data.n_envs or data.n_rollout_steps instead, which averages over more data"
"""End of messages about gradients that are summed over batches."""
_CALLBACKS: Final[dict[type[callbacks.Callback], str]] = {
    callbacks.GradientAccumulationScheduler: f"algorithms step their optimisers themselves: {BATCHES}",
    callbacks.BatchSizeFinder: "the batch size must divide the size of a rollout: set model.batch_size",
    callbacks.LearningRateFinder: "the loss of a policy says little about its learning rate: compare runs with "
    "several values of model.lr by their eval/return",
    callbacks.StochasticWeightAveraging: "it averages after training and outside of checkpoints: use "
    "pytorch_lightning.callbacks.EMAWeightAveraging, whose average is evaluated and saved",
    callbacks.ModelPruning: "it replaces parameters that the optimiser holds in one flat tensor: prune the networks "
    "of the trained agent with torch.nn.utils.prune",
}


def refuse_unsuitable_trainer(trainer: pl.Trainer) -> None:
    """Refuse a trainer with which algorithms cannot learn.

    Raises:
        ValueError: Names the feature and the alternative.
    """
    refuse_callbacks(trainer.callbacks)  # type: ignore[attr-defined]
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        raise ValueError(f"precision={trainer.precision!r} scales losses, which is not supported; use bf16-mixed")
    refuse_timed_evaluations(trainer)


def refuse_timed_evaluations(trainer: pl.Trainer) -> None:
    """Refuse evaluations by time on several ranks, each of which would follow its own clock.

    Raises:
        ValueError: Says what to use instead.
    """
    seconds = getattr(trainer, "_val_check_time_interval", None)
    if seconds is not None and trainer.world_size > 1:
        fault = f"val_check_interval is a time ({seconds:g} s), which is not supported with {trainer.world_size} ranks"
        reason = "by their own clocks, they would evaluate after different batches, and wait for each other forever"
        raise ValueError(f"{fault}: {reason}; use a number of batches, or a fraction of an epoch")


def refuse_callbacks(configured: Iterable[Any]) -> None:
    """Refuse callbacks that do not fit, and options of callbacks.

    Args:
        configured: Callbacks.

    Raises:
        ValueError: Names the first such callback and the alternative.
    """
    for callback in configured:
        for unsuitable, remedy in _CALLBACKS.items():
            if isinstance(callback, unsuitable):
                raise ValueError(f"the callback {type(callback).__name__} is not supported: {remedy}")
        if isinstance(callback, callbacks.EMAWeightAveraging):
            _refuse_rare_updates(callback)
        if isinstance(callback, callbacks.ModelCheckpoint):
            _refuse_timed_checkpoints(callback)


def _refuse_timed_checkpoints(checkpoint: callbacks.ModelCheckpoint) -> None:
    """Refuse checkpoints by time, which Lightning never writes where algorithms step their optimisers."""
    if type(checkpoint).on_train_batch_end is not callbacks.ModelCheckpoint.on_train_batch_end:
        return
    if checkpoint._train_time_interval is not None:
        reason = "Lightning does not write checkpoints by time where algorithms step their optimisers themselves"
        remedy = "use every_n_epochs, or maze_pl.callbacks.LastCheckpoint (last_checkpoint.every_n_epochs)"
        raise ValueError(f"ModelCheckpoint(train_time_interval=...) is not supported: {reason}; {remedy}")


def _refuse_rare_updates(averaging: callbacks.EMAWeightAveraging) -> None:
    """Refuse an average that is updated at certain counts of optimiser steps.

    Lightning looks at the count after each batch only, and a batch may take any number of steps.
    """
    if type(averaging).should_update is not callbacks.EMAWeightAveraging.should_update:
        return
    every = averaging.update_every_n_steps
    is_by_epoch = every == 0 and averaging.update_starting_at_epoch is not None
    if every != 1 and not is_by_epoch:
        raise ValueError(
            f"EMAWeightAveraging(update_every_n_steps={every}) is not supported, because a batch takes several "
            "optimiser steps: leave it at 1, for an update after each batch, with a decay closer to 1; or set it to 0 "
            "and update_starting_at_epoch, for an update after each epoch"
        )
