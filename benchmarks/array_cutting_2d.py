"""PPO on the masked, structured cutting-2D environment in arrays, or one environment after the other.

Both through the public API with statistics on. Prints one line of JSON with the environment steps per second, from the
second rollout to the end, both of the clock and of processor time, and the peak memory.
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
from array_cartpole import Stopwatch
from maze_pl_cutting_2d import DEMAND
from pytorch_lightning.loggers import CSVLogger

from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs.cutting_2d import StructuredCutting2DArrayEnvironment, masked_struct_env_factory
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)

FORMS = {"arrays": StructuredCutting2DArrayEnvironment, "sequential": masked_struct_env_factory}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--form", choices=FORMS, default="arrays")
    parser.add_argument("--n_envs", type=int, default=256)
    parser.add_argument("--n_rollout_steps", type=int, default=64)
    parser.add_argument("--minibatches", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(options.seed, verbose=False)
    env_steps = options.n_envs * options.n_rollout_steps
    data = RolloutDataModule(
        partial(FORMS[options.form], 50, (4, 3), DEMAND),
        wrappers=[partial(TimeLimitWrapper, max_episode_steps=180)],
        n_envs=options.n_envs,
        n_rollout_steps=options.n_rollout_steps,
        epoch_length=options.rollouts,
        evaluators={},
        seed=options.seed,
    )
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[64, 64])]),
        critic=SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[64, 64])]),
    )
    module = PPO(spec=data.spec, networks=networks, batch_size=env_steps // options.minibatches)
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            devices=1,
            logger=CSVLogger(folder),
            callbacks=[stopwatch],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, data)
        seconds = time.perf_counter() - stopwatch.wall
        processor_seconds = time.process_time() - stopwatch.processor
    measured = (options.rollouts - 1) * env_steps
    figures = {
        "env_steps_per_second": measured / seconds,
        "env_steps_per_processor_second": measured / processor_seconds,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
