"""Env steps per second of environments of EnvPool: the bare pool, and as data modules step it, with statistics.

Prints one line of JSON for each environment: rates in processor time of one thread, medians of interleaved rounds, and
the time of our step relative to the bare one. Where gymnasium has the same environment, the rate of its `SyncVectorEnv`
is there, too. Requires the extra envpool.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import envpool
import gymnasium
import numpy as np
from array_step import seconds

from maze_pl.envs import ArrayVectorEnv, make_envpool_env

PIXELS = {"stack_num": 4, "frame_skip": 4}
ENVS: dict[str, dict[str, Any]] = {"CartPole-v1": {}, "Acrobot-v1": {}, "HalfCheetah-v5": {}, "Pong-v5": PIXELS}


def bare(name: str, options: dict[str, Any], actions: np.ndarray) -> Callable[[], None]:
    """Steps of the pool."""
    pool = envpool.make_gymnasium(name, num_envs=actions.shape[1], num_threads=1, **options)
    pool.reset()

    def run() -> None:
        for row in actions:
            pool.step(row)

    return run


def with_statistics(name: str, options: dict[str, Any], actions: np.ndarray) -> Callable[[], None]:
    """Steps of the vector environment of data modules."""
    make = partial(make_envpool_env, name, num_threads=1, **options)
    vector = ArrayVectorEnv(make, actions.shape[1])
    vector.reset()
    staged = vector.staging.action[0]["action"]

    def run() -> None:
        for row in actions:
            staged[...] = row
            vector.step()
        vector.drain_summaries()

    return run


def by_gymnasium(name: str, actions: np.ndarray) -> Callable[[], None]:
    """Steps of gymnasium's own environments, one after the other."""
    vector = gymnasium.make_vec(name, num_envs=actions.shape[1], vectorization_mode="sync")
    vector.reset(seed=0)

    def run() -> None:
        for row in actions:
            vector.step(row)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(ENVS))
    parser.add_argument("--n_envs", type=int, default=64)
    parser.add_argument("--n_steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in options.names:
        settings = ENVS.get(name, {})
        space = envpool.make_spec(name, **settings).gymnasium_action_space
        space.seed(0)
        actions = np.array([[space.sample() for _ in range(options.n_envs)] for _ in range(options.n_steps)])
        runs = {"bare": bare(name, settings, actions), "maze_pl": with_statistics(name, settings, actions)}
        if name in gymnasium.registry:
            runs["gymnasium"] = by_gymnasium(name, actions)
        times: dict[str, list[float]] = {kind: [] for kind in runs}
        for run in runs.values():
            run()  # the first episodes all begin together
        for _ in range(options.rounds):
            for kind, run in runs.items():
                times[kind].append(seconds(run))
        rates = {
            kind: round(actions.shape[0] * actions.shape[1] / statistics.median(own)) for kind, own in times.items()
        }
        ratio = statistics.median(ours / theirs for ours, theirs in zip(times["maze_pl"], times["bare"], strict=True))
        print(
            json.dumps({"env": name, "n_envs": options.n_envs, **rates, "maze_pl to bare": round(ratio, 2)}), flush=True
        )


if __name__ == "__main__":
    main()
