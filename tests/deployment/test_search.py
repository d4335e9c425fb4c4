"""Deployments that search: the decisions of rollouts, in a simulation that the caller keeps in step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from maze_pl.agents import RandomPolicy
from maze_pl.deployment import AgentDeployment
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import ObservationStackWrapper, TimeLimitWrapper
from maze_pl.runs.rollout import rollout
from maze_pl.search import SearchError

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
            import numpy as np

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
