"""Time of one decision in deployment: CartPole-v1, networks of 64 x 64, most likely actions, one thread, interleaved.

Prints one line of JSON, in microseconds: `act` of the agent alone, the step of environment and statistics around a
simulation that does nothing ("wrappers"), and `AgentDeployment.act`, without and with the wrappers of a usual run. The
quotients are what a deployment takes without its wrappers, over `act`: at most 1.5 is the aim.
"""

from __future__ import annotations

import json
import os
import statistics
import time

os.environ["OMP_NUM_THREADS"] = "1"

from functools import partial

import numpy as np
import torch

from maze_pl import AgentDeployment
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, ObservationStackWrapper, TimeLimitWrapper
from maze_pl.modules import PPO

CHUNK = 1_000
ROUNDS = 15
STACKS = {
    "statistics only": [],
    "normalised, stacked, limited": [
        partial(ObservationNormalizationWrapper, default_statistics={"mean": np.zeros(1), "std": np.ones(1)}),
        partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 3}]),
        partial(TimeLimitWrapper, max_episode_steps=10**9),
    ],
}


def contenders(wrappers, states):
    env = make_wrapped(partial(GymMazeEnv, "CartPole-v1"), wrappers)
    agent = PPO(spec=Spec.of(env)).eval()
    observation, _ = env.reset(seed=0)
    env.core_env.step = lambda maze_action: (states[0], 1.0, False, False, {})
    deployment = AgentDeployment(agent, partial(GymMazeEnv, "CartPole-v1"), wrappers)

    def act():
        for _ in states:
            agent.act(observation)

    def step():
        for _ in states:
            env.step({"action": 0})

    def deploy():
        deployment.act(states[0])
        for state in states:
            deployment.act(state, 1.0)
        deployment.reset()

    return {"act": act, "wrappers": step, "AgentDeployment": deploy}


def main() -> None:
    torch.set_num_threads(1)
    states = list(np.random.default_rng(0).normal(size=(CHUNK, 4)).astype(np.float32))
    runs = {}
    for name, wrappers in STACKS.items():
        runs |= {f"{what}, {name}": run for what, run in contenders(wrappers, states).items()}
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - began) / CHUNK * 1e6)
    found = {name: statistics.median(values) for name, values in times.items()}
    for name in STACKS:
        rest = found[f"AgentDeployment, {name}"] - found[f"wrappers, {name}"]
        found[f"quotient, {name}"] = rest / found[f"act, {name}"]
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))


if __name__ == "__main__":
    main()
