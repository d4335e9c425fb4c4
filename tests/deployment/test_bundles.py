"""Bundles in deployments: the wrappers that a bundle contains are applied once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl import AgentDeployment
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    SpacesRecordingWrapper,
    TimeLimitWrapper,
)
from maze_pl.runs.bundle_policy import BundlePolicy
from tests.bundle.written_policies import DISCRETE, NORMALIZED, PENDULUM, STACKED, Written
from tests.deployment.replaying import compare, play

WRAPPERS = [DISCRETE, NORMALIZED, STACKED]


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


def test_a_recorder_around_the_wrappers_of_a_bundle_records_what_is_played(written: Written) -> None:
    """Actions and observations are those of the environment without these wrappers."""
    states = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with AgentDeployment(written.path, PENDULUM, [*WRAPPERS, SpacesRecordingWrapper]) as deployment:
        actions = [deployment.act(state, -1.0) for state in states]
        (recorder,) = [one for one in wrappers_of(deployment.env) if type(one) is SpacesRecordingWrapper]
    (record,) = recorder.trajectories
    np.testing.assert_array_equal(record.action[0]["action"], actions[:-1])
    np.testing.assert_array_equal(record.observation[0]["observation"], states[:-1])
    assert len(np.unique(actions)) > 1


def test_a_temperature_is_refused_at_once(written: Written) -> None:
    with pytest.raises(ValueError, match=r"temperature=0.5: a bundle has the distributions of training"):
        AgentDeployment(written.path, PENDULUM, temperature=0.5)


def test_nothing_keeps_the_events_of_an_episode(written: Written) -> None:
    for wrappers in (WRAPPERS, []):
        with AgentDeployment(written.path, PENDULUM, wrappers) as deployment:
            assert len(deployment.env.pubsub.readers) == 1


def test_an_observation_that_the_bundle_clips_may_be_infinite(tmp_path: Path) -> None:
    clipped = partial(ObservationNormalizationWrapper, default_strategy_config={"clip_range": [-2.0, 2.0], "axis": 0})
    clips = Written(tmp_path / "agent.bundle", PENDULUM, [clipped])
    with AgentDeployment(clips.policy, PENDULUM, [clipped], wrapper_statistics=clips.statistics) as deployment:
        expected = deployment.act(np.array([np.inf, 0.0, -np.inf], np.float32))
    with AgentDeployment(clips.path, PENDULUM) as deployment:
        found = deployment.act(np.array([np.inf, 0.0, -np.inf], np.float32))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        with pytest.raises(EnvContractError, match="is not a number"):
            deployment.act(np.array([np.nan, 0.0, 0.0], np.float32), 0.0)


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
