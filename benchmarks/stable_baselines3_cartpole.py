"""The work of `maze_pl_cartpole.py` in stable-baselines3."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=["ppo", "a2c"], default="ppo")
    parser.add_argument("--env_steps", type=int, default=200_000)
    parser.add_argument("--n_rollout_steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    env = make_vec_env("CartPole-v1", n_envs=8, seed=arguments.seed)
    common = {
        "n_steps": arguments.n_rollout_steps,
        "gamma": 0.98,
        "gae_lambda": 0.95,
        "ent_coef": 2.5e-4,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "seed": arguments.seed,
        "device": "cpu",
        "policy_kwargs": {"net_arch": [64, 64]},
    }
    if arguments.algorithm == "ppo":
        model = PPO("MlpPolicy", env, learning_rate=2.5e-4, batch_size=100, n_epochs=4, clip_range=0.2, **common)
    else:
        model = A2C("MlpPolicy", env, learning_rate=5e-4, use_rms_prop=False, **common)
    started = time.perf_counter()
    model.learn(arguments.env_steps, log_interval=25)
    seconds = time.perf_counter() - started
    speed = model.num_timesteps / seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"env_steps_per_second": speed, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
