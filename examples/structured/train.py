"""Trains an agent in one of these environments, in plain Python."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytorch_lightning as pl
from torch import nn

from maze_pl.callbacks import EpochTable
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import MazeEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)

policy_net = partial(FlattenConcatPolicyNet, non_lin=nn.Tanh, hidden_units=[64])
value_net = partial(FlattenConcatStateValueNet, non_lin=nn.Tanh, hidden_units=[64])


def train(make_env: Callable[[], MazeEnv], critic: Any = SharedStateCriticComposer, **data_options: Any) -> None:
    """Train for 8,000 env steps; print all statistics, and the mean return of 20 episodes before and after training."""
    pl.seed_everything(0, verbose=False)
    data = RolloutDataModule(
        make_env,
        wrappers=[partial(TimeLimitWrapper, max_episode_steps=50)],
        n_envs=8,
        n_rollout_steps=50,
        epoch_length=20,
        evaluators={"eval": RolloutEvaluator(n_episodes=20, deterministic=False)},
        **data_options,
    )
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), critic([value_net]))
    options: dict[str, Any] = {"lr": 4e-3, "gamma": 0.9, "gae_lambda": 0.9, "batch_size": 100, "entropy_coef": 1e-3}
    learner = PPO(networks=networks, max_grad_norm=0.5, n_optimization_epochs=4, **options)
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    quiet["num_sanity_val_steps"] = 0
    callbacks: list[pl.Callback] = [EpochTable()]
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, callbacks=callbacks, **quiet)
    trainer.validate(learner, data, verbose=False)
    before = float(trainer.callback_metrics["eval/return"])
    trainer.fit(learner, data)
    after = float(trainer.callback_metrics["eval/return"])
    print(f"mean return of 20 episodes: {before:.1f} before, {after:.1f} after training")
