"""Evolution strategies on CartPole-v1 (W5): 10 rollouts per update, through the public API with statistics on.

With `--arrays --n_rollouts 1024`, whole populations play at the same time in environments in arrays.

Prints one line of JSON with the environment steps per second, from the end of the first update to that of the last one
(the first one creates the noise table), and the peak memory of the training process. Only training episodes are
played.
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
from pytorch_lightning.loggers import CSVLogger
from torch import nn

from maze_pl.collect.engines import InProcessEngine, ProcessEngine
from maze_pl.datamodules import PopulationDataModule
from maze_pl.envs import CartPoleArrayEnv, make_gym_maze_env
from maze_pl.modules import ES
from maze_pl.perception import CustomModelComposer, FlattenConcatPolicyNet, ProbabilisticPolicyComposer


class Stopwatch(pl.Callback):
    """Measures time and env steps after the first update."""

    began, env_steps = 0.0, 0

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: ES, *_: object) -> None:
        if not self.began:
            self.began, self.env_steps = time.perf_counter(), pl_module.env_steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--n_rollouts", type=int, default=10)
    parser.add_argument("--arrays", action="store_true", help="environments in arrays")
    parser.add_argument("--n_workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(arguments.seed, verbose=False)
    data = PopulationDataModule(
        CartPoleArrayEnv if arguments.arrays else partial(make_gym_maze_env, "CartPole-v1"),
        n_rollouts_per_update=arguments.n_rollouts,
        epoch_length=min(10, arguments.updates),
        evaluators={},
        engine=ProcessEngine(arguments.n_workers) if arguments.n_workers else InProcessEngine(),
        seed=arguments.seed,
    )
    net = partial(FlattenConcatPolicyNet, non_lin=nn.Tanh, hidden_units=[64, 64])
    module = ES(networks=CustomModelComposer(ProbabilisticPolicyComposer([net])), spec=data.spec)
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=arguments.updates // data.epoch_length,
            accelerator="cpu",
            devices=1,
            logger=CSVLogger(folder),
            callbacks=[stopwatch],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, data)
        seconds = time.perf_counter() - stopwatch.began
    speed = (module.env_steps - stopwatch.env_steps) / seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"env_steps_per_second": speed, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
