"""Rollouts take little more memory than what they hold."""

from __future__ import annotations

import gc
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from examples.catch.catch_env import CatchEnv
from maze_pl.collect.collector import Collector
from maze_pl.config.factories import Factory
from maze_pl.config.search_path import read, shipped_folder
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayVectorEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv

N_ENVS, N_STEPS = 8, 128
RAW = N_ENVS * N_STEPS * 4 * 84 * 84
NOT_FOR_ROLLOUTS = (type, ModuleType, FunctionType, BuiltinFunctionType, Space)


def n_bytes(*roots: Any) -> int:
    """Bytes of all arrays and tensors that objects hold, each memory once, but for bounds of spaces."""
    seen, memory = {id(root): root for root in roots}, dict[int, int]()
    waiting = list(roots)
    while waiting:
        item = waiting.pop()
        if isinstance(item, np.ndarray):
            if item.base is None:
                memory[item.__array_interface__["data"][0]] = item.nbytes
        elif isinstance(item, Tensor):
            storage = item.untyped_storage()
            memory.setdefault(storage.data_ptr(), storage.nbytes())
        children = [] if isinstance(item, NOT_FOR_ROLLOUTS) else gc.get_referents(item)
        if isinstance(item, np.ndarray) and item.base is not None:
            children.append(item.base)
        for child in children:
            if id(child) not in seen:
                seen[id(child)] = child
                waiting.append(child)
    return sum(memory.values())


def test_shared_memory_is_counted_once() -> None:
    array = np.zeros((10, 3), np.float32)
    assert n_bytes({"whole": [array], "part": array[2:4], "tensor": torch.from_numpy(array)}) == 120
    assert n_bytes([array[1:]], torch.zeros(5)) == 140


def test_a_rollout_of_images_and_all_that_collects_it_take_a_fifth_more_than_the_images_at_most() -> None:
    nodes = read(shipped_folder() / "wrappers" / "pixel_obs.yaml")
    wrappers = [Factory(node["class_path"], node["init_args"]) for node in nodes]
    vector = SequentialVectorEnv([partial(make_wrapped, partial(CatchEnv, size=112), wrappers)] * N_ENVS)
    collector = Collector(vector, N_STEPS, torch.Generator().manual_seed(0))
    policy = RandomPolicy({key: step.action_space for key, step in collector.spec.steps.items()})
    for _ in range(2):
        rollout = collector.collect(policy)
        (images,) = rollout.segments[0].observation.values()
        assert (images.dtype, tuple(images.shape)) == (torch.uint8, (N_STEPS, N_ENVS, 4, 84, 84))
        assert RAW < n_bytes(collector, rollout) <= 1.2 * RAW
        assert n_bytes(rollout) <= 1.02 * RAW


def test_rollout_of_thousands_of_episodes_and_all_that_collects_it_take_a_tenth_more_than_the_rollout() -> None:
    vector = ArrayVectorEnv(CartPoleArrayEnv, 8192)
    collector = Collector(vector, 64, torch.Generator().manual_seed(0))
    policy = RandomPolicy({key: step.action_space for key, step in collector.spec.steps.items()})
    for _ in range(3):
        rollout = collector.collect(policy)
        assert len(rollout.summaries) > 8192
        assert n_bytes(collector, rollout) <= 1.1 * n_bytes(rollout)
