"""Time of a step of CartPole in arrays: bare, and as data modules take it, with checks and statistics.

Prints one line of JSON: by number of environments, the ratio of both, in processor time; medians of interleaved rounds.
Episodes that end and start are included in both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from maze_pl.envs import ArrayVectorEnv, CartPoleArrayEnv

STEPS_BETWEEN_SUMMARIES = 64


def bare(actions: np.ndarray) -> Callable[[], None]:
    """Steps without statistics."""
    env = CartPoleArrayEnv()
    n_envs = actions.shape[1]
    env.allocate(n_envs)
    env.reset(np.arange(n_envs), np.arange(n_envs))
    begun = n_envs

    def run() -> None:
        nonlocal begun
        for row in actions:
            result = env.step({0: {"action": row}}, slice(None))
            env.array_events.drain()
            (ended,) = np.nonzero(result.terminated | result.truncated)
            if len(ended):
                env.reset(ended, begun + np.arange(len(ended)))
                begun += len(ended)

    return run


def with_statistics(actions: np.ndarray) -> Callable[[], None]:
    """Steps of the vector environment of data modules."""
    vector = ArrayVectorEnv(CartPoleArrayEnv, actions.shape[1])
    vector.reset()
    staged = vector.staging.action[0]["action"]

    def run() -> None:
        for step, row in enumerate(actions, start=1):
            staged[...] = row
            vector.step()
            if step % STEPS_BETWEEN_SUMMARIES == 0:
                vector.drain_summaries()

    return run


def seconds(run: Callable[[], None]) -> float:
    """Processor time of a call."""
    began = time.process_time()
    run()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_envs", type=int, nargs="+", default=[64, 1024, 8192])
    parser.add_argument("--n_steps", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    figures = {}
    for n_envs in options.n_envs:
        actions = np.random.default_rng(0).integers(0, 2, (options.n_steps, n_envs))
        runs = bare(actions), with_statistics(actions)
        for run in runs:
            run()  # the first episodes all begin together
        ratios = []
        for _ in range(options.rounds):
            without, with_them = (seconds(run) for run in runs)
            ratios.append(with_them / without)
        figures[f"{n_envs}"] = statistics.median(ratios)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
