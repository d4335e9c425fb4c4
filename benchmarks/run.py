"""Runs the workloads of ours and of a peer in turn and prints medians and ratios.

The machine's speed changes from minute to minute: only ratios of runs that were made in turn mean anything.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
WORKLOADS = {
    "W1 PPO CartPole-v1, 8 x 100": ["--algorithm", "ppo"],
    "W2 A2C CartPole-v1, 8 x 100": ["--algorithm", "a2c"],
}


def measure(script: str, arguments: list[str], seed: int) -> float:
    """Environment steps per second of one run in a process of its own."""
    command = [sys.executable, "-W", "ignore", str(FOLDER / script), *arguments, "--seed", str(seed)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output.strip().splitlines()[-1])["env_steps_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    repetitions = parser.parse_args().repetitions
    print(f"{'workload':<32}{'maze_pl':>12}{'SB3':>12}{'ratio':>8}   (env steps per second, medians, one thread)")
    for name, arguments in WORKLOADS.items():
        ours, theirs = [], []
        for seed in range(repetitions):
            ours.append(measure("ppo_cartpole.py", arguments, seed))
            theirs.append(measure("ppo_cartpole_sb3.py", arguments, seed))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        print(f"{name:<32}{statistics.median(ours):>12,.0f}{statistics.median(theirs):>12,.0f}{ratio:>7.2f}x")


if __name__ == "__main__":
    main()
