"""Collectors that play several episodes from each start."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayVectorEnv, CartPoleArrayEnv, GymMazeEnv, SequentialVectorEnv
from maze_pl.envs.tensors import CartPoleTensorEnv
from maze_pl.modules import PPO


def _collector(form: str, n_envs: int = 6) -> tuple[Any, PPO]:
    spec = Spec.of(GymMazeEnv("CartPole-v1"))
    torch.manual_seed(0)
    module = PPO(spec=spec)
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"seed": 5, "first_env_index": 12, "n_same_starts": 3}
    if form == "tensors":
        vector = TensorVector(CartPoleTensorEnv(), n_envs, spec, torch.device("cpu"), 5, 12, 3)
        return TensorCollector(vector, 40, generator), module
    if form == "arrays":
        return Collector(ArrayVectorEnv(CartPoleArrayEnv, n_envs, **options), 40, generator, 3), module
    make = partial(GymMazeEnv, "CartPole-v1")
    return Collector(SequentialVectorEnv([make] * n_envs, **options), 40, generator, 3), module


@pytest.mark.parametrize("form", ["sequential", "arrays", "tensors"])
def test_groups_play_the_same_starts_which_differ_between_groups_and_rollouts(form: str) -> None:
    collector, module = _collector(form)
    firsts = []
    for _ in range(3):
        rollout = collector.collect(module.policy)
        assert rollout.n_same_starts == 3
        assert rollout.starting is not None
        assert rollout.starting.all()
        segment = rollout.segments[0]
        assert segment.is_first[0].all()
        number = segment.is_first.cumsum(0) - 1
        seen: dict[tuple[int, int], Any] = {}
        for t, env in segment.is_first.nonzero().tolist():
            start = segment.observation["observation"][t, env]
            known = seen.setdefault((env // 3, int(number[t, env])), start)
            assert torch.equal(start, known)
        starts = torch.stack(list(seen.values()))
        assert len(starts.unique(dim=0)) == len(starts)
        firsts.append(segment.observation["observation"][0, ::3].clone())
    assert len(torch.cat(firsts).unique(dim=0)) == 6


@pytest.mark.parametrize("form", ["sequential", "arrays", "tensors"])
def test_a_loaded_state_continues_with_the_same_starts(form: str) -> None:
    collector, module = _collector(form)
    collector.collect(module.policy)
    state = collector.state_dict()
    expected = collector.collect(module.policy).clone()
    other, _ = _collector(form)
    assert other.load_state_dict(state) == []
    found = other.collect(module.policy)
    assert torch.equal(found.segments[0].observation["observation"], expected.segments[0].observation["observation"])
    assert torch.equal(found.segments[0].action["action"], expected.segments[0].action["action"])
