"""Bundles in deployments: the wrappers that a bundle contains are applied once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl import AgentDeployment
from maze_pl.agents import TorchPolicy
from maze_pl.bundle.bundle_files import bundle_bytes
from maze_pl.bundle.traced_policy import traced
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.spec import Spec
from maze_pl.distributions.distribution_mapper import distribution_mappers
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import load_shared_states, make_wrapped, wrapper_stack
from maze_pl.envs.wrappers import (
    DiscretizeActionsWrapper,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    TimeLimitWrapper,
)
from maze_pl.perception import FlattenConcatPolicyNet
from maze_pl.runs.bundle_policy import BundlePolicy
from tests.deployment.replaying import compare, estimated, play

PENDULUM = partial(GymMazeEnv, "Pendulum-v1")
NORMALIZED = partial(ObservationNormalizationWrapper, default_strategy_config={"axis": 0})
DISCRETE = partial(DiscretizeActionsWrapper, discretization_config={"action": {"num_bins": 7}})
STACKED = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 3}])
WRAPPERS = [DISCRETE, NORMALIZED, STACKED]


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


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("bundles") / "agent.bundle", PENDULUM, WRAPPERS)


@pytest.mark.parametrize("form", [str, Path, BundlePolicy, lambda path: {"class_path": str(path)}])
def test_a_bundle_decides_as_its_policy_does(written: Written, form: Callable[[Path], Any]) -> None:
    limited = [*WRAPPERS, partial(TimeLimitWrapper, max_episode_steps=30)]
    records, _ = play(PENDULUM, WRAPPERS, written.policy, written.statistics, 2, 30, deterministic=True)
    alone, _ = play(PENDULUM, [], written.path, None, 2, 30, deterministic=True)
    for one, other in zip(records, alone, strict=True):
        assert [step.maze_action for step in one.steps] == [step.maze_action for step in other.steps]
    assert len({step.maze_action.item() for record in records for step in record.steps}) > 1
    for statistics in (written.statistics, None):
        with AgentDeployment(form(written.path), PENDULUM, limited, wrapper_statistics=statistics) as deployment:
            for record in records:
                decided = []
                for step in record.steps:
                    decided.append(deployment.act(step.maze_state, 1.0))
                assert decided == [step.maze_action for step in record.steps]
                assert deployment.act(record.last_maze_state, 1.0) is None, "the time limit remains"
            assert type(deployment.env.action_spaces_dict[0]["action"]).__name__ == "Box"
            statistics_of = deployment.statistics()
        assert statistics_of["BaseEnvEvents/reward/mean"] == 30.0
        assert any(name.startswith("ContinuousActionEvents/") for name in statistics_of), "actions of the bundle"
        assert not any(name.startswith("DiscreteActionEvents/") for name in statistics_of)


def test_sampled_actions_of_a_bundle_are_those_of_a_rollout(written: Written) -> None:
    policy = BundlePolicy(written.path)
    records, played = play(PENDULUM, WRAPPERS, policy, written.statistics, 2, 20, deterministic=False)
    limit = partial(TimeLimitWrapper, max_episode_steps=20)
    deployment = AgentDeployment(
        policy, PENDULUM, [*WRAPPERS, limit], wrapper_statistics=written.statistics, seed=3, deterministic=False
    )
    compare(deployment, records, played)
    deployment.close()


def test_some_of_the_wrappers_of_a_bundle_are_refused(written: Written) -> None:
    with pytest.raises(ConfigurationError, match=r"the bundle contains .* of which the environment lacks"):
        AgentDeployment(written.path, PENDULUM, [STACKED])
    with AgentDeployment(written.path, PENDULUM) as deployment:
        assert deployment.act(np.zeros(3, np.float32)).shape == (1,)


@pytest.mark.slow
def test_a_run_is_deployed_with_its_bundle(tmp_path: Path) -> None:
    import maze_pl
    from maze_pl.__main__ import main

    run = tmp_path / "run"
    wrappers = "[{class_path: maze_pl.envs.wrappers.ObservationNormalizationWrapper}]"
    small = ("--data.n_envs", "2", "--data.n_rollout_steps", "50", "--data.epoch_length", "1")
    options = ("--trainer.max_epochs", "1", "--data.evaluators", "null", "--data.wrappers", wrappers)
    assert main(["fit", "--config", "ppo_cartpole", "--run_dir", str(run), *small, *options]) == 0
    maze_pl.export(run, tmp_path / "agent.bundle", episodes=1, max_steps=20)
    states = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    decided = []
    for policy in (None, tmp_path / "agent.bundle"):
        with AgentDeployment.from_run(run, policy=policy) as deployment:
            decided.append([deployment.act(state, 1.0) for state in states])
            if policy is None:
                assert deployment.drift()[0].n_observations == len(states)
            else:
                with pytest.raises(ValueError, match="there is no sample of the observations of training"):
                    deployment.drift()
    assert decided[0] == decided[1]
    assert set(decided[0]) == {0, 1}
