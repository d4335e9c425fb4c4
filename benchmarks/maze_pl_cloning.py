"""Behavioural cloning of 25,000 steps of CartPole-v1, loading included, through the public API with statistics on.

`--record FOLDER` writes the demonstrations, for maze_pl as files of space records and for other libraries as arrays.
Otherwise trains on them and prints one line of JSON with the samples per second and the peak memory.
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

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import nn

from maze_pl.datamodules import TrajectoryDataModule
from maze_pl.datasets import InMemoryDataset
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.trajectory_files import TrajectoryFiles
from maze_pl.modules import BC
from maze_pl.perception import CustomModelComposer, FlattenConcatPolicyNet, ProbabilisticPolicyComposer
from maze_pl.runs.rollout import rollout

N_STEPS, N_EPOCHS, BATCH_SIZE = 25_000, 4, 100


def record(folder: str) -> None:
    """Play episodes until there are enough steps."""
    writer, observations, actions, left = TrajectoryFiles(f"{folder}/records"), [], [], N_STEPS
    while left:
        env = make_gym_maze_env("CartPole-v1")
        (played,) = rollout(env, "heuristic", seed=left, max_steps=min(500, left))
        writer.write(played.spaces)
        observations.append(played.spaces.observation[0]["observation"])
        actions.append(played.spaces.action[0]["action"])
        left -= len(played.spaces)
    arrays = {"observations": np.concatenate(observations), "actions": np.concatenate(actions)}
    np.savez(f"{folder}/demonstrations.npz", **arrays)


def policy_net(obs_shapes, action_logits_shapes):
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, nn.Tanh, [64, 64])


def learn(folder: str, seed: int) -> dict[str, float]:
    """Load the records and clone."""
    pl.seed_everything(seed, verbose=False)
    began = time.process_time()
    dataset = InMemoryDataset(f"{folder}/records")
    data = TrajectoryDataModule(dataset, batch_size=BATCH_SIZE, validation_percentage=0, seed=seed)
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]))
    module = BC(networks=networks, spec=data.spec, lr=1e-3)
    with tempfile.TemporaryDirectory() as logs:
        trainer = pl.Trainer(
            max_epochs=N_EPOCHS,
            accelerator="cpu",
            devices=1,
            logger=CSVLogger(logs),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, data)
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"samples_per_second": module.env_steps / seconds, "peak_megabytes": memory}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    result = record(arguments.folder) if arguments.record else learn(arguments.folder, arguments.seed)
    print(json.dumps(result or {}))


if __name__ == "__main__":
    main()
