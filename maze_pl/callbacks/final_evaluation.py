"""The last word on a run: how its last and its best policy do."""

import copy
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks.checkpoints import BestCheckpoint
from maze_pl.callbacks.epoch_table import format_value, say
from maze_pl.collect.serialization import from_tensors
from maze_pl.core.rollout import Evaluation
from maze_pl.datamodules import RolloutDataModule
from maze_pl.loading import read_checkpoint
from maze_pl.modules.algorithm import CHECKPOINT_KEY, AlgorithmModule
from maze_pl.modules.ranks import gather_objects
from maze_pl.modules.statistics import episode_means

_NETWORKS = "actor_critic."


class FinalEvaluation(Callback):
    """When training has ended, evaluates the last policy and the one of `best.ckpt` once more, and prints both.

    It needs a `BestCheckpoint`, and a `RolloutDataModule` with evaluators; otherwise it does nothing. The module, the
    training environments and what is logged stay as they are.
    """

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, on all ranks, with the seeds that all evaluations have."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, RolloutDataModule) or not isinstance(pl_module, AlgorithmModule):
            return
        best: dict[str, Any] | None = None
        for callback in trainer.checkpoint_callbacks if trainer.is_global_zero and data.evaluators else []:
            if isinstance(callback, BestCheckpoint) and Path(callback.best_model_path).is_file():
                best = _read(callback.best_model_path, type(data).__qualname__)
        best = trainer.strategy.broadcast(best)  # there may be ranks that do not see the file
        if best is None:
            return
        networks = copy.deepcopy(pl_module.networks)
        networks.load_state_dict(best["networks"])
        for name in data.evaluators:
            best_means = _means(data.evaluate(name, networks.policy, best["learned"]))
            last_means = _means(data.evaluate(name, pl_module.policy))
            say(trainer, f"best: {name} {best_means} after {best['env_steps']:,} env steps (best.ckpt)")
            say(trainer, f"last: {name} {last_means} after {pl_module.env_steps:,} env steps")


def _read(path: str, data_class: str) -> dict[str, Any]:
    """What of a checkpoint an evaluation needs."""
    checkpoint = read_checkpoint(path)
    weights = checkpoint["state_dict"]
    return {
        "networks": {name[len(_NETWORKS) :]: weights[name] for name in weights if name.startswith(_NETWORKS)},
        "learned": from_tensors(checkpoint[data_class]["shared"]),
        "env_steps": checkpoint[CHECKPOINT_KEY]["env_steps"],
    }


def _means(evaluation: Evaluation) -> str:
    """Return and KPIs as text, means over the episodes of all ranks."""
    means = episode_means(chain(*gather_objects(evaluation.summaries)))
    return ", ".join(f"{name} {format_value(value)}" for name, value in means.items())
