"""An environment that keeps no time is refused by whoever steps it, and one whose episodes begin badly is not."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.collect.episodes import play_episodes
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from tests.collect.scripted import Act, Episode, Script, make_env, spec_of
from tests.datamodules.probe import make_trainer
from tests.envs.structured_example import make_timeless

REMEDY = "increment_env_step.. in the act that completes an environment step"


def script(
    *episodes: list[tuple[int, int]], n_agents: tuple[int, ...] = (1, 1), max_agents: tuple[int, ...] = ()
) -> Any:
    """Episodes of (sub-step, environment time that passes)."""
    played = [Episode(tuple(Act(key, 0, 1.0, 0.0, passes) for key, passes in acts), False, (0, 0)) for acts in episodes]
    return Script(n_agents, False, (tuple(played),), max_agents)


def vector_of(script: Script, kind: type[Any] = SequentialVectorEnv, **options: Any) -> Any:
    return kind([partial(make_env, script, 0)], spec=spec_of(script), **options)


def collect(vector: VectorEnv, n_rollout_steps: int) -> None:
    policy = RandomPolicy({key: step.action_space for key, step in vector.spec.steps.items()})
    Collector(vector, n_rollout_steps, torch.Generator()).collect(policy)


TIMELESS = script([(0, 0), (1, 0), (0, 0), (1, 0)])


@pytest.mark.parametrize(
    "script",
    [
        TIMELESS,
        script([(0, 0), (1, 0)]),
        script([(0, 0), (0, 0)], n_agents=(-1,), max_agents=(1,)),
        script([(0, 0), (0, 0), (0, 0)], n_agents=(2,)),
    ],
    ids=["several rounds", "one round", "agents that come and go", "several agents"],
)
def test_episodes_in_which_time_never_advances_are_refused_within_the_first_rollout(script: Script) -> None:
    with pytest.raises(EnvContractError, match=f"environment 0: .* did not advance in 3 episodes.*{REMEDY}"):
        collect(vector_of(script), 8)


def test_standstills_are_refused_in_evaluation() -> None:
    vector = vector_of(TIMELESS, autoreset=False)
    policy = RandomPolicy({key: step.action_space for key, step in vector.spec.steps.items()})
    with pytest.raises(EnvContractError, match=REMEDY):
        for episode in range(3):
            play_episodes(vector, policy, [episode], deterministic=False, generator=torch.Generator())


@pytest.mark.slow
def test_standstills_are_refused_in_other_processes() -> None:
    vector = vector_of(TIMELESS, SubprocVectorEnv)
    with pytest.raises(EnvContractError, match=f"environment 0: .*{REMEDY}"):
        collect(vector, 8)
    vector.close()


@pytest.mark.parametrize(
    "episodes",
    [
        [[(0, 0)]] * 5,  # each ends before its first environment step is complete
        [[(0, 0), (1, 1)], *[[(0, 0), (1, 0), (0, 0)]] * 5],  # time has advanced before
        [*[[(0, 0), (1, 0)]] * 2, [(0, 0), (1, 1), (0, 0)]],  # two of three
    ],
    ids=["early ends", "known to advance", "now and then"],
)
def test_episodes_that_end_in_their_first_environment_step_are_no_standstill(episodes: Any) -> None:
    collect(vector_of(script(*episodes)), 12)


@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
@pytest.mark.slow
def test_fit_ends_within_the_first_rollout_and_names_the_remedy() -> None:
    data = RolloutDataModule(make_timeless, n_envs=1, n_rollout_steps=5, evaluators={}, seed=1)
    policy = ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[2])])
    critic = SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[2])])
    module = A2C(networks=CustomModelComposer(policy, critic), spec=data.spec)
    with pytest.raises(EnvContractError, match=f"has made 10000 acts without environment time advancing; .*{REMEDY}"):
        make_trainer().fit(module, data)
    assert module.env_steps == 0
