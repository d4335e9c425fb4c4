"""Trains on several environments in one process (or one for each rank), from the start or from checkpoints.

usage: worker.py FOLDER ALGORITHM start|resume|here|workers ENVIRONMENT...

`start` runs 6 epochs and keeps checkpoints of both save points after the third epoch; `resume` continues each of them
to 6 epochs. `here` and `workers` run 2 epochs of environments that collect by themselves, in this process or in two
others. Every run ends with a checkpoint `<environment>-<how>.ckpt`, all written for the test to compare.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import distributed

from maze_pl.collect.engines import Engine, ProcessEngine
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, ReturnNormalizationRewardWrapper
from maze_pl.modules import A2C, PPO
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DeltaStateCriticComposer,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    PerceptionBlock,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    SharedStateCriticComposer,
    StepStateCriticComposer,
    TemplateModelComposer,
    TransformerMemoryBlock,
)
from tests.structured import agreement, hierarchy, team

ENVIRONMENTS = {
    "cartpole": partial(make_gym_maze_env, "CartPole-v1"),
    "lunarlander": partial(make_gym_maze_env, "LunarLander-v3"),
    "agreement": agreement.make_env,
    "delta": agreement.make_env,
    "team": team.make_env,
    "hierarchy": hierarchy.make_env,
    "memory": partial(make_gym_maze_env, "CartPole-v1"),
    "team_memory": team.make_env,
    "team_transformer": team.make_env,
    "team_critic_memory": team.make_env,
}
RECURRENT = {"hidden_size": 8}
TRANSFORMER = {"hidden_size": 8, "memory_length": 3, "num_layers": 2, "num_heads": 2}
MEMORIES: dict[str, tuple[type[PerceptionBlock], dict[str, Any]]] = {
    "memory": (RecurrentBlock, {**RECURRENT, "cell": "gru"}),
    "team_memory": (RecurrentBlock, {**RECURRENT, "cell": "lstm"}),
    "team_transformer": (TransformerMemoryBlock, TRANSFORMER),
    "team_critic_memory": (RecurrentBlock, {**RECURRENT, "cell": "gru"}),
}
CRITICS = {
    "agreement": StepStateCriticComposer,
    "delta": DeltaStateCriticComposer,
    "team": StepStateCriticComposer,
}


def policy_net(obs_shapes, action_logits_shapes):
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [16])


def value_net(obs_shapes):
    return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [16])


def networks_that_remember(
    spec: Spec, block_type: type[PerceptionBlock], params: Any, shared: Sequence[str] = ("latent",)
) -> TemplateModelComposer:
    names = {name for step in spec.steps.values() for name in step.observation_space.spaces}
    config = {
        "feature": {"block_type": DenseBlock, "block_params": {"hidden_units": [8]}},
        "recurrence": {"block_type": block_type, "block_params": params},
    }
    builder = ConcatModelBuilder(config, dict.fromkeys(sorted(names), "feature"), list(shared))
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), StepStateCriticComposer())


def train(
    folder: Path,
    algorithm: str,
    name: str,
    how: str,
    checkpoint: Path | None = None,
    engine: Engine | None = None,
    n_shards: int = 1,
    max_epochs: int = 6,
) -> None:
    pl.seed_everything(7, verbose=False)
    data = RolloutDataModule(
        ENVIRONMENTS[name],
        wrappers=[ObservationNormalizationWrapper, partial(ReturnNormalizationRewardWrapper, gamma=0.95)],
        n_envs=3,
        n_rollout_steps=17,  # does not line up with episodes
        epoch_length=2,
        evaluators={"eval": RolloutEvaluator(n_episodes=3, deterministic=False)},
        seed=7,
        n_normalization_samples=100,
        n_shards=n_shards,
        engine=engine,
    )
    n_networks = len(data.spec.steps)
    composer = CRITICS.get(name, SharedStateCriticComposer)
    critic = composer([value_net] * (1 if composer is SharedStateCriticComposer else n_networks))
    networks = CustomModelComposer(policy=ProbabilisticPolicyComposer([policy_net] * n_networks), critic=critic)
    if name in MEMORIES:
        shared = () if name == "team_critic_memory" else ("latent",)
        networks = networks_that_remember(data.spec, *MEMORIES[name], shared=shared)
    options = {"spec": data.spec, "networks": networks, "gamma": 0.95, "lr": 1e-3, "sequence_length": 5}
    module = (
        A2C(**options) if algorithm == "a2c" else PPO(**options, batch_size=17, n_optimization_epochs=2, target_kl=0.01)
    )
    callbacks = [SaveTwice(folder, name)] if checkpoint is None and max_epochs == 6 else []
    trainer = pl.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        devices="auto" if not distributed.is_torchelastic_launched() else 2,
        strategy="ddp_find_unused_parameters_true" if distributed.is_torchelastic_launched() else "auto",
        use_distributed_sampler=False,
        logger=False,
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    check_ranks(module, trainer)
    trainer.save_checkpoint(folder / f"{name}-{how}.ckpt")


class SaveTwice(pl.Callback):
    """Writes checkpoints in the third epoch at the two points at which Lightning's own callback writes them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.save(trainer, "validation")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.save(trainer, "epoch")

    def save(self, trainer: pl.Trainer, point: str) -> None:
        if trainer.current_epoch == 2:
            trainer.save_checkpoint(self.folder / f"{self.name}-kept-{point}.ckpt")


def check_ranks(module: pl.LightningModule, trainer: pl.Trainer) -> None:
    """Parameters, and the slow copies that some critics have, are bit-equal on all ranks."""
    if trainer.world_size == 1:
        return
    copies = (buffer for name, buffer in module.named_buffers() if ".target." in name)
    mine = torch.cat([tensor.detach().flatten() for tensor in (*module.parameters(), *copies)])
    theirs = [torch.empty_like(mine) for _ in range(trainer.world_size)]
    distributed.all_gather(theirs, mine)
    if not all(torch.equal(mine, other) for other in theirs):
        raise SystemExit("parameters differ between ranks")


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    algorithms, phases = sys.argv[2].split(","), sys.argv[3].split(",")
    for algorithm in algorithms:
        folder = Path(sys.argv[1], algorithm)
        folder.mkdir(exist_ok=True)
        for phase in phases:
            for name in sys.argv[4:]:
                run_phase(folder, algorithm, phase, name)


def run_phase(folder: Path, algorithm: str, phase: str, name: str) -> None:
    """Train from the start, from what was kept on the way, or only two epochs, here or in workers."""
    if phase == "start":
        train(folder, algorithm, name, "whole")
    elif phase in ("here", "workers"):
        engine = ProcessEngine(2) if phase == "workers" else None
        train(folder, algorithm, name, phase, engine=engine, n_shards=0, max_epochs=2)
    else:
        for point in ("epoch", "validation"):
            train(folder, algorithm, name, f"from-{point}", folder / f"{name}-kept-{point}.ckpt")


if __name__ == "__main__":
    main()
