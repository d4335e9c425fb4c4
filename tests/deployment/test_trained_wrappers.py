"""Normalisations that a deployment of a run or of a bundle must have, and others that it may not have."""

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
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from tests.deployment.written_runs import (
    HOLDING,
    NORMALIZED_POLE,
    NORMALIZING,
    PASSING,
    SIMULATION,
    Holding,
    Simulation,
    configured,
    write_bundle,
    write_run,
)

STATE = np.zeros(4, np.float32)
CART_POLE = partial(GymMazeEnv, "CartPole-v1")
LIMIT = configured("TimeLimitWrapper", max_episode_steps=100)
ESTIMATED = configured("ObservationNormalizationWrapper", default_strategy_config={"axis": 0})
STATED = configured("ObservationNormalizationWrapper", default_statistics={"mean": 1.0, "std": 2.0})
OTHER = configured("ObservationNormalizationWrapper", default_statistics={"mean": 5.0, "std": 2.0})
INNER = configured("ObservationNormalizationWrapper", default_statistics={"mean": 0.0, "std": 3.0})
NORMALIZATION = f"{ObservationNormalizationWrapper.__module__}.{ObservationNormalizationWrapper.__qualname__}"
LACKS = r"the deployment has no wrapper maze_pl.*ObservationNormalizationWrapper.*, with which the policy is trained"
ADDS = r"has the wrappers \['maze_pl.*ObservationNormalizationWrapper.*'\], whose statistics training does not have"
DIFFERS = r"the deployment has other configured statistics of the wrapper maze_pl.* than training"


def kinds_of(deployment: AgentDeployment) -> list[str]:
    """Names of the classes of its wrappers, from the outermost inwards; it is closed."""
    with deployment:
        assert deployment.act(STATE) in (0, 1)
        return [type(wrapper).__name__ for wrapper in wrappers_of(deployment.env)][1:]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs by what their normalisation is."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "estimated": write_run(folder / "estimated", [ESTIMATED]),
        "stated": write_run(folder / "stated", [STATED, HOLDING], env=SIMULATION),
        "missing": write_run(folder / "missing", []),
        "function": write_run(folder / "function", [NORMALIZING, STATED]),
        "inner": write_run(folder / "inner", [STATED], env=NORMALIZED_POLE),
        "twice": write_run(folder / "twice", [INNER], env=NORMALIZED_POLE),
    }


@pytest.mark.parametrize("normalization", [STATED, OTHER])
def test_nothing_of_the_training_is_made_that_is_left_out(runs: dict[str, Path], normalization: Any) -> None:
    Holding.made.clear()
    Simulation.is_open.clear()
    options: Any = {"env": CART_POLE(), "wrappers": [normalization], "trust": True}
    if normalization is OTHER:
        with pytest.raises(ConfigurationError, match=DIFFERS):
            AgentDeployment.from_run(runs["stated"], **options)
    else:
        assert kinds_of(AgentDeployment.from_run(runs["stated"], **options)) == ["ObservationNormalizationWrapper"]
    assert Holding.made == Simulation.is_open == []


def test_a_normalization_that_training_does_not_have_is_refused(runs: dict[str, Path]) -> None:
    for normalization in (ESTIMATED, STATED):
        with pytest.raises(ConfigurationError, match=ADDS):
            AgentDeployment.from_run(runs["missing"], wrappers=[normalization])
    with pytest.raises(ConfigurationError, match=ADDS):
        AgentDeployment.from_run(runs["estimated"], wrappers=[ESTIMATED, ESTIMATED])
    normalized = ObservationNormalizationWrapper(CART_POLE(), default_statistics={"mean": 1.0, "std": 2.0})
    for env in (normalized, lambda: normalized):
        with pytest.raises(ConfigurationError, match=ADDS):
            AgentDeployment.from_run(runs["stated"], env=env, wrappers=[STATED], trust=True)


def test_a_normalization_in_another_environment_belongs_to_its_conversions(runs: dict[str, Path]) -> None:
    env = ObservationNormalizationWrapper(CART_POLE(), default_statistics={"mean": 1.0, "std": 2.0})
    deployment = AgentDeployment.from_run(runs["missing"], env=env, wrappers=[LIMIT])
    assert kinds_of(deployment) == ["TimeLimitWrapper", "ObservationNormalizationWrapper"]


def test_a_normalization_in_the_environment_of_the_run_is_that_of_training(runs: dict[str, Path]) -> None:
    deployment = AgentDeployment.from_run(runs["inner"], wrappers=[STATED], trust=True)
    assert kinds_of(deployment) == ["ObservationNormalizationWrapper"] * 2
    with pytest.raises(ConfigurationError, match=DIFFERS):
        AgentDeployment.from_run(runs["inner"], wrappers=[OTHER], trust=True)


def test_a_missing_normalization_is_not_replaced_by_that_of_the_environment(runs: dict[str, Path]) -> None:
    for run in ("inner", "twice"):
        with pytest.raises(ConfigurationError, match=rf"{ADDS} \(there are \[.* \(1 of 2\)', .* \(2 of 2\)'\]\)"):
            AgentDeployment.from_run(runs[run], wrappers=[LIMIT], trust=True)
    deployment = AgentDeployment.from_run(runs["twice"], wrappers=[LIMIT, INNER], trust=True)
    assert kinds_of(deployment).count("ObservationNormalizationWrapper") == 2
    with pytest.raises(ConfigurationError, match=ADDS):
        AgentDeployment.from_run(runs["twice"], wrappers=[INNER, INNER], trust=True)


def test_functions_may_make_further_normalizations(runs: dict[str, Path]) -> None:
    deployment = AgentDeployment.from_run(runs["function"], wrappers=[NORMALIZING, STATED, LIMIT], trust=True)
    assert kinds_of(deployment) == ["TimeLimitWrapper"] + ["ObservationNormalizationWrapper"] * 2
    for wrappers, message in (([LIMIT], LACKS), ([OTHER], DIFFERS)):
        with pytest.raises(ConfigurationError, match=message):
            AgentDeployment.from_run(runs["function"], wrappers=wrappers, trust=True)


def test_a_bundle_of_raw_observations_gets_no_normalization_of_the_run(runs: dict[str, Path], tmp_path: Path) -> None:
    raw = write_bundle(tmp_path / "raw.bundle", {LIMIT["class_path"]: False})
    assert kinds_of(AgentDeployment.from_run(runs["estimated"], policy=raw, wrappers=[LIMIT])) == ["TimeLimitWrapper"]
    for wrappers in (None, [ESTIMATED], [LIMIT, ESTIMATED]):
        with pytest.raises(ConfigurationError, match=ADDS):
            AgentDeployment.from_run(runs["estimated"], policy=raw, wrappers=wrappers)


def test_a_bundle_needs_the_normalizations_that_it_leaves_to_its_caller(runs: dict[str, Path], tmp_path: Path) -> None:
    left = write_bundle(tmp_path / "left.bundle", {NORMALIZATION: False, PASSING["class_path"]: False})
    for run, right, wrong in (("estimated", ESTIMATED, STATED), ("stated", STATED, OTHER)):
        options: Any = {"policy": left, "trust": True}
        deployment = AgentDeployment.from_run(runs[run], wrappers=[right, PASSING], **options)
        assert kinds_of(deployment) == ["Passing", "ObservationNormalizationWrapper"]
        with pytest.raises(ConfigurationError, match=LACKS):
            AgentDeployment.from_run(runs[run], wrappers=[PASSING], **options)
        with pytest.raises(ConfigurationError, match=DIFFERS):
            AgentDeployment.from_run(runs[run], wrappers=[wrong, PASSING], **options)
