"""Agents whose actions fill a box are played in other bounds with a warning."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl import AgentDeployment, distributions, rollout
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.perception import AutomaticModelComposer
from maze_pl.runs.bundle_policy import BundlePolicy
from tests.bundle.written_bundles import write_bundle

STATE = np.zeros(1, np.float32)
FILLING = ["SquashedGaussian", "Beta", "Deterministic"]
MESSAGE = (
    r"^action head 'valve' of sub-step 0: {} acts in Box\(0.0, 500.0, \(2,\), float32\), the bounds of its training, "
    r"and the environment has Box\(0.0, 10.0, \(2,\), float32\); actions are not scaled to these bounds, only clipped$"
)


class Tank(gymnasium.Env[Any, Any]):
    """Has valves with bounds, and a speed with the same bounds everywhere."""

    observation_space = spaces.Box(-1, 1, (1,))

    def __init__(self, high: float, dtype: Any = np.float32) -> None:
        speed = spaces.Box(-1, 1, (1,))
        self.action_space = spaces.Dict(speed=speed, valve=spaces.Box(0, high, (2,), dtype))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return STATE, {}

    def step(self, action: Any) -> Any:
        return STATE, 0.0, True, False, {}


def tank(high: float, dtype: Any = np.float32) -> GymMazeEnv:
    return GymMazeEnv(Tank(high, dtype))


def policy_for(high: float, distribution: str) -> Any:
    """An agent of the tank, whose heads have a distribution."""
    kind = getattr(distributions, f"{distribution}ProbabilityDistribution")
    config = [{"action_space": spaces.Box, "distribution": kind}]
    return AutomaticModelComposer([4], distribution_mapper_config=config).compose(Spec.of(tank(high))).policy


@pytest.mark.parametrize("distribution", FILLING)
def test_an_agent_that_fills_other_bounds_is_warned_of_once_for_each_head(distribution: str) -> None:
    policy = policy_for(500.0, distribution)
    with pytest.warns(UserWarning, match=MESSAGE.format("the policy")) as found:
        rollout(partial(tank, 10.0), policy)
    assert len(found) == 1
    with pytest.warns(UserWarning, match=MESSAGE.format("the policy")) as found:
        AgentDeployment(policy, partial(tank, 10.0)).close()
    assert len(found) == 1


def test_equal_bounds_and_distributions_without_bounds_cause_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rollout(partial(tank, 500.0), policy_for(500.0, "Beta"))
        rollout(partial(tank, 0.1, np.float64), policy_for(0.1, "Beta"))  # 0.1 as another type of floats
        rollout(partial(tank, 10.0), policy_for(500.0, "DiagonalGaussian"))


@pytest.mark.parametrize("distribution", [*FILLING, "DiagonalGaussian"])
def test_a_bundle_that_fills_other_bounds_is_warned_of(tmp_path: Path, distribution: str) -> None:
    high = 500.0
    step = Spec.of(tank(high)).to_dict()["steps"][0]
    head = {"distribution": f"maze_pl.former_module.{distribution}ProbabilityDistribution"}
    heads = {"valve": {**head, "parameters": "x", "size": 2, "n_uniforms": 1, "choices": []}}
    actions, observations = step["action_space"]["spaces"], step["observation_space"]["spaces"]
    bundle = BundlePolicy(write_bundle(tmp_path / "a.bundle"))
    bundle._policy.spec[0].update(actions=actions, observations=observations, heads=heads)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        bundle.require_fit(Spec.of(tank(10.0)))
    assert [str(warning.message).count("Box(0.0, 10.0") for warning in found] == [1] * (distribution in FILLING)
