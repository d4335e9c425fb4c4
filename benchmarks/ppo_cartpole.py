"""W1: PPO on CartPole-v1, 8 environments x 100 steps, through the public API with statistics on, in one thread.

Prints one line of JSON with the environment steps per second, from the first rollout to the end.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger

from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import make_gym_maze_env
from maze_pl.modules import A2C, PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)


class Stopwatch(pl.Callback):
    """Takes the time from the first rollout that is asked for."""

    started = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.started = self.started or time.perf_counter()


def policy_net(obs_shapes, action_logits_shapes):
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [64, 64])


def value_net(obs_shapes):
    return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [64, 64])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=["ppo", "a2c"], default="ppo")
    parser.add_argument("--env_steps", type=int, default=200_000)
    parser.add_argument("--n_rollout_steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(arguments.seed, verbose=False)
    data = RolloutDataModule(
        lambda: make_gym_maze_env("CartPole-v1"),
        n_envs=8,
        n_rollout_steps=arguments.n_rollout_steps,
        epoch_length=25,
        seed=arguments.seed,
    )
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([policy_net]), critic=SharedStateCriticComposer([value_net])
    )
    common = {"spec": data.spec, "networks": networks, "gamma": 0.98, "gae_lambda": 0.95, "max_grad_norm": 0.5}
    if arguments.algorithm == "ppo":
        module = PPO(**common, lr=2.5e-4, batch_size=100, n_optimization_epochs=4, clip_range=0.2)
    else:
        module = A2C(**common, lr=5e-4)
    n_epochs = arguments.env_steps // (data.rollout_size * data.epoch_length)
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=n_epochs,
            accelerator="cpu",
            devices=1,
            logger=CSVLogger(folder),
            callbacks=[stopwatch],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )
        trainer.fit(module, data)
        seconds = time.perf_counter() - stopwatch.started
    steps = n_epochs * data.rollout_size * data.epoch_length
    print(json.dumps({"peer": "maze_pl", "algorithm": arguments.algorithm, "env_steps_per_second": steps / seconds}))


if __name__ == "__main__":
    main()
