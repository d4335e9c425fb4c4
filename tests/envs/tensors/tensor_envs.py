"""Environments in tensors that several tests use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.tensor_forms import make_wrapped_tensors
from maze_pl.envs.tensors import CartPoleTensorEnv, TensorEnv
from maze_pl.envs.wrappers import (
    FlattenPreProcessor,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    PreProcessingWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    RunningObservationNormalizationWrapper,
    TransposePreProcessor,
    UnSqueezePreProcessor,
)

DEMAND = [(1, 2), (2, 2), (1, 1)]
ENVS: dict[str, Callable[[], TensorEnv]] = {
    "flat": partial(CartPoleTensorEnv, 30),
    "structured": partial(StructuredCutting2DTensorEnvironment, 8, (4, 3), DEMAND, max_episode_steps=12),
}

FIRST = {"observation": {"mean": [0.01, -0.2, 0.0, 0.1], "std": [0.1, 0.7, 0.05, 0.9]}}
OF_CUTTING = {
    "inventory": {"mean": 2.0, "std": 1.5},
    "inventory_size": {"mean": 3.0, "std": 2.0},
    "ordered_piece": {"mean": 1.2, "std": 0.4},
    "selected_piece": {"mean": [2.0, 1.0], "std": [1.0, 0.5]},
}
RANGE = "maze_pl.envs.wrappers.RangeZeroOneObservationNormalizationStrategy"
Wrappers = list[Callable[[Any], Any]]
WRAPPERS: dict[str, tuple[str, Wrappers]] = {
    "running": ("flat", [partial(RunningObservationNormalizationWrapper, statistics=FIRST, weight=20, window=90)]),
    "running without a window": (
        "flat",
        [partial(RunningObservationNormalizationWrapper, statistics=FIRST, weight=7, window=None, clip_range=(-2, 1))],
    ),
    "running in sub-steps": (
        "structured",
        [partial(RunningObservationNormalizationWrapper, statistics=OF_CUTTING, weight=20)],
    ),
    "shared rows": (
        "structured",
        [
            partial(
                RunningObservationNormalizationWrapper,
                statistics={**OF_CUTTING, "inventory": {"mean": [2.0, 1.0], "std": [1.5, 0.5]}},
                weight=20,
                window=100,
                shared_rows=["inventory"],
            )
        ],
    ),
    "normalised": (
        "flat",
        [
            partial(
                ObservationNormalizationWrapper,
                manual_config={
                    "observation": {"statistics": FIRST["observation"], "strategy_config": {"clip_range": (-1, 2)}}
                },
            )
        ],
    ),
    "ranges": (
        "flat",
        [
            partial(
                ObservationNormalizationWrapper,
                default_strategy=RANGE,
                default_statistics={"min": [-1.0, -1.0, -0.2, 0.5], "max": [1.0, 2.0, 0.2, 0.5]},
            )
        ],
    ),
    "returns": ("flat", [partial(ReturnNormalizationRewardWrapper, gamma=0.9)]),
    "returns of sub-steps": ("structured", [partial(ReturnNormalizationRewardWrapper, gamma=0.9)]),
    "rewards": (
        "structured",
        [partial(RewardScalingWrapper, scale=3.0), partial(RewardClippingWrapper, min_val=-2.0, max_val=-0.5)],
    ),
    "stacks": (
        "structured",
        [
            partial(
                ObservationStackWrapper,
                stack_config=[
                    {"observation": "inventory", "stack_steps": 3, "keep_original": True, "tag": "late", "delta": True},
                    {"observation": "ordered_piece", "stack_steps": 2},
                ],
            )
        ],
    ),
    "pre-processed": (
        "structured",
        [
            partial(
                PreProcessingWrapper,
                pre_processor_mapping=[
                    {
                        "observation": "inventory",
                        "class_path": FlattenPreProcessor,
                        "config": {"num_flatten_dims": 2},
                        "keep_original": True,
                    },
                    {"observation": "inventory", "class_path": TransposePreProcessor, "config": {"axes": [1, 0]}},
                    {"observation": "ordered_piece", "class_path": UnSqueezePreProcessor, "config": {"dim": 0}},
                ],
            )
        ],
    ),
    "all": (
        "flat",
        [
            partial(RunningObservationNormalizationWrapper, statistics=FIRST, weight=20, window=60),
            partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 3}]),
            partial(ReturnNormalizationRewardWrapper, gamma=0.9),
            partial(RewardScalingWrapper, scale=0.5),
        ],
    ),
}


def wrapped(name: str) -> TensorEnv:
    """Return an environment in the tensor forms of its wrappers, by a name in `WRAPPERS`."""
    inner, wrappers = WRAPPERS[name]
    env = make_wrapped_tensors(ENVS[inner], wrappers)
    assert env is not None
    return env


WRAPPED: dict[str, Callable[[], TensorEnv]] = {name: partial(wrapped, name) for name in WRAPPERS}
