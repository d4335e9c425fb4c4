"""PPO and A2C on CartPole-v1 with 8 environments, through the public API with statistics on, in one thread.

Prints one line of JSON with the environment steps per second, from the first rollout to the end, and the peak memory.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import resource
import tempfile
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import nn

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
    """Measures the time from the request of the first rollout."""

    started = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.started = self.started or time.perf_counter()


class UsersNet(nn.Module):
    """A custom network, which the library does not know."""

    def __init__(self, obs_shapes, out_sizes):
        super().__init__()
        (self.name,), (shape,) = obs_shapes.keys(), obs_shapes.values()
        self.first, self.second = nn.Linear(shape[0], 64), nn.Linear(64, 64)
        self.outputs = nn.ModuleDict({name: nn.Linear(64, size) for name, size in out_sizes.items()})

    def forward(self, observation):
        latent = torch.tanh(self.second(torch.tanh(self.first(observation[self.name]))))
        return {name: output(latent) for name, output in self.outputs.items()}


def shipped_policy(obs_shapes, action_logits_shapes):
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, nn.Tanh, [64, 64])


def shipped_critic(obs_shapes):
    return FlattenConcatStateValueNet(obs_shapes, nn.Tanh, [64, 64])


def users_policy(obs_shapes, action_logits_shapes):
    return UsersNet(obs_shapes, {head: math.prod(shape) for head, shape in action_logits_shapes.items()})


def users_critic(obs_shapes):
    return UsersNet(obs_shapes, {"value": 1})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=["ppo", "a2c"], default="ppo")
    parser.add_argument("--networks", choices=["shipped", "user"], default="shipped")
    parser.add_argument("--capture", choices=["auto", "off"], default="auto")
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
        epoch_length=25 * 100 // arguments.n_rollout_steps,
        seed=arguments.seed,
    )
    policy, critic = (users_policy, users_critic) if arguments.networks == "user" else (shipped_policy, shipped_critic)
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([policy]), critic=SharedStateCriticComposer([critic])
    )
    common = {"spec": data.spec, "networks": networks, "gamma": 0.98, "gae_lambda": 0.95, "max_grad_norm": 0.5}
    common["capture"] = arguments.capture
    if arguments.algorithm == "ppo":
        module = PPO(**common, lr=2.5e-4, batch_size=100, n_optimization_epochs=4, clip_range=0.2)
    else:
        module = A2C(**common, lr=5e-4)
    n_epochs = arguments.env_steps // (data.n_envs * data.n_rollout_steps * data.epoch_length)
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
    speed = n_epochs * data.n_envs * data.n_rollout_steps * data.epoch_length / seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"env_steps_per_second": speed, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
