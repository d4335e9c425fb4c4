"""Ride hailing in arrays, or one environment after the other: random masked decisions, and training by PPO.

    python benchmarks/array_ride_hailing.py --form sequential --n_envs 16
    python benchmarks/array_ride_hailing.py --form arrays --n_envs 256 --problem central
    python benchmarks/array_ride_hailing.py --form arrays --n_envs 64 --train

Both forms run through the vector environments of data modules, with checks and statistics. Training has the options and
networks of `configs/ppo_ride_hailing.yaml`, and rollouts of 1,600 env steps, however many environments there are.
Prints one line of JSON with the environment steps per second, of the clock and of processor time.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytorch_lightning as pl
import torch
import yaml
from array_cartpole import Stopwatch
from array_job_shop import act
from pytorch_lightning.loggers import CSVLogger

from maze_pl.config.factories import Factory
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import ArrayVectorEnv, SequentialVectorEnv
from maze_pl.envs.ride_hailing import (
    CentralDispatchArrayEnvironment,
    RideHailingArrayEnvironment,
    central_dispatch_factory,
    ride_hailing_factory,
)
from maze_pl.envs.wrappers import RewardScalingWrapper
from maze_pl.modules import PPO

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
FORMS: dict[tuple[str, str], Any] = {
    ("vehicles", "sequential"): ride_hailing_factory,
    ("vehicles", "arrays"): RideHailingArrayEnvironment,
    ("central", "sequential"): central_dispatch_factory,
    ("central", "arrays"): CentralDispatchArrayEnvironment,
}
SLOTS = {"vehicles": {"vehicle": 16}, "central": None}
ACTS_BETWEEN_SUMMARIES = 100
ENV_STEPS = 1_600
"""Env steps of a rollout."""


def stepping(make: Any, options: argparse.Namespace) -> tuple[int, float, float]:
    """Play random decisions; return env steps, seconds and processor seconds, choices of actions included."""
    spec = Spec.of(make(), SLOTS[options.problem])
    if options.form == "arrays":
        vector: Any = ArrayVectorEnv(make, options.n_envs, spec=spec)
    else:
        vector = SequentialVectorEnv([make] * options.n_envs, spec=spec)
    vector.reset()
    random = np.random.default_rng(options.seed)
    n_acts = max(options.acts // options.n_envs, ACTS_BETWEEN_SUMMARIES)
    for _ in range(n_acts // 4):
        act(vector, random)  # the first episodes all begin together
    env_steps = 0
    wall = time.perf_counter()
    processor = time.process_time()
    for place in range(n_acts):
        act(vector, random)
        env_steps += int(vector.staging.env_steps.sum())
        if place % ACTS_BETWEEN_SUMMARIES == 0:
            vector.drain_summaries()
    return env_steps, time.perf_counter() - wall, time.process_time() - processor


def training(make: Any, options: argparse.Namespace) -> tuple[int, float, float]:
    """Train; return env steps, seconds and processor seconds from the second rollout on."""
    torch.set_num_threads(1)
    pl.seed_everything(options.seed, verbose=False)
    node = yaml.safe_load((CONFIGS / "model" / "ride_hailing.yaml").read_text(encoding="utf-8"))
    arguments = yaml.safe_load((CONFIGS / "ppo_ride_hailing.yaml").read_text(encoding="utf-8"))["model"]["init_args"]
    arguments["networks"] = Factory(node["class_path"], node["init_args"])()
    data = RolloutDataModule(
        make,
        wrappers=[lambda env: RewardScalingWrapper(env, scale=0.1)],
        max_agents=SLOTS[options.problem],
        n_envs=options.n_envs,
        n_rollout_steps=ENV_STEPS // options.n_envs,
        epoch_length=options.rollouts,
        evaluators={},
        seed=options.seed,
    )
    module = PPO(spec=data.spec, **arguments)
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
    parser.add_argument("--problem", choices=tuple(SLOTS), default="vehicles")
    parser.add_argument("--form", choices=("arrays", "sequential"), default="arrays")
    parser.add_argument("--n_envs", type=int, default=256)
    parser.add_argument("--acts", type=int, default=40_000, help="decisions without training")
    parser.add_argument("--train", action="store_true", help="train by PPO; for vehicles")
    parser.add_argument("--rollouts", type=int, default=5, help="rollouts of training; the first one is not measured")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.train and options.problem != "vehicles":
        parser.error("training has the networks of the vehicles; leave --problem out")
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    measure = training if options.train else stepping
    env_steps, seconds, processor_seconds = measure(FORMS[options.problem, options.form], options)
    rates = {"sps": env_steps / seconds, "sps_processor": env_steps / processor_seconds}
    print(json.dumps({"form": options.form, "problem": options.problem, "n_envs": options.n_envs, **rates}))


if __name__ == "__main__":
    main()
