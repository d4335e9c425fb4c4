"""Collectors of environments in this process, and environments whose agents come and go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from maze_pl.collect.collector import Collector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.vector.vector_env import VectorEnv
from tests.collect.scripted import Act, Choose, Episode, Observe, Script, ScriptedCoreEnv


def collector_of(factories: list[Any], n_rollout_steps: int = 10, **options: Any) -> Collector:
    return Collector(SequentialVectorEnv(factories, **options), n_rollout_steps, torch.Generator().manual_seed(0))


def random_policy(collector: Collector | VectorEnv) -> RandomPolicy:
    steps = collector.spec.steps.items()
    return RandomPolicy({key: step.action_space for key, step in steps}, {key: step.masks for key, step in steps})


class DynamicCoreEnv(ScriptedCoreEnv):
    """Agents come and go."""

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {0: -1}


def dynamic(acts: list[Act], max_agents: int) -> Collector:
    script = Script((1,), False, ((Episode(tuple(acts), False, (0, 0)),),))

    def make() -> MazeEnv:
        return MazeEnv(DynamicCoreEnv(script, 0), {0: Choose()}, {0: Observe()})

    spec = Spec.of(make(), max_agents={0: max_agents})
    return collector_of([make], 4, spec=spec)


def dynamic_envs(n_envs: int) -> list[Callable[[], MazeEnv]]:
    """Agents come and go, in each environment after another number of acts."""

    def make(n: int) -> MazeEnv:
        acts = [Act(0, n + i // 2, 1.0 + i, 0.0, i % (n + 1) == 0, i % 2 == 1) for i in range(8)]
        episodes = (Episode(tuple(acts), n % 2 == 0, (0, 50)),)
        script = Script((1,), False, (episodes,))
        return MazeEnv(DynamicCoreEnv(script, 0), {0: Choose()}, {0: Observe()})

    return [partial(make, n) for n in range(n_envs)]
