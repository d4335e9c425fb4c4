"""Deployments check what they receive before anything advances, and share nothing with what they return."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from pytorch_lightning.loggers import Logger

from maze_pl import AgentDeployment
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs import ActionWrapper, GymMazeEnv, ObservationWrapper, RewardWrapper, TrajectoryWriter, Wrapper
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.cutting_2d import Cutting2DCoreEnvironment, maze_env_factory
from maze_pl.envs.multi_echelon_stock import StockChain, structured_stock_factory
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers import SpacesRecordingWrapper, StepSkipWrapper
from maze_pl.events import KpiCalculator
from maze_pl.events.episode_log import RunningKpiCalculator
from tests.envs.multi_echelon_stock.chains import SERIAL
from tests.envs.structured_example import make_heap_env

PENDULUM = partial(GymMazeEnv, "Pendulum-v1")
HEAP = {"target": 0, "heap": 3, "strength": 3}


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (["one", 2.0], r"actor_rewards=\['one', 2.0\]; expected numbers"),
        ([[1.0], [2.0, 3.0]], "expected numbers"),
        ([1.0, float("nan")], "expected 2 finite numbers, one for each act of the environment step"),
        ([1.0], "expected 2 finite numbers"),
        ([1.0, 2.0, 3.0], "expected 2 finite numbers"),
    ],
)
def test_attributed_rewards_are_checked_before_the_time_advances(rewards: Any, message: str) -> None:
    with AgentDeployment("random", make_heap_env) as deployment:
        deployment.act(HEAP, actor_id=("plan", 0))
        deployment.act(HEAP, actor_id=("work", 0), env_time=0)
        for _ in range(2):
            with pytest.raises(EnvContractError, match=message):
                deployment.act(HEAP, 1.0, actor_id=("plan", 0), env_time=1, actor_rewards=rewards)
            assert deployment.env.get_env_time() == 0
        deployment.act(HEAP, 3.0, actor_id=("plan", 0), env_time=1, actor_rewards=[1.0, 2.0])
        assert deployment.env.get_env_time() == 1
        deployment.act(HEAP, actor_id=("work", 0), env_time=1)
        deployment.act(HEAP, 3.0, actor_id=("plan", 0), env_time=2, actor_rewards=[1.0, 2.0])
        assert deployment.env.get_env_time() == 2


def test_rewards_of_the_previous_environment_step_are_ignored_within_a_step() -> None:
    """The simulation returns them until it has finished the next one."""
    make_env = partial(structured_stock_factory, StockChain(**SERIAL))
    simulation = make_env()
    simulation.reset(seed=0)
    step: tuple[Any, ...] = (0.0, False, False)
    attributed = []
    with AgentDeployment("random", make_env, [SpacesRecordingWrapper], seed=0) as deployment:
        for _ in range(7):  # acts, two in each period
            now = {"actor_id": simulation.actor_id(), "env_time": simulation.get_env_time()}
            rewards = simulation.get_actor_rewards()
            action = deployment.act(simulation.get_maze_state(), *step, actor_rewards=rewards, **now)
            step = simulation.step_simulation(action)[1:4]
            attributed.append(simulation.get_actor_rewards())
        (recorder,) = [one for one in wrappers_of(deployment.env) if type(one) is SpacesRecordingWrapper]
    (record,) = recorder.trajectories
    np.testing.assert_array_equal(record.actor_reward[:6], np.concatenate(attributed[1:6:2]))
    assert len(np.unique(record.actor_reward[:6])) > 2


def test_an_action_that_the_caller_changes_is_still_repeated() -> None:
    state = np.array([0.5, 0.5, 0.1], np.float32)
    with AgentDeployment("random", PENDULUM, [partial(StepSkipWrapper, n_steps=3)], seed=0) as deployment:
        first = deployment.act(state)
        expected = first.copy()
        for _ in range(2):
            first *= 10
            first = deployment.act(state, -1.0)
            np.testing.assert_array_equal(first, expected)


class RateLimit(ActionWrapper):
    """Limits the change of the torque from one act to the next to 0.5."""

    latest = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.latest = 0.0
        return super().reset(seed=seed, options=options)

    def action(self, action: Any) -> Any:
        torque = np.clip(action["action"], self.latest - 0.5, self.latest + 0.5).astype(np.float32)
        self.latest = float(torque[0])
        return {"action": torque}


class HalfReward(RewardWrapper):
    """Halves rewards."""

    def reward(self, reward: float) -> float:
        return reward / 2


class Named(Wrapper):
    """Only has a name."""

    name = "plant"


@pytest.mark.parametrize("wrappers", [[], [RateLimit], [HalfReward], [Named], [RateLimit, HalfReward, Named]])
def test_a_reading_that_is_not_a_number_does_not_interrupt_an_episode(wrappers: list[Any]) -> None:
    state = np.array([0.5, 0.5, 0.1], np.float32)
    broken = np.array([0.5, np.nan, 0.1], np.float32)
    with AgentDeployment(FullTorque(), PENDULUM, wrappers) as deployment:
        first = deployment.act(state)
        with pytest.raises(EnvContractError, match=r"is not a number \(nan\) at \[1\]; give another state"):
            deployment.act(broken, -1.0)
        second = deployment.act(state, -1.0)
        assert deployment.env.get_env_time() == 1
    assert [*first, *second] == ([0.5, 1.0] if RateLimit in wrappers else [2.0, 2.0])


class FullTorque:
    """Always turns as strongly as possible."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"action": np.full((len(batch.agent_id), 1), 2.0, np.float32)})


