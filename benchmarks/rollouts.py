"""Rollouts of a random policy in CartPole-v1, one process, statistics on: plain, with event logs, with trajectories.

Prints one line of JSON with the environment steps per second, files included, and the peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from maze_pl import rollout
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.trajectory_files import TrajectoryFiles
from maze_pl.events import EventLogFiles
from maze_pl.runs.rollout import Trajectory


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", nargs="*", choices=["events", "states", "spaces"], default=[])
    parser.add_argument("--episodes", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rollout(lambda: make_gym_maze_env("CartPole-v1"), "random", 4)
    with tempfile.TemporaryDirectory() as folder:
        events, files = EventLogFiles(f"{folder}/event_logs"), TrajectoryFiles(f"{folder}/trajectories", "episodes")

        def write(trajectory: Trajectory) -> None:
            for rows in trajectory.events:
                events.append(*rows)
            for record in (trajectory.states, trajectory.spaces):
                if record is not None:
                    files.write(record)
            trajectory.events, trajectory.states, trajectory.spaces = [], None, None

        started = time.perf_counter()
        played = rollout(
            lambda: make_gym_maze_env("CartPole-v1"),
            "random",
            arguments.episodes,
            arguments.seed,
            record=arguments.record,
            max_steps=200,
            receive=write,
        )
        seconds = time.perf_counter() - started
    speed = sum(trajectory.summary.env_steps for trajectory in played) / seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"env_steps_per_second": speed, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
