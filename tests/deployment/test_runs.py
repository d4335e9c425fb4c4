"""Deployments of runs: other wrappers than those of training, and bundles in place of the run's policy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl import AgentDeployment
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, TimeLimitWrapper
from tests.deployment.written_runs import CART_POLE, PASSING, configured, write_bundle, write_run

STATES = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
NORMALIZED = configured("ObservationNormalizationWrapper", default_strategy_config={"axis": 0})
LIMIT = configured("TimeLimitWrapper", max_episode_steps=100)
NORMALIZATION = f"{ObservationNormalizationWrapper.__module__}.{ObservationNormalizationWrapper.__qualname__}"
LACKS = r"the deployment has no wrapper maze_pl.*ObservationNormalizationWrapper.*, with which the policy is trained"


def normalized_by(mean: float) -> dict[str, Any]:
    """Configuration of a normalisation whose statistics it states."""
    return configured("ObservationNormalizationWrapper", default_statistics={"mean": mean, "std": 2.0})


def decisions(deployment: AgentDeployment) -> list[Any]:
    with deployment:
        return [deployment.act(state, 1.0) for state in STATES]


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose configuration states the statistics of its normalisation."""
    return write_run(tmp_path_factory.mktemp("stated"), [normalized_by(1.0), LIMIT])


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a normalisation inside of a custom wrapper, and one around it."""
    return write_run(tmp_path_factory.mktemp("twice"), [NORMALIZED, PASSING, NORMALIZED])


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of this run, which contains the outer normalisation."""
    roles = {f"{NORMALIZATION} (1 of 2)": False, PASSING["class_path"]: False, f"{NORMALIZATION} (2 of 2)": True}
    return write_bundle(tmp_path / "agent.bundle", roles)


@pytest.mark.parametrize("env", [None, CART_POLE, "instance"])
def test_a_normalization_with_configured_statistics_may_not_be_missing(stated: Path, env: Any) -> None:
    replaced: dict[str, Any] = {} if env is None else {"env": env}
    if env == "instance":
        replaced = {"env": GymMazeEnv("CartPole-v1")}
    with pytest.raises(ConfigurationError, match=LACKS):
        AgentDeployment.from_run(stated, wrappers=[LIMIT], **replaced)


def test_a_normalization_with_other_configured_statistics_is_refused(stated: Path) -> None:
    for mean in (2.0, None):
        other = configured("ObservationNormalizationWrapper") if mean is None else normalized_by(mean)
        with pytest.raises(ConfigurationError, match=r"other configured statistics .* than training"):
            AgentDeployment.from_run(stated, wrappers=[other])


def test_a_normalization_with_the_same_configured_statistics_is_applied(stated: Path) -> None:
    expected = decisions(AgentDeployment.from_run(stated))
    assert decisions(AgentDeployment.from_run(stated, wrappers=[normalized_by(1.0)])) == expected
    with_it = partial(ObservationNormalizationWrapper, default_statistics={"mean": 1.0, "std": 2.0})
    env = with_it(GymMazeEnv("CartPole-v1"))
    assert decisions(AgentDeployment.from_run(stated, env=env, wrappers=[])) == expected
    with AgentDeployment.from_run(stated, wrappers=[LIMIT], policy="heuristic") as deployment:
        assert deployment.act(STATES[0]) in (0, 1), "a rule needs no normalisation"


def test_wrappers_of_a_bundle_are_taken_out_once(twice: Path, bundle: Path) -> None:
    deployment = AgentDeployment.from_run(twice, policy=bundle, trust=True)
    kinds = [type(wrapper).__name__ for wrapper in wrappers_of(deployment.env)]
    assert kinds == ["LogStatsWrapper", "Passing", "ObservationNormalizationWrapper"]
    wrappers = [NORMALIZED, PASSING, NORMALIZED]
    others = AgentDeployment.from_run(twice, policy=bundle, wrappers=wrappers, trust=True)
    assert decisions(deployment) == decisions(others)


def test_only_the_wrappers_that_a_bundle_contains_may_be_missing(twice: Path, bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=LACKS):
        AgentDeployment.from_run(twice, policy=bundle, wrappers=[LIMIT], trust=True)
    once = write_run(tmp_path, [NORMALIZED])
    whole = write_bundle(tmp_path / "whole.bundle", {NORMALIZATION: True})
    deployment = AgentDeployment.from_run(once, policy=whole, wrappers=[LIMIT])
    assert type(deployment.env.env) is TimeLimitWrapper
    assert decisions(deployment) == decisions(AgentDeployment.from_run(once, policy=whole))


def test_a_search_needs_further_environments_than_one_that_is_given(stated: Path) -> None:
    with pytest.raises(ValueError, match=r"search needs further environments: give env as a callable"):
        AgentDeployment.from_run(stated, env=GymMazeEnv("CartPole-v1"), search="best_of:4")
