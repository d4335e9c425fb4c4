"""Evaluation of the best and the last policy at the end of training."""

import copy
from itertools import chain
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning import callbacks

from maze_pl.callbacks.best_checkpoint import BestCheckpoint
from maze_pl.callbacks.epoch_table import say
from maze_pl.collect.storage import from_tensors
from maze_pl.core.batches import Evaluation
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.events.display import format_value
from maze_pl.modules.algorithm import CHECKPOINT_KEY as MODULE_KEY
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.run_statistics import episode_means
from maze_pl.runs.checkpoint import read_checkpoint
from maze_pl.system.ranks import gather_objects

_NETWORKS = "actor_critic."


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
        files = [Path(one.best_model_path) for one in trainer.checkpoint_callbacks if isinstance(one, BestCheckpoint)]
        found = None
        if trainer.is_global_zero and data.evaluators and files and files[0].is_file():
            read = read_checkpoint(str(files[0]))
            found = read["state_dict"], read[type(data).__qualname__]["shared"], read[MODULE_KEY]["env_steps"]
        found = trainer.strategy.broadcast(found)  # some ranks may have no access to the file
        if found is None:
            return
        weights, learned, steps = found
        best = {name.removeprefix(_NETWORKS): value for name, value in weights.items() if name.startswith(_NETWORKS)}
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
