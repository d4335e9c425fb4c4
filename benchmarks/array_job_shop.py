"""The job shop in arrays, or one environment after the other: steps of random masked actions, and training by PPO.

    python benchmarks/array_job_shop.py --form sequential --n_envs 8
    python benchmarks/array_job_shop.py --form arrays --n_envs 256 --problem flexible
    python benchmarks/array_job_shop.py --form arrays --n_envs 64 --train

Both forms run through the vector environments of data modules, with checks and statistics. Training has the options and
networks of `configs/ppo_job_shop.yaml`, and rollouts of 3,200 env steps, however many environments there are. Prints
one line of JSON with the environment steps per second, of the clock and of processor time.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytorch_lightning as pl
import torch
import yaml
from array_cartpole import Stopwatch
from pytorch_lightning.loggers import CSVLogger

from maze_pl.config.factories import Factory
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import ArrayVectorEnv, SequentialVectorEnv
from maze_pl.envs.job_shop import (
    JobShopArrayEnvironment,
    LowerBoundRewardAggregator,
    StructuredJobShopArrayEnvironment,
    job_shop_factory,
    structured_job_shop_factory,
)
from maze_pl.modules import PPO

NETWORKS = Path(__file__).resolve().parents[1] / "configs" / "model" / "job_shop.yaml"
CLASSIC = {"instances": ["random(10-15x10-15)"], "max_jobs": 30}
FLEXIBLE = {"instances": ["random(10x5, alternatives=3)"]}
FORMS: dict[tuple[str, str], Any] = {
    ("classic", "sequential"): partial(job_shop_factory, **CLASSIC),
    ("classic", "arrays"): partial(JobShopArrayEnvironment, **CLASSIC),
    ("flexible", "sequential"): partial(structured_job_shop_factory, **FLEXIBLE),
    ("flexible", "arrays"): partial(StructuredJobShopArrayEnvironment, **FLEXIBLE),
}
STEPS_BETWEEN_SUMMARIES = 100
ENV_STEPS = 3_200
"""Env steps of a rollout."""


def act(vector: Any, random: np.random.Generator) -> None:
    """Perform a random act that masks allow in each environment."""
    staging = vector.staging
    for place, (key, step) in enumerate(vector.spec.steps.items()):
        envs = np.flatnonzero(staging.next_key == place)
        for head, mask in step.masks.items():
            allowed = staging.observation[key][mask][envs]
            staging.action[key][head][envs] = (allowed * (1.0 - random.random(allowed.shape))).argmax(axis=1)
    vector.step()


def stepping(make: Any, options: argparse.Namespace) -> tuple[int, float, float]:
    """Step random actions; return env steps, seconds and processor seconds, choices of actions included."""
    if options.form == "arrays":
        vector: Any = ArrayVectorEnv(make, options.n_envs)
    else:
        vector = SequentialVectorEnv([make] * options.n_envs)
    vector.reset()
    random = np.random.default_rng(options.seed)
    n_keys = len(vector.spec.steps)
    n_acts = max(options.env_steps // options.n_envs, STEPS_BETWEEN_SUMMARIES) * n_keys
    for _ in range(n_acts // 4):
        act(vector, random)  # the first episodes all begin together
    wall = time.perf_counter()
    processor = time.process_time()
    for step in range(n_acts):
        act(vector, random)
        if step % STEPS_BETWEEN_SUMMARIES == 0:
            vector.drain_summaries()
    return n_acts // n_keys * options.n_envs, time.perf_counter() - wall, time.process_time() - processor


def training(make: Any, options: argparse.Namespace) -> tuple[int, float, float]:
    """Train; return env steps, seconds and processor seconds from the second rollout on."""
    torch.set_num_threads(1)
    pl.seed_everything(options.seed, verbose=False)
    node = yaml.safe_load(NETWORKS.read_text(encoding="utf-8"))
    data = RolloutDataModule(
        lambda: make(reward_aggregator=LowerBoundRewardAggregator(relative=True)),
        n_envs=options.n_envs,
        n_rollout_steps=ENV_STEPS // options.n_envs,
        epoch_length=options.rollouts,
        evaluators={},
        seed=options.seed,
    )
    module = PPO(
        spec=data.spec,
        networks=Factory(node["class_path"], node["init_args"])(),
        lr=1e-3,
        gamma=1.0,
        gae_lambda=0.98,
        entropy_coef=1e-3,
        batch_size=800,
        n_optimization_epochs=3,
    )
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
    return data.n_envs * data.n_rollout_steps * (options.rollouts - 1), seconds, processor_seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", choices=("classic", "flexible"), default="classic")
    parser.add_argument("--form", choices=("arrays", "sequential"), default="arrays")
    parser.add_argument("--n_envs", type=int, default=256)
    parser.add_argument("--env_steps", type=int, default=50_000, help="env steps without training")
    parser.add_argument("--train", action="store_true", help="train by PPO; for the classic problem")
    parser.add_argument("--rollouts", type=int, default=6, help="rollouts of training; the first one is not measured")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.train and options.problem != "classic":
        parser.error("training has the networks of the classic problem; leave --problem out")
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    measure = training if options.train else stepping
    env_steps, seconds, processor_seconds = measure(FORMS[options.problem, options.form], options)
    rates = {"sps": env_steps / seconds, "sps_processor": env_steps / processor_seconds}
    print(json.dumps({"form": options.form, "n_envs": options.n_envs, **rates}))


if __name__ == "__main__":
    main()
