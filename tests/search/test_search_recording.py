"""Recorders and event logs among the wrappers of an environment keep what was played, and nothing that was tried."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.core.spec import Spec
from maze_pl.deployment import AgentDeployment
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv, TrajectoryWriter, Wrapper
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.wrappers import (
    EventLogsWrapper,
    MazeEnvMonitoringWrapper,
    SpacesRecordingWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.events import BaseEnvEvents, EventLogWriter, EventRecord
from maze_pl.runs.rollout import rollout
from maze_pl.search.simulation import Simulation
from tests.search.problems import table_env

SEARCHES = ["best_of:3", "beam:3", "lookahead:random:4:horizon=6", "puct:4"]
LENGTHS: list[int] = []  # numbers of acts of written episodes; a list of the module, as writers are copied
ROWS: list[tuple[Any, ...]] = []  # events of episodes that were written when they ended


class Lengths(TrajectoryWriter):
    """Writes down the length of each episode."""

    def write(self, record: Any) -> None:
        LENGTHS.append(len(record.reward) if record.kind == "spaces" else len(record.steps))


class Rows(EventLogWriter):
    """Keeps rewards until the end of the episode, then writes them down."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[tuple[Any, ...]] = []

    def write(self, episode_id: str, record: EventRecord) -> None:
        if record.event is BaseEnvEvents.reward:
            self.pending.append((episode_id, record.env_time, record.attributes["value"]))

    def end_episode(self) -> None:
        ROWS.extend(self.pending)
        self.pending = []


def cart_pole() -> Any:
    return GymMazeEnv("CartPole-v1")


def cart_pole_of_arrays() -> Any:
    return ArrayMazeEnv(CartPoleArrayEnv())


@pytest.mark.parametrize("recorder", [SpacesRecordingWrapper, TrajectoryRecordingWrapper])
@pytest.mark.parametrize("make", [table_env, cart_pole, cart_pole_of_arrays])
@pytest.mark.parametrize("search", SEARCHES)
def test_only_played_episodes_are_recorded(recorder: Callable[..., Any], make: Any, search: str) -> None:
    LENGTHS.clear()
    wrappers = [lambda env: recorder(env, writer=Lengths())]
    played = rollout(
        make, "random", episodes=2, max_steps=8, search=search, record=("spaces",), wrappers=wrappers, n_envs=1
    )
    assert [len(one.spaces.reward) for one in played if one.spaces is not None] == LENGTHS


@pytest.mark.parametrize("search", SEARCHES)
def test_only_played_events_are_logged(search: str) -> None:
    ROWS.clear()
    wrappers = [lambda env: EventLogsWrapper(env, writer=Rows()), partial(TimeLimitWrapper, max_episode_steps=8)]
    played = rollout(
        table_env, "random", episodes=2, search=search, record=("spaces", "events"), wrappers=wrappers, n_envs=1
    )
    expected = []
    for one in played:
        assert one.spaces is not None
        episode_id = one.spaces.episode_id
        expected += [
            (episode_id, time, reward) for time, reward in zip(one.spaces.env_time, one.spaces.reward, strict=True)
        ]
    assert expected == ROWS


def test_deployments_log_only_decisions() -> None:
    LENGTHS.clear()

    def make() -> Any:
        return SpacesRecordingWrapper(TimeLimitWrapper(cart_pole(), 6), writer=Lengths())

    system = cart_pole()
    system.reset(seed=1)
    step: tuple[Any, ...] = (0.0, False, False)
    n_acts = 0
    with AgentDeployment("random", make, search="best_of:3", seed=5) as deployment:
        while (action := deployment.act(system.get_maze_state(), *step, simulation=system)) is not None:
            step = system.core_env.step(action)[1:4]
            n_acts += 1
    assert LENGTHS == [n_acts] == [6]


def test_samples_for_dashboards_are_those_of_the_episode_alone() -> None:
    options = {"observation_logging": True, "action_logging": True, "reward_logging": True}
    (played,) = rollout(
        cart_pole,
        "random",
        max_steps=8,
        search="best_of:3",
        record=("spaces",),
        wrappers=[partial(MazeEnvMonitoringWrapper, **options)],
        n_envs=1,
    )
    assert played.spaces is not None
    samples = {(key[1], key[2]): values for key, values in played.summary.samples.items()}
    seen = played.spaces.observation[0]["observation"]
    assert np.array_equal(samples["observation_processed", None], seen)
    assert np.array_equal(samples["reward_processed", "steps"], played.spaces.reward)


class Acknowledged(Wrapper):
    """Ends the episode in its third act, which does not reach the simulation."""

    n_acts = 0

    def reset(self, **options: Any) -> Any:
        self.n_acts = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        self.n_acts += 1
        if self.n_acts < 3:
            self.observed = self.env.step(action)[0]
            return self.observed, 1.0, False, False, {}
        self.begin_env_step()
        return self.observed, 1.0, True, False, {}


@pytest.mark.parametrize("recorder", [SpacesRecordingWrapper, TrajectoryRecordingWrapper])
@pytest.mark.parametrize("n_imagined", [0, 1])
def test_the_record_of_a_copy_is_not_written_by_its_end_alone(recorder: Callable[..., Any], n_imagined: int) -> None:
    LENGTHS.clear()
    env, copy = (recorder(Acknowledged(cart_pole()), writer=Lengths()) for _ in range(2))
    observation, _ = env.reset(seed=1)
    for _ in range(2):
        observation = env.step({"action": 0})[0]
    simulation = Simulation(copy, Spec.of(copy))
    simulation.start(env, observation, seed=2)
    for _ in range(n_imagined):
        simulation.step({"action": 0})
    assert simulation.is_over == bool(n_imagined)
    copy.close()
    assert not LENGTHS
    env.close()
    assert len(LENGTHS) == 1
