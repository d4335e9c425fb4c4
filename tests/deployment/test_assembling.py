"""Environments of deployments: statistics that are given, arrays, and what is closed if something is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl import AgentDeployment
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import GymMazeEnv, Wrapper
from maze_pl.envs.arrays.cartpole_array_env import CartPoleArrayEnv
from maze_pl.envs.wrappers import RunningObservationNormalizationWrapper, TimeLimitWrapper
from tests.deployment.written_runs import Simulation, configured, write_run

NORMALIZED = configured("ObservationNormalizationWrapper", default_strategy_config={"axis": 0})
LIMIT = partial(TimeLimitWrapper, max_episode_steps=3)


class Stepping(Wrapper):
    """A custom wrapper that cannot wait for a state from outside."""

    def step(self, action: Any) -> Any:
        return self.env.step(action)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"), [NORMALIZED])


def test_statistics_that_the_caller_gives_are_not_dropped(run: Path) -> None:
    for statistics in ({"misspelt": {}}, {f"{TimeLimitWrapper.__module__}.Misspelt": {"mean": 0.0}}):
        with pytest.raises(ValueError, match=r"there are statistics for wrappers \['.*isspelt'\], but the stack is"):
            AgentDeployment.from_run(run, wrappers=[LIMIT], policy="random", wrapper_statistics=statistics)
    with AgentDeployment.from_run(run, wrappers=[LIMIT], policy="random") as deployment:
        assert type(deployment.env.env) is TimeLimitWrapper, "those of the run are dropped"


@pytest.mark.parametrize("is_given", [False, True])
def test_an_environment_that_was_made_is_closed_if_something_is_refused(run: Path, is_given: bool) -> None:
    def refuse(env: Any) -> Any:
        raise RuntimeError("the wrapper cannot be made")

    Simulation.is_open.clear()
    env: Any = Simulation() if is_given else Simulation
    with pytest.raises(ConfigurationError, match=r"with which the policy is trained"):
        AgentDeployment.from_run(run, env=env, wrappers=[LIMIT])
    with pytest.raises(RuntimeError, match=r"the wrapper cannot be made"):
        AgentDeployment("random", env, [refuse])
    with pytest.raises(TypeError, match=r"step_in_parts"):
        AgentDeployment("random", env, [Stepping])
    with pytest.raises(ValueError, match=r"has no statistics of"):
        AgentDeployment("random", env, [NORMALIZED])
    seed: Any = 1.5
    with pytest.raises(TypeError):
        AgentDeployment("random", env, seed=seed)
    sample: Any = "no sample"
    with pytest.raises(AttributeError):
        AgentDeployment("random", env, training_observations=sample)
    assert not any(Simulation.is_open[1:]) and Simulation.is_open[:1] == [is_given]
    with AgentDeployment("random", env):
        assert Simulation.is_open[-1]
    assert not Simulation.is_open[-1]


def test_statistics_with_which_training_begins_are_not_those_of_a_trained_policy() -> None:
    wrapper = partial(RunningObservationNormalizationWrapper, statistics={"observation": {"mean": 0.0, "std": 2.0}})
    with pytest.raises(
        ValueError, match=r"has those statistics of \['observation'\] with which training begins, .* give"
    ):
        AgentDeployment("random", Simulation, [wrapper])
    env = wrapper(Simulation())
    merged = env.merge_shared_states([env.shared_state()])
    name = f"{type(env).__module__}.{type(env).__qualname__}"
    with AgentDeployment("random", Simulation, [wrapper], wrapper_statistics={name: merged}) as deployment:
        assert deployment.act([0.0] * 4) is not None
    env.load_shared_state(merged)
    with AgentDeployment("random", env) as deployment:  # an environment that was trained in
        assert deployment.act([0.0] * 4) is not None


def test_a_single_array_environment_is_deployed_as_its_class_is() -> None:
    state = {"observation": np.zeros(4, np.float32)}
    answers = []
    for env in (CartPoleArrayEnv, CartPoleArrayEnv()):
        with AgentDeployment("random", env, [LIMIT], seed=0, deterministic=False) as deployment:
            answers.append([deployment.act(state) for _ in range(4)])
    assert answers[0] == answers[1]
    assert answers[0][3] is None, "the time limit ends the episode"
    with pytest.raises(ValueError, match=r"search needs further environments: give env as a callable"):
        AgentDeployment("random", CartPoleArrayEnv(), search="best_of:4")
    with pytest.raises(TypeError, match=r"env is '3' of type int; expected an environment"):
        AgentDeployment("random", 3)


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(TypeError, match=r"the environment factory returned"):
        AgentDeployment("random", lambda: GymMazeEnv)
