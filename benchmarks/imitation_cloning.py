"""The work of `maze_pl_cloning.py` in imitation, which needs a separate virtual environment with an older gymnasium."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time

os.environ["OMP_NUM_THREADS"] = "1"

import gymnasium
import numpy as np
import torch
from imitation.algorithms.bc import BC
from imitation.data.types import Transitions
from imitation.util.logger import configure
from stable_baselines3.common.policies import ActorCriticPolicy

N_EPOCHS, BATCH_SIZE = 4, 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    env = gymnasium.make("CartPole-v1")
    logger = configure(format_strs=["csv"])
    began = time.process_time()
    with np.load(f"{arguments.folder}/demonstrations.npz") as arrays:
        observations, actions = arrays["observations"], arrays["actions"]
    n_samples = len(observations)
    none = np.array([{}] * n_samples)
    demonstrations = Transitions(observations, actions, none, next_obs=observations, dones=np.zeros(n_samples, bool))
    spaces = env.observation_space, env.action_space
    learner = BC(
        observation_space=spaces[0],
        action_space=spaces[1],
        rng=np.random.default_rng(arguments.seed),
        policy=ActorCriticPolicy(*spaces, lambda _: 1e-3, net_arch=[64, 64]),
        demonstrations=demonstrations,
        batch_size=BATCH_SIZE,
        optimizer_kwargs={"lr": 1e-3},
        ent_weight=0.0,
        device="cpu",
        custom_logger=logger,
    )
    learner.train(n_epochs=N_EPOCHS, progress_bar=False)
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"samples_per_second": N_EPOCHS * n_samples / seconds, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
