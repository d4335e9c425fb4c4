"""Overhead of wrappers: CartPole-v1 without and with wrappers, interleaved.

Prints one line of JSON: by name, the median microseconds of processor time of an environment step, episodes that end
and start included.
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
from maze_pl.envs.wrappers import (
    NoDictSpacesWrapper,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    RandomResetWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    SortedSpacesWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
)

CHUNK = 2_000
ROUNDS = 31

STATISTICS = {"mean": np.zeros(4), "std": np.ones(4)}
NORMALIZED = (ObservationNormalizationWrapper, {"default_statistics": STATISTICS})
STACKED = (ObservationStackWrapper, {"stack_config": [{"observation": "observation", "stack_steps": 4}]})
LIMITED = (TimeLimitWrapper, {"max_episode_steps": 200})
RETURNS = (ReturnNormalizationRewardWrapper, {"gamma": 0.99})
CLIPPED = (RewardClippingWrapper, {"min_val": -1, "max_val": 1})
SCALED = (RewardScalingWrapper, {"scale": 0.1})
RESET = (RandomResetWrapper, {"min_skip_steps": 0, "max_skip_steps": 0})
SORTED = (SortedSpacesWrapper, {})
STACKS = {
    "five wrappers: time limit, normalised observations and returns, rewards scaled and clipped": [
        *(LIMITED, NORMALIZED, RETURNS, SCALED, CLIPPED)
    ],
    "five wrappers: random reset, time limit, sorted, normalised and stacked observations": [
        *(RESET, LIMITED, SORTED, NORMALIZED, STACKED)
    ],
    "one wrapper: time limit": [LIMITED],
    "one wrapper: scaled rewards": [SCALED],
    "one wrapper: normalised returns": [RETURNS],
    "one wrapper: normalised observations": [NORMALIZED],
    "one wrapper: stacked observations": [STACKED],
    "one wrapper: step skip of 1": [(StepSkipWrapper, {"n_steps": 1})],
}


def stepped(env, actions):
    env.reset(seed=0)

    def run():
        for action in actions:
            result = env.step(action)
            if result[2] or result[3]:
                env.reset()

    return run


def wrapped(stack):
    env = GymMazeEnv("CartPole-v1")
    for wrapper, options in stack:
        env = wrapper.wrap(env, **options)
    return env


def main() -> None:
    chosen = np.random.default_rng(0).integers(0, 2, CHUNK).tolist()
    actions = [{"action": action} for action in chosen]
    bare = gymnasium.make("CartPole-v1", disable_env_checker=True)
    runs = {"gymnasium, bare": stepped(bare, chosen), "GymMazeEnv without wrappers": stepped(wrapped([]), actions)}
    runs |= {name: stepped(wrapped(stack), actions) for name, stack in STACKS.items()}
    runs["for other libraries: NoDictSpacesWrapper"] = stepped(NoDictSpacesWrapper.wrap(wrapped([])), chosen)
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.process_time()
            run()
            times[name].append((time.process_time() - began) / CHUNK * 1e6)
    print(json.dumps({name: statistics.median(values) for name, values in times.items()}))


if __name__ == "__main__":
    main()
