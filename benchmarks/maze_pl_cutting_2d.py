"""PPO on the masked, structured cutting-2D environment, through the public API with statistics on, in one thread.

Prints one line of JSON with the environment steps per second, from the first rollout to the end, and the peak memory.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import tempfile
import time
import warnings
from functools import partial

os.environ["OMP_NUM_THREADS"] = "1"

import pytorch_lightning as pl
import torch
from maze_pl_cartpole import Stopwatch
from pytorch_lightning.loggers import CSVLogger

from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)

DEMAND = [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--capture", choices=["auto", "off"], default="auto")
    parser.add_argument("--env_steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(arguments.seed, verbose=False)
    data = RolloutDataModule(
        lambda: masked_struct_env_factory(50, (4, 3), DEMAND),
        wrappers=[partial(TimeLimitWrapper, max_episode_steps=180)],
        n_envs=8,
        n_rollout_steps=100,
        epoch_length=25,
        seed=arguments.seed,
    )
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[64, 64])]),
        critic=SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[64, 64])]),
    )
    module = PPO(spec=data.spec, networks=networks, capture=arguments.capture)  # with its defaults
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
