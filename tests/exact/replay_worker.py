"""Trains from a replay buffer, from the start and from a checkpoint, as `tests.exact.worker` does with rollouts.

usage: replay_launch.py FOLDER ENVIRONMENT
"""

from __future__ import annotations

import logging
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import distributed

from maze_pl.core.spec import Spec
from maze_pl.datamodules import ReplayDataModule, RolloutEvaluator
from maze_pl.distributions import (
    DeterministicProbabilityDistribution,
    EpsilonGreedyProbabilityDistribution,
    SquashedGaussianProbabilityDistribution,
)
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from maze_pl.modules import DQN, SAC, TD3
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    StepStateActionCriticComposer,
    StepStateCriticComposer,
)
from maze_pl.schedules import Linear
from tests.exact.worker import SaveTwice, check_ranks, policy_net
from tests.structured import hierarchy

ENVIRONMENTS: dict[str, Any] = {
    "pendulum": partial(make_gym_maze_env, "Pendulum-v1"),
    "cartpole": partial(make_gym_maze_env, "CartPole-v1"),
    "hierarchy": hierarchy.make_env,
}
ENVIRONMENTS |= {
    "td3_pendulum": ENVIRONMENTS["pendulum"],
    "dqn_cartpole": ENVIRONMENTS["cartpole"],
    "dqn_hierarchy": ENVIRONMENTS["hierarchy"],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "pendulum": {"n_step": 3},
    "cartpole": {"prioritized": True, "replay_buffer_size": 61},
    "hierarchy": {"num_actors": 3, "n_shards": 2},
}
OPTIONS |= {
    "td3_pendulum": OPTIONS["pendulum"],
    "dqn_cartpole": OPTIONS["cartpole"],
    "dqn_hierarchy": {**OPTIONS["hierarchy"], "n_step": 2},
}


def value_net(obs_shapes: Any, action_shapes: Any, q_shapes: Any) -> Any:
    return FlattenConcatStateActionValueNet(obs_shapes, action_shapes, q_shapes, torch.nn.Tanh, [16])


def make_module(name: str, spec: Spec) -> Any:
    """DQN, TD3 or SAC, as the name of the environment says."""
    n = len(spec.steps)
    policy = ProbabilisticPolicyComposer([policy_net] * n)
    twins = StepStateActionCriticComposer([value_net] * n)
    if name.startswith("dqn"):
        every = {"action_space": "gymnasium.spaces.Space", "distribution": EpsilonGreedyProbabilityDistribution}
        critic = StepStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[8])])
        networks = CustomModelComposer(policy, critic, [every])
        options: Any = {"dueling": True, "epsilon": Linear(1.0, 0.0, until=0.9), "target_update_interval": 5}
        return DQN(networks=networks, spec=spec, **options)
    is_td3 = name.startswith("td3")
    distribution: Any = DeterministicProbabilityDistribution if is_td3 else SquashedGaussianProbabilityDistribution
    mapper = {"action_space": "gymnasium.spaces.Box", "distribution": distribution}
    networks = CustomModelComposer(policy, twins, [mapper])
    if is_td3:
        return TD3(networks=networks, spec=spec, exploration_noise=Linear(0.5, 0.1), policy_delay=3)
    return SAC(networks=networks, spec=spec)


def train(folder: Path, name: str, how: str, checkpoint: Path | None = None, epochs: int = 6, **options: Any) -> Any:
    pl.seed_everything(7, verbose=False)
    data = ReplayDataModule(
        ENVIRONMENTS[name],
        wrappers=[ObservationNormalizationWrapper],
        n_rollout_steps=2,
        num_batches_per_iter=2,
        batch_size=16,
        initial_buffer_size=50,
        epoch_length=4,
        save_buffer=True,
        evaluators={"eval": RolloutEvaluator(n_episodes=2, deterministic=False)} if name.endswith("cartpole") else {},
        seed=7,
        n_normalization_samples=100,
        **OPTIONS[name],
        **options,
    )
    module = make_module(name, data.spec)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices="auto" if not distributed.is_torchelastic_launched() else 2,
        strategy="ddp_find_unused_parameters_true" if distributed.is_torchelastic_launched() else "auto",
        use_distributed_sampler=False,
        logger=False,
        callbacks=[SaveTwice(folder, name)] if checkpoint is None else [],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    check_ranks(module, trainer)
    trainer.save_checkpoint(folder / f"{name}-{how}.ckpt")
    return module


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    folder, name = Path(sys.argv[1]), sys.argv[2]
    train(folder, name, "whole")
    train(folder, name, "resumed", folder / f"{name}-kept-epoch.ckpt")
