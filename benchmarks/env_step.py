"""Time of one environment step: CartPole-v1 bare, with statistics, and in vectors, interleaved.

Prints one line of JSON: by name, the median microseconds of an environment step, episodes that end and start included.
"""

from __future__ import annotations

import json
import os
import statistics
import time

os.environ["OMP_NUM_THREADS"] = "1"

import gymnasium
import numpy as np

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.wrappers import LogStatsWrapper

CHUNK = 4_000
ROUNDS = 25


def bare():
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env.reset(seed=0)

    def run(actions):
        for action in actions:
            result = env.step(action)
            if result[2] or result[3]:
                env.reset()

    return run


def with_statistics():
    env = LogStatsWrapper.wrap(GymMazeEnv("CartPole-v1"))
    env.reset(seed=0)

    def run(actions):
        for action in actions:
            result = env.step({"action": action})
            if result[2] or result[3]:
                env.reset()
        env.drain_episode_summaries()

    return run


def gymnasium_vector():
    envs = gymnasium.make_vec("CartPole-v1", 8, vectorization_mode="sync")
    envs.reset(seed=0)

    def run(actions):
        for row in np.reshape(actions, (-1, 8)):
            envs.step(row)

    return run


def stepped(envs):
    envs.reset()
    staged = envs.staging.action[0]["action"]

    def run(actions):
        for row in np.reshape(actions[: len(actions) // envs.n_envs * envs.n_envs], (-1, envs.n_envs)):
            staged[:] = row
            envs.step()
        envs.drain_summaries()

    return run


def sequential():
    return stepped(SequentialVectorEnv([lambda: GymMazeEnv("CartPole-v1")] * 8))


def stable_baselines3_vector():
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env("CartPole-v1", n_envs=8, seed=0)
    envs.reset()

    def run(actions):
        for row in np.reshape(actions, (-1, 8)):
            envs.step(row)

    return run


MEASURED = {
    "gymnasium, bare": bare,
    "GymMazeEnv with log-stats": with_statistics,
    "gymnasium's vector of 8": gymnasium_vector,
    "stable-baselines3's vector of 8": stable_baselines3_vector,
    "SequentialVectorEnv of 8, with statistics": sequential,
}


def main() -> None:
    actions = np.random.default_rng(0).integers(0, 2, CHUNK).tolist()
    runs = {name: make() for name, make in MEASURED.items()}
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.perf_counter()
            run(actions)
            times[name].append((time.perf_counter() - began) / CHUNK * 1e6)
    print(json.dumps({name: statistics.median(values) for name, values in times.items()}))


if __name__ == "__main__":
    main()
