"""Evaluation of the best and the last policy at the end of training."""

import copy
import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import callbacks
from torch import Tensor

from maze_pl.callbacks.best_checkpoint import BestCheckpoint
from maze_pl.callbacks.epoch_table import say, steps_text
from maze_pl.collect.state_tensors import from_tensors
from maze_pl.core.batches import Evaluation
from maze_pl.core.checkpoint_content import NETWORKS, checkpoint_entry, wrapper_statistics
from maze_pl.core.episode import EpisodeSummary
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.events.display import format_value
from maze_pl.loggers.dashboard import dashboards
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.run_statistics import episode_means
from maze_pl.runs.checkpoint_files import read_checkpoint
from maze_pl.runs.seed_results import FINAL_FILE
from maze_pl.system.atomic_files import write_file
from maze_pl.system.ranks import from_first_rank, gather_objects

_Episodes = list[EpisodeSummary]


class FinalEvaluation(callbacks.Callback):
    """Evaluates the last policy and the one of `best.ckpt` after training in new episodes, and prints both.

    Both play the same episodes, as many as in training. Those of training selected `best.ckpt`, so
    that its mean in them is in part luck.

    Callbacks that average weights, such as `EMAWeightAveraging`, must come before it.

    It needs a `BestCheckpoint`, and a data module with evaluators; otherwise it does nothing. The
    module and the training environments are left unchanged. Dashboards get the means as final
    results of the run.

    Args:
        run_dir: Run directory for `final_evaluation.json`, which has the results of each episode;
            None writes no file.
    """

    def __init__(self, run_dir: str | None = None) -> None:
        self.run_dir = run_dir
        self._folder = None if run_dir is None else Path(run_dir).absolute()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse an order of callbacks in which the last policy is not the saved average.

        Raises:
            ValueError: Weights are averaged by a later callback.
        """
        every: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for callback in every[every.index(self) :]:
            if isinstance(callback, callbacks.WeightAveraging):
                name = type(callback).__name__
                order = f"{name} comes after FinalEvaluation in the callbacks of the Trainer"
                consequence = "which would evaluate weights without the average"
                raise ValueError(f"{order}, {consequence}: put it before")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate on all ranks, with other seeds than in training."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, EnvironmentDataModule) or not isinstance(pl_module, AlgorithmModule):
            return
        file = _best_file(trainer)
        found = None
        if trainer.is_global_zero and data.evaluators and file is not None and file.is_file():
            found = _best(read_checkpoint(file), type(data).__qualname__)
        found = from_first_rank(found)  # some ranks may have no access to the file
        if found is None:
            return
        best, wrapper_statistics, steps = found
        networks = pl_module.networks
        results: dict[str, dict[str, _Episodes]] = {}
        for name in data.evaluators:
            with data.final_episodes():
                last_episodes = _episodes(data.evaluate(name, pl_module.policy))
                last = copy.deepcopy(networks.state_dict())
                try:  # in place, as networks with observers attached cannot always be copied
                    networks.load_state_dict(best)
                    statistics = from_tensors(wrapper_statistics)
                    best_episodes = _episodes(data.evaluate(name, pl_module.policy, statistics))
                finally:
                    networks.load_state_dict(last)
            best_steps = f"{steps_text(pl_module, steps)} (best.ckpt)"
            say(trainer, f"best: {name} {_means(best_episodes)} in new episodes after {best_steps}")
            say(trainer, f"last: {name} {_means(last_episodes)} in new episodes after {steps_text(pl_module)}")
            results[name] = {"best": best_episodes, "last": last_episodes}
        if trainer.is_global_zero and results:
            self._keep(trainer, results, {"best": steps, "last": pl_module.env_steps})

    def _keep(
        self, trainer: pl.Trainer, results: Mapping[str, Mapping[str, _Episodes]], env_steps: Mapping[str, int]
    ) -> None:
        """Write the results of each episode, and log the means to dashboards."""
        content: dict[str, Any] = {"env_steps": dict(env_steps), "evaluators": {}}
        means: dict[str, float] = {}
        for name, of_policies in results.items():
            tables: dict[str, list[dict[str, float]]] = {}
            for which, episodes in of_policies.items():
                tables[which] = [_values(episode) for episode in episodes]
                for quantity, value in episode_means(episodes).items():
                    means[f"final_{name}/{which}/{quantity}"] = float(value)
            content["evaluators"][name] = tables
        if self._folder is not None:
            write_file(self._folder / FINAL_FILE, f"{json.dumps(content, indent=1)}\n".encode())
        for dashboard in dashboards(trainer):
            dashboard.conclude(means, env_steps["last"])


def _episodes(evaluation: Evaluation) -> _Episodes:
    """Return the summaries of the episodes of all ranks, in the order of their indices."""
    return sorted(chain(*gather_objects(evaluation.summaries)), key=lambda one: one.episode_index)


def _values(episode: EpisodeSummary) -> dict[str, float]:
    """Return the return and the KPIs of an episode."""
    kpis = {f"kpi/{name}": float(value) for name, value in episode.kpis.items()}
    return {"return": float(episode.reward), **kpis}


def _means(episodes: _Episodes) -> str:
    """Format the mean return and KPIs of episodes."""
    return ", ".join(f"{name} {format_value(value)}" for name, value in episode_means(episodes).items())


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