class Imputing(ObservationWrapper):
    """Puts 0 in place of values that are not a number."""

    def observation(self, observation: Any) -> Any:
        return {name: np.nan_to_num(value) for name, value in observation.items()}


class ImputingFirst(Wrapper):
    """Puts 0 in place of values that are not a number when an episode begins."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return {name: np.nan_to_num(value) for name, value in observation.items()}, info


@pytest.mark.parametrize("imputing", [Imputing, ImputingFirst])
def test_a_wrapper_may_replace_readings_that_are_not_numbers(imputing: Any) -> None:
    with AgentDeployment(FullTorque(), PENDULUM, [imputing, RateLimit]) as deployment:
        assert deployment.act(np.full(3, np.nan, np.float32)) == [0.5]


class NeedsEvents(RunningKpiCalculator):
    """Fails in a step without events of the simulation."""

    def new_totals(self) -> dict[str, Any]:
        return {"n": 0}

    def add_step(self, totals: dict[str, Any], step: Any) -> None:
        raise AssertionError("nothing has fired events")

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        return {"n": float(totals["n"])}


class Measured(Cutting2DCoreEnvironment):
    """Computes a KPI from the events of each step."""

    def get_kpi_calculator(self) -> KpiCalculator:
        return NeedsEvents()


def measured() -> Any:
    env = maze_env_factory(8, (4, 3), (1, 2))
    env.core_env.__class__ = Measured
    return env


def test_no_kpi_is_computed_where_no_events_are_fired() -> None:
    state = maze_env_factory(8, (4, 3), (1, 2)).core_env.reset()
    with AgentDeployment("heuristic", measured) as deployment:
        deployment.act(state)
        deployment.act(state, 1.0)
    assert not [name for name in deployment.statistics() if "kpi" in name]
    deployment = AgentDeployment("heuristic", measured, reports_events=True)
    deployment.act(state)
    with pytest.raises(AssertionError, match="nothing has fired events"):
        deployment.act(state, 1.0)


class Full(TrajectoryWriter):
    """A writer to a disk that is full after the first episode."""

    def __init__(self) -> None:
        self.n_written = 0

    def write(self, record: Any) -> None:
        self.n_written += 1
        if self.n_written > 1:
            raise OSError("No space left on device")


class Noting(Logger):
    """Keeps the names of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    @property
    def name(self) -> str:
        return "noting"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """There are none."""

    def log_metrics(self, metrics: Any, step: Any = None) -> None:
        self.names |= set(metrics)


def test_a_writer_that_fails_leaves_the_rest_of_a_deployment_to_be_closed() -> None:
    closed: list[bool] = []

    class Closing(GymMazeEnv):
        def close(self) -> None:
            closed.append(True)
            super().close()

    logger = Noting()
    recorder = partial(SpacesRecordingWrapper, writer=Full())
    deployment = AgentDeployment("heuristic", lambda: Closing("CartPole-v1"), [recorder], loggers=[logger])
    state = np.zeros(4, np.float32)
    for terminated in (False, True, False, False):
        deployment.act(state, 1.0, terminated)
    with pytest.raises(OSError, match="No space left"):
        deployment.close(state, 1.0)
    assert closed and any("BaseEnvEvents/reward" in name for name in logger.names)
    deployment.close()
    with pytest.raises(RuntimeError, match="closed"):
        deployment.act(state)
