"""Training through the public Python API, and the mean return of what was learned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from torch import nn

import maze_pl
from maze_pl.callbacks import StopAtReturn
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.modules import AlgorithmModule
from maze_pl.perception import (
    CustomModelComposer,
    DeltaStateCriticComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StepStateCriticComposer,
)

Critic = Literal["shared", "step", "delta"]
COMPOSERS = {
    "shared": SharedStateCriticComposer,
    "step": StepStateCriticComposer,
    "delta": DeltaStateCriticComposer,
}


def policy_net(hidden_units: tuple[int, ...]) -> Callable[..., nn.Module]:
    """Makes dense policy networks."""
    return partial(FlattenConcatPolicyNet, non_lin=nn.Tanh, hidden_units=hidden_units)


def networks(critic: Critic, hidden_units: tuple[int, ...]) -> CustomModelComposer:
    """Dense networks for policy and critic."""
    value_net = partial(FlattenConcatStateValueNet, non_lin=nn.Tanh, hidden_units=hidden_units)
    policy = ProbabilisticPolicyComposer([policy_net(hidden_units)])
    return CustomModelComposer(policy, COMPOSERS[critic]([value_net]))


def train(
    module: AlgorithmModule,
    env: Callable[[], Any],
    *,
    seed: int,
    n_rollouts: int,
    stop_at: float | None = None,
    **data_options: Any,
) -> float:
    """Train for a number of rollouts and return the mean return of 20 deterministic episodes.

    Args:
        module: The algorithm, whose networks are built here.
        env: Makes an environment.
        seed: Of environments, actions and minibatches.
        n_rollouts: How long to train.
        stop_at: Mean return at which training ends early, in an evaluation after each fifth of it.
        data_options: Of the data module.
    """
    n_epochs = 1 if stop_at is None else 5
    assert n_rollouts % n_epochs == 0
    data_options |= {"epoch_length": n_rollouts // n_epochs}
    evaluator = RolloutEvaluator(n_episodes=20, deterministic=True)
    data = RolloutDataModule(env, seed=seed, evaluators={"eval": evaluator}, **data_options)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=n_epochs,
        callbacks=[StopAtReturn(stop_at)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    torch.set_num_threads(1)
    trainer.fit(module, data)
    return float(trainer.callback_metrics["eval/return"])


def mean_return(run_dir: Path) -> float:
    """Mean return of CartPole in 10 episodes that no evaluation played, stepped by hand."""
    agent, env = maze_pl.load(run_dir), maze_pl.load_env(run_dir)
    total = 0
    for seed in range(10):
        observation, _ = env.reset(seed=1_000 + seed)
        policy_state: dict[object, object] = {}
        over = False
        while not over:
            observation, _, terminated, truncated, _ = env.step(agent.act(observation, policy_state=policy_state))
            total += 1  # the environment's own reward, which training scales
            over = terminated or truncated
    env.close()
    return total / 10
