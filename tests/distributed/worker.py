"""Trains and evaluates in one process, or in one of several ranks. usage: worker.py CASE... in the folder to write to

Each case leaves the reports of all its ranks in a folder of its name; see `CASES`.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv
from maze_pl.modules import A2C, PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StepStateCriticComposer,
)
from tests.distributed import sides
from tests.distributed.rank_report import RankReport
from tests.envs.tensors.tensor_envs import ENVS, WRAPPERS

N_RANKS = int(os.environ.get("WORLD_SIZE", "1"))


def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> torch.nn.Module:
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [16])


def value_net(obs_shapes: Any) -> torch.nn.Module:
    return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [16])


def make(algorithm: type[A2C] | type[PPO], data: RolloutDataModule, critic: Any = None, **options: Any) -> A2C | PPO:
    """An algorithm with small networks, the same on all ranks."""
    pl.seed_everything(3, verbose=False)
    n_networks = len(data.spec.steps)
    critic = critic or SharedStateCriticComposer([value_net])
    networks = CustomModelComposer(policy=ProbabilisticPolicyComposer([policy_net] * n_networks), critic=critic)
    return algorithm(spec=data.spec, networks=networks, lr=1e-2, **options)


def trainer(case: str, max_epochs: int = 2) -> pl.Trainer:
    Path(case).mkdir(exist_ok=True)
    return pl.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        devices=N_RANKS,
        strategy="ddp_find_unused_parameters_true" if N_RANKS > 1 else "auto",
        use_distributed_sampler=False,
        logger=False,
        callbacks=[RankReport(case)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def evaluate(case: str, n_episodes: int) -> None:
    """An evaluation by itself."""
    evaluators = {"eval": RolloutEvaluator(n_episodes=n_episodes)}
    data = RolloutDataModule(partial(GymMazeEnv, "CartPole-v1"), evaluators=evaluators, seed=5)
    trainer(case).validate(make(A2C, data), data, verbose=False)


def stop_by_divergence(case: str) -> None:
    """PPO that stops after the first of its passes over each rollout."""
    evaluators = {"eval": RolloutEvaluator(n_episodes=3)}
    data = RolloutDataModule(
        partial(GymMazeEnv, "CartPole-v1"), n_envs=2, n_rollout_steps=20, epoch_length=3, evaluators=evaluators, seed=5
    )
    trainer(case).fit(make(PPO, data, batch_size=10, n_optimization_epochs=4, target_kl=1e-12), data)


def train(case: str, validate: bool) -> None:
    """A2C, perhaps after an evaluation by the same trainer."""
    data = RolloutDataModule(
        partial(GymMazeEnv, "CartPole-v1"),
        n_envs=2,
        n_rollout_steps=20,
        epoch_length=3,
        evaluators={"eval": RolloutEvaluator(n_episodes=3)},
        seed=5,
    )
    module, runner = make(A2C, data), trainer(case)
    if validate:
        runner.validate(module, data, verbose=False)
    runner.fit(module, data)


def one_side_each(case: str, algorithm: type[A2C] | type[PPO], **options: Any) -> None:
    """Each rank sees one of two policies act."""
    seed = sides.seed_with_a_side_for_each(2)
    data = RolloutDataModule(sides.make_env, n_envs=1, n_rollout_steps=20, epoch_length=3, evaluators={}, seed=seed)
    trainer(case).fit(make(algorithm, data, **options), data)


def in_arrays(case: str, env: Callable[[], Any], wrappers: Any = None, resumed_after: int = 0, **options: Any) -> None:
    """PPO in environments that are stepped together on each rank, perhaps in two runs."""

    def fit(max_epochs: int, checkpoint: Path | None) -> pl.Trainer:
        data = RolloutDataModule(env, wrappers, n_envs=4, n_rollout_steps=20, epoch_length=3, evaluators={}, seed=5)
        module = make(PPO, data, batch_size=20, n_optimization_epochs=2, **options)
        runner = trainer(case, max_epochs)
        runner.fit(module, data, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
        return runner

    checkpoint = None
    if resumed_after:
        checkpoint = Path(case, "first.ckpt").absolute()
        fit(resumed_after, None).save_checkpoint(checkpoint)
    fit(2, checkpoint)


CASES: dict[str, Callable[[str], None]] = {
    "arrays": partial(in_arrays, env=CartPoleArrayEnv),
    "resumed_arrays": partial(in_arrays, env=CartPoleArrayEnv, resumed_after=1),
    "tensors": partial(in_arrays, env=ENVS["structured"], critic=StepStateCriticComposer([value_net] * 2)),
    "wrapped_tensors": partial(in_arrays, env=ENVS["flat"], wrappers=WRAPPERS["all"][1]),
    "resumed_wrapped_tensors": partial(in_arrays, env=ENVS["flat"], wrappers=WRAPPERS["all"][1], resumed_after=1),
    "one_episode": partial(evaluate, n_episodes=1),
    "three_episodes": partial(evaluate, n_episodes=3),
    "divergence": stop_by_divergence,
    "fit": partial(train, validate=False),
    "validate_and_fit": partial(train, validate=True),
    "sides_a2c": partial(one_side_each, algorithm=A2C),
    "sides_ppo": partial(
        one_side_each,
        algorithm=PPO,
        critic=StepStateCriticComposer([value_net] * 2),
        batch_size=5,
        n_optimization_epochs=3,
        target_kl=0.02,
    ),
}


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    for case in sys.argv[1:]:
        CASES[case](case)


if __name__ == "__main__":
    main()
