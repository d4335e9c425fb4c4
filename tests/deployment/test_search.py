"""Deployments that search: the decisions of rollouts, in a simulation that the caller keeps in step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.agents import RandomPolicy
from maze_pl.deployment import AgentDeployment
from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    GymMazeEnv,
    MazeEnv,
    ObservationConversionInterface,
    RewardAggregatorInterface,
    take_over,
)
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import ObservationStackWrapper, TimeLimitWrapper
from maze_pl.runs.rollout import rollout
from maze_pl.search import SearchError
from maze_pl.search.decision import PlannedAct

LOOKAHEAD = "lookahead:random:16:horizon=15"


def cart_pole() -> Any:
    return GymMazeEnv("CartPole-v1")


def limited() -> Any:
    return TimeLimitWrapper(cart_pole(), 12)


def cutting() -> Any:
    return TimeLimitWrapper(masked_struct_env_factory(20, (4, 3), [(1, 2), (1, 1), (2, 2)]), 5)


@pytest.mark.parametrize(("make", "search"), [(limited, LOOKAHEAD), (cutting, "puct:6"), (cutting, "best_of:3")])
def test_decisions_are_those_of_a_rollout(make: Callable[[], Any], search: str) -> None:
    (played,) = rollout(make, "random", seed=5, search=search, deterministic=True, record=("states",), n_envs=1)
    assert played.states is not None
    with AgentDeployment("random", make, search=search, seed=5) as deployment:
        system = make()
        system.reset(seed=played.seed)
        simulation = system.core_env
        state, step = system.get_maze_state(), (0.0, False, False)
        actions = []
        while (action := deployment.act(state, *step, simulation=simulation)) is not None:
            actions.append(action)
            state, *step, _ = simulation.step(action)
    recorded = [act.maze_action for act in played.states.steps if act.maze_action is not None]
    assert len(actions) > 3 and actions == recorded


def test_candidates_are_those_of_the_policy_and_may_be_taken() -> None:
    class Sure(RandomPolicy):
        def probabilities(self, batch: Any, temperature: float = 1.0) -> dict[str, Any]:
            return {"action": np.array([[0.25, 0.75]])}

    system = cart_pole()
    system.reset(seed=1)
    with AgentDeployment(Sure, cart_pole, search=LOOKAHEAD, seed=1) as deployment:
        found = deployment.candidates(system.get_maze_state(), 2)
        assert [(one.action["action"], one.probability) for one in found] == [(1, 0.75), (0, 0.25)]
        assert deployment.take(found[1]) == 0
        system.step({"action": 0})
        assert deployment.act(system.get_maze_state(), 1.0, simulation=system) in (0, 1)


def test_a_search_without_a_simulation_is_refused() -> None:
    system = cart_pole()
    system.reset(seed=1)
    with (
        AgentDeployment("random", cart_pole, search=LOOKAHEAD) as deployment,
        pytest.raises(SearchError, match=r"only knows the state: give act a simulation in this state"),
    ):
        deployment.act(system.get_maze_state())
    with AgentDeployment("random", cart_pole, search=LOOKAHEAD) as deployment:
        with pytest.raises(EnvContractError, match=r"act was given the simulation .*expected a GymCoreEnv"):
            deployment.act(system.get_maze_state(), simulation=cutting())
        assert deployment.act(system.get_maze_state(), simulation=system) in (0, 1), "the refused call changed nothing"
    with pytest.raises(ValueError, match="give env as a callable or its configuration"):
        AgentDeployment("random", cart_pole(), search=LOOKAHEAD)


def test_histories_of_wrappers_are_copied_into_simulations() -> None:
    def stacked() -> Any:
        stacks = [
            {"observation": "observation", "keep_original": False, "tag": "stacked", "delta": False, "stack_steps": 3}
        ]
        return TimeLimitWrapper(ObservationStackWrapper(cart_pole(), stacks), 8)

    (played,) = rollout(stacked, "random", seed=2, search=LOOKAHEAD, deterministic=True, record=("states",), n_envs=1)
    assert played.summary.reward == 8.0


class Lock(gymnasium.Env[Any, Any]):
    """Rewards the right figure of a code in each step; observations do not tell how many were given."""

    CODE = (0, 1, 1, 0, 1, 0)
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_given = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        is_right = self.CODE[self.n_given] == action
        self.n_given += 1
        return np.zeros(1, np.float32), float(is_right), self.n_given == len(self.CODE), False, {}


def lock() -> Any:
    return GymMazeEnv(Lock())


class Even(RandomPolicy):
    def probabilities(self, batch: Any, temperature: float = 1.0) -> dict[str, Any]:
        return {"action": np.array([[0.5, 0.5]] * len(batch.agent_id))}


@pytest.mark.parametrize("n_before", [0, 1, 3])
def test_a_plan_ends_where_another_action_is_taken(n_before: int) -> None:
    system = lock()
    system.reset(seed=0)
    with AgentDeployment(Even, lock, search="beam:64", seed=0) as deployment:
        step: tuple[Any, ...] = (0.0, False, False)
        actions = []
        for n_given in range(len(Lock.CODE)):
            state = system.get_maze_state()
            if n_given == n_before:
                found = deployment.candidates(state, 2, *step, simulation=system)
                actions.append(deployment.take(found[Lock.CODE[n_given]]))
            else:
                actions.append(deployment.act(state, *step, simulation=system))
            _, *step, _ = system.step({"action": actions[-1]})
    assert tuple(actions) == Lock.CODE


def n_planned_acts() -> int:
    return sum(isinstance(one, PlannedAct) for one in gc.get_objects())


def test_plans_of_episodes_that_have_ended_are_dropped() -> None:
    before = n_planned_acts()
    system = lock()
    with AgentDeployment("random", lock, search="best_of:2", seed=0) as deployment:
        for _ in range(5):
            system.reset(seed=0)
            deployment.act(system.get_maze_state(), simulation=system)
            deployment.reset()
        assert n_planned_acts() - before < len(Lock.CODE), "those of one episode"


class SalesEvents:
    def sold(self, n: int) -> None:
        """Pieces were sold."""


class Revenue(RewardAggregatorInterface):
    def get_interfaces(self) -> list[type]:
        return [SalesEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        return float(sum(record.attributes["n"] for record in self.query_events(SalesEvents.sold)))


class Shop(CoreEnv):
    """Sells as many pieces as the action says, for three days."""

    def __init__(self) -> None:
        super().__init__()
        self.events = self.pubsub.create_event_topic(SalesEvents)
        self.revenue = Revenue()
        self.pubsub.register_subscriber(self.revenue)

    def step(self, maze_action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.events.sold(n=maze_action)
        return 0, self.revenue.summarize_reward(), self.context.env_time == 2, False, {}

    def reset(self) -> Any:
        return 0

    def get_maze_state(self) -> Any:
        return 0

    def seed(self, seed: int) -> None: ...

    def close(self) -> None: ...

    def clone_from(self, env: Any) -> None:
        take_over(self, env)


class _Nothing(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"nothing": spaces.Box(0, 1, (1,), np.float32)})

    def maze_to_space(self, maze_state: Any) -> dict[str, Any]:
        return {"nothing": np.zeros(1, np.float32)}


class _Pieces(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"pieces": spaces.Discrete(3)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["pieces"])


def shop() -> Any:
    return MazeEnv(Shop(), {0: _Pieces()}, {0: _Nothing()})


def test_rewards_from_events_and_the_time_of_a_simulation_that_is_driven_are_those_of_a_rollout() -> None:
    search = "lookahead:random:6"
    (played,) = rollout(shop, "random", seed=5, search=search, deterministic=True, record=("states",), n_envs=1)
    assert played.states is not None and played.summary.reward == 6.0 and played.summary.env_steps == 3
    system = shop()
    system.reset(seed=played.seed)
    step: tuple[Any, ...] = (0.0, False, False)
    steps = []
    with AgentDeployment("random", shop, search=search, seed=5) as deployment:
        while (action := deployment.act(system.get_maze_state(), *step, simulation=system)) is not None:
            _, *step, _ = system.step_simulation(action)  # type: ignore[assignment]
            steps.append((action, *step))
        assert next(iter(deployment._summaries)).reward == 6.0
    recorded = [act for act in played.states.steps if act.maze_action is not None]
    assert steps == [(act.maze_action, act.reward, act.terminated, act.truncated) for act in recorded]
