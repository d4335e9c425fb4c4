"""Vectors of fuses in each autoreset mode, the same one by one, and what is collected from either."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from maze_pl.collect.collector import Collector
from maze_pl.envs import GymMazeEnv, GymVectorArrayEnv, SequentialVectorEnv
from maze_pl.envs.vector import VectorEnv
from maze_pl.envs.wrappers import LogStatsWrapper
from tests.envs.arrays.fuses import Fuse, FusePolicy, FuseVector

MODES = list(AutoresetMode)
N = 4


def fuses(mode: Any, **options: Any) -> Callable[[], GymVectorArrayEnv]:
    return lambda: GymVectorArrayEnv(lambda n: FuseVector(n, mode, **options))


def singles(**options: Any) -> SequentialVectorEnv:
    def make(number: int) -> LogStatsWrapper:
        return LogStatsWrapper.wrap(GymMazeEnv(Fuse(number, **options)))

    return SequentialVectorEnv([partial(make, number) for number in range(N)], seed=5)


def in_sync(mode: AutoresetMode) -> GymVectorArrayEnv:
    def make(n: int) -> Any:
        return gymnasium.vector.SyncVectorEnv([partial(Fuse, uses_seed=True)] * n, autoreset_mode=mode, copy=False)

    return GymVectorArrayEnv(make)


Streams = tuple[list[dict[str, torch.Tensor]], list[list[torch.Tensor]], list[Any]]


def streams(vector: VectorEnv, n_rollouts: int, n_steps: int = 9) -> Streams:
    """Acts of each environment in order, final observations of each environment, and summaries."""
    collector = Collector(vector, n_steps, torch.Generator())
    acts: list[list[dict[str, torch.Tensor]]] = [[] for _ in range(N)]
    finals: list[list[torch.Tensor]] = [[] for _ in range(N)]
    summaries = []
    for _ in range(n_rollouts):
        rollout = collector.collect(FusePolicy())  # type: ignore[arg-type]
        segment = rollout.segments[0]
        fields = {**segment.observation, **segment.action, "reward": segment.reward, "is_first": segment.is_first}
        fields |= {name: getattr(rollout.rows, name) for name in ("terminated", "truncated", "env_steps")}
        for n in range(N):
            filled = rollout.rows.filled[:, n]
            acts[n].append({name: tensor[filled, n].clone() for name, tensor in fields.items()})
            final = rollout.finals[0]
            rows = [
                int(place) for place in np.flatnonzero(final.env == n) if rollout.rows.truncated[final.row[place], n]
            ]
            finals[n] += [final.observation["level"][place].clone() for place in rows]
        summaries += list(rollout.summaries)
    joined = [{name: torch.cat([part[name] for part in parts]) for name in parts[0]} for parts in acts]
    return joined, finals, summaries
