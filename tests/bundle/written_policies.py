"""Policies of random weights, in torch and as bundles that contain their wrappers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from maze_pl.agents import TorchPolicy
from maze_pl.bundle.bundle_files import bundle_bytes
from maze_pl.bundle.traced_policy import traced
from maze_pl.core.spec import Spec
from maze_pl.distributions.distribution_mapper import distribution_mappers
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import load_shared_states, make_wrapped, wrapper_stack
from maze_pl.envs.wrappers import DiscretizeActionsWrapper, ObservationNormalizationWrapper, ObservationStackWrapper
from maze_pl.perception import FlattenConcatPolicyNet
from tests.deployment.replaying import estimated

PENDULUM = partial(GymMazeEnv, "Pendulum-v1")
NORMALIZED = partial(ObservationNormalizationWrapper, default_strategy_config={"axis": 0})
DISCRETE = partial(DiscretizeActionsWrapper, discretization_config={"action": {"num_bins": 7}})
STACKED = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 3}])


class Written:
    """A policy of random weights, in torch and as a bundle with its wrappers."""

    def __init__(self, path: Path, make_env: Callable[[], Any], wrappers: Sequence[Any]) -> None:
        self.path = path
        self.statistics = estimated(make_env, wrappers)
        env = make_wrapped(make_env, wrappers)
        load_shared_states(wrapper_stack(env), self.statistics, freeze=True)
        spec = Spec.of(env)
        torch.manual_seed(0)
        (mapper,) = distribution_mappers(spec).values()
        network = FlattenConcatPolicyNet(
            spec.steps[0].observation_shapes, dict(mapper.logits_shapes), torch.nn.Tanh, [8]
        )
        self.policy = TorchPolicy({0: network}, spec)
        for parameter in self.policy.parameters():
            torch.nn.init.normal_(parameter)
        parts = traced(self.policy.eval(), env)
        path.write_bytes(bundle_bytes({**parts.described(), "parity": {}}, parts.members))
        self.env = env
        self.parts = parts
