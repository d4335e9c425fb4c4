"""Evaluation of the best and the last policy at the end of training."""

import copy
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import callbacks
from torch import Tensor

from maze_pl.callbacks.best_checkpoint import BestCheckpoint
from maze_pl.callbacks.epoch_table import say
from maze_pl.collect.state_tensors import from_tensors
from maze_pl.core.batches import Evaluation
from maze_pl.core.checkpoint import NETWORKS, checkpoint_entry, wrapper_statistics
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.events.display import format_value
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.run_statistics import episode_means
from maze_pl.runs.checkpoint import read_checkpoint
from maze_pl.system.ranks import gather_objects


class FinalEvaluation(callbacks.Callback):
    """Evaluates the last policy and the one of `best.ckpt` again after training, and prints both.

    It needs a `BestCheckpoint`, and a data module with evaluators; otherwise it does nothing. The
    module, the training environments and the logs are left unchanged.
    """

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate on all ranks, with the same seeds as all evaluations."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, EnvironmentDataModule) or not isinstance(pl_module, AlgorithmModule):
            return
        file = _best_file(trainer)
        found = None
        if trainer.is_global_zero and data.evaluators and file is not None and file.is_file():
            found = _best(read_checkpoint(file), type(data).__qualname__)
        found = trainer.strategy.broadcast(found)  # some ranks may have no access to the file
        if found is None:
            return
        best, learned, steps = found
        networks = pl_module.networks
        for name in data.evaluators:
            last_means = _means(data.evaluate(name, pl_module.policy))
            last = copy.deepcopy(networks.state_dict())
            try:  # in place, as networks with observers attached cannot always be copied
                networks.load_state_dict(best)
                best_means = _means(data.evaluate(name, pl_module.policy, from_tensors(learned)))
            finally:
                networks.load_state_dict(last)
            say(trainer, f"best: {name} {best_means} after {steps:,} env steps (best.ckpt)")
            say(trainer, f"last: {name} {last_means} after {pl_module.env_steps:,} env steps")


def _means(evaluation: Evaluation) -> str:
    """Format the mean return and KPIs over the episodes of all ranks."""
    means = episode_means(chain(*gather_objects(evaluation.summaries)))
    return ", ".join(f"{name} {format_value(value)}" for name, value in means.items())


def _best_file(trainer: pl.Trainer) -> Path | None:
    """Return the path of the best checkpoint; None without a callback that keeps it."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, BestCheckpoint):
            return Path(callback.best_model_path)
    return None


def _best(checkpoint: dict[str, Any], data_class: str) -> tuple[dict[str, Tensor], dict[str, Any] | None, int]:
    """Return weights of policy and critic, wrapper statistics and env steps of a checkpoint."""
    weights: dict[str, Tensor] = {}
    for name, value in checkpoint["state_dict"].items():
        if name.startswith(NETWORKS):
            weights[name.removeprefix(NETWORKS)] = value
    entry = checkpoint_entry(checkpoint)
    assert entry is not None  # this run wrote it
    return weights, wrapper_statistics(checkpoint, data_class), entry["env_steps"]
