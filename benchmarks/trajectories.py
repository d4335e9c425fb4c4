"""Loading recorded episodes, compared to reading the same bytes with NumPy, interleaved.

Prints one line of JSON: by name, median milliseconds of processor time of loading 1,000 episodes of 500 steps of
LunarLander, of reading the same bytes with `numpy.fromfile`, and the median of their ratio.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from maze_pl.core.spec import Spec
from maze_pl.datasets import InMemoryDataset
from maze_pl.envs import GymMazeEnv
from maze_pl.records.framing import append_record
from maze_pl.records.record_files import SpacesTrajectoryRecord

N_EPISODES = 1000
LENGTH = 500
ROUNDS = 7


def episodes() -> list[SpacesTrajectoryRecord]:
    """Records in the spaces of LunarLander; their content does not matter here."""
    env = GymMazeEnv("LunarLander-v3")
    spec, generator = Spec.of(env), np.random.default_rng(0)
    env.close()
    zeros = np.zeros(LENGTH, np.int64)
    return [
        SpacesTrajectoryRecord(
            f"episode {number}",
            spec,
            key_index=zeros,
            agent_id=zeros,
            env_time=np.arange(LENGTH),
            reward=generator.normal(size=LENGTH),
            actor_done=zeros != 0,
            observation={0: {"observation": generator.normal(size=(LENGTH, 8)).astype(np.float32)}},
            action={0: {"action": generator.integers(4, size=LENGTH)}},
            terminated=True,
            truncated=False,
            last_env_time=LENGTH,
            last_actor=None,
            last_observation={},
        )
        for number in range(N_EPISODES)
    ]


def milliseconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def read_apart(folder: Path) -> list[Any]:
    return [np.fromfile(path, np.uint8) for path in sorted(folder.iterdir())]


def read_together(folder: Path, sizes: list[int]) -> list[Any]:
    with next(folder.iterdir()).open("rb") as file:
        return [np.fromfile(file, np.uint8, size) for size in sizes]


def main() -> None:
    records = episodes()
    with tempfile.TemporaryDirectory() as apart, tempfile.TemporaryDirectory() as together:
        for number, record in enumerate(records):
            record.save(Path(apart) / f"{number:04}.spaces")
            append_record(Path(together) / "all.spaces", "spaces", record.to_bytes())
        sizes = [len(record.to_bytes()) for record in records]
        pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "a file each": (lambda: InMemoryDataset(apart).load(), lambda: read_apart(Path(apart))),
            "one file": (lambda: InMemoryDataset(together).load(), lambda: read_together(Path(together), sizes)),
        }
        rounds = [[list(map(milliseconds, pair)) for pair in pairs.values()] for _ in range(ROUNDS + 1)]
        results = {}
        for number, name in enumerate(pairs):
            times = [of_pairs[number] for of_pairs in rounds[1:]]  # the first round warms up
            ours = statistics.median(of_dataset for of_dataset, _ in times)
            numpy = statistics.median(of_numpy for _, of_numpy in times)
            ratio = statistics.median(of_dataset / of_numpy for of_dataset, of_numpy in times)
            results[name] = [round(ours, 1), round(numpy, 1), round(ratio, 2)]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
