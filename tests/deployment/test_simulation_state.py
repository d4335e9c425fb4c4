"""Rules and wrappers that use the state of the simulation: as in a rollout, or refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.deployment import AgentDeployment
from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    GymMazeEnv,
    MazeEnv,
    ObservationConversionInterface,
    Wrapper,
)
from maze_pl.envs.arrays import ArrayMazeEnv, PendulumArrayEnv
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.job_shop import JobShopArrayEnvironment, structured_job_shop_factory
from maze_pl.envs.multi_echelon_stock import StockArrayEnvironment, StockChain, stock_factory
from maze_pl.envs.multi_echelon_stock.base_stock_policy import BaseStockPolicy
from maze_pl.envs.wrappers import ResidualActionWrapper
from maze_pl.runs.rollout import rollout
from tests.deployment.state_rules import LastRowPolicy
from tests.envs.multi_echelon_stock.chains import DRIFTING

CHAIN = StockChain(**DRIFTING)
CORRECTED = partial(
    ResidualActionWrapper,
    corrections={"order": 0.3},
    policy="maze_pl.envs.multi_echelon_stock.base_stock_policy.BaseStockPolicy",
    policy_arguments={"levels": [25, 20, 30, 20], "gains": [1.5, 0.5, 0.5, 0.0]},
)
"""An agent that corrects a rule, which uses the state."""


def test_a_rule_gets_the_state_of_its_sub_step() -> None:
    make = partial(structured_job_shop_factory, ["random(5x4, alternatives=3)"])
    system = make()
    system.reset(seed=4)
    core_env: Any = system.core_env
    state, step = core_env.get_maze_state(), (0.0, False, False)
    n_differing = 0
    with AgentDeployment(LastRowPolicy("job", "alternative"), make) as deployment:
        while (option := deployment.act(state, *step)) is not None:
            last = max(row for row, allowed in enumerate(state.allowed.tolist()) if any(allowed))
            assert (option.job, option.alternative) == (last, state.allowed[last].tolist().index(True))
            n_differing += option.alternative != np.argwhere(state.allowed)[0][1]
            state, *step, _ = core_env.step(option)
    assert n_differing > 3, "the state of the first sub-step leads to other decisions"


class Countdown(CoreEnv):
    """Shows how many steps are left; rules also get the secret of the next step."""

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def reset(self) -> int:
        self.left, self.secret = 5, int(self.generator.integers(2))
        return self.left

    def step(self, maze_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(maze_action == self.secret)
        self.left, self.secret = self.left - 1, int(self.generator.integers(2))
        return self.left, reward, self.left == 0, False, {}

    def get_maze_state(self) -> int:
        return self.left

    def get_simulation_state(self) -> tuple[int, int]:
        return self.left, self.secret

    def close(self) -> None:
        pass


class Left(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"left": spaces.Box(0, 5, (1,), np.float32)})

    def maze_to_space(self, maze_state: int) -> dict[str, np.ndarray]:
        return {"left": np.array([maze_state], np.float32)}


class Guess(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"guess": spaces.Discrete(2)})

    def space_to_maze(self, action: Any, maze_state: int) -> int:
        return int(action["guess"])


def countdown() -> MazeEnv:
    return MazeEnv(Countdown(), {0: Guess()}, {0: Left()})


class Insider(MazeStatePolicy):
    """Guesses right, and is sure of it."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"guess": np.array([secret for _, secret in self.states_of(batch)])})

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        return {"guess": np.array([np.eye(2)[secret] for _, secret in self.states_of(batch)])}


class InsiderWrapper(Wrapper):
    """Replaces guesses by the right ones."""

    def step_in_parts(self, action: Any) -> Any:
        return (yield {"guess": self.get_simulation_state()[1]})


def test_a_state_that_only_the_simulation_makes_comes_from_a_simulation() -> None:
    (played,) = rollout(countdown, Insider(), seed=3, record=(), n_envs=1)
    assert played.summary.reward == 5.0
    system = countdown()
    system.reset(seed=3)
    core_env = system.core_env
    fault = r"^Insider uses the state of the simulation, which only Countdown\.get_simulation_state makes: give act a "
    with AgentDeployment(Insider(), countdown) as deployment:
        with pytest.raises(EnvContractError, match=fault):
            deployment.act(5)
        assert not deployment.is_running
        assert deployment.act(5, simulation=system) == core_env.secret
        with pytest.raises(EnvContractError, match=fault):
            deployment.act(4, 1.0)
        core_env.step(core_env.secret)
        assert deployment.act(4, 1.0, simulation=core_env) == core_env.secret, "the refused call changed nothing"
        core_env.step(core_env.secret)
        (candidate,) = deployment.candidates(3, 2, 1.0, simulation=system)
        assert deployment.take(candidate) == core_env.secret
        assert deployment.act(2, 1.0, terminated=True) is None, "nothing is decided in the last state"
        assert [one.reward for one in deployment._summaries] == [3.0]
        deployment.act(5, simulation=system)
        deployment.close(4, 1.0)
    assert [one.reward for one in deployment._summaries] == [3.0, 1.0], "the last step needs no simulation"


def test_a_pending_decision_still_needs_the_simulation() -> None:
    system = countdown()
    system.reset(seed=1)
    with AgentDeployment(Insider(), countdown) as deployment:
        state = system.get_maze_state()
        deployment.candidates(state, 1, simulation=system)
        with pytest.raises(TypeError, match=r"get_simulation_state of Countdown is unknown in deployment"):
            deployment.act(state)
        assert deployment.act(state, simulation=system) == system.core_env.secret  # type: ignore[attr-defined]


def test_wrappers_may_ask_the_simulation_too() -> None:
    system = countdown()
    system.reset(seed=2)
    with AgentDeployment("random", countdown, [InsiderWrapper], seed=0) as deployment:
        assert deployment.act(5, simulation=system) == system.core_env.secret  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match=r"give act a simulation in this state \(simulation=...\)"):
            deployment.act(4, 1.0)


class Watching:
    """Remembers the states that it is given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        self.seen.append(batch.maze_state)
        return PolicyStep({"guess": np.array([1])})


def test_other_policies_get_no_states_as_in_a_rollout() -> None:
    in_rollout, deployed = Watching(), Watching()
    rollout(countdown, in_rollout, record=(), n_envs=1)
    with AgentDeployment(deployed, countdown) as deployment:
        assert deployment.act(5) == 1 and deployment.act(4, 1.0) == 1
    assert in_rollout.seen == [None] * 5 and deployed.seen == [None] * 2


class Correction:
    """Corrects by a constant."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"order_correction": np.full((1, 4), 0.25, np.float32)})


def test_a_rule_in_arrays_needs_a_simulation_or_the_form_for_single_episodes() -> None:
    arrays = partial(StockArrayEnvironment, CHAIN)
    played, system = CORRECTED(ArrayMazeEnv(arrays())), ArrayMazeEnv(arrays())
    played.reset(seed=5)
    system.reset(seed=5)
    single = stock_factory(CHAIN)
    convert = single.action_conversion_dict[0].space_to_maze
    fault = (
        r"^BaseStockPolicy of ResidualActionWrapper uses the state of the simulation, which observations of "
        r"StockArrayEnvironment do not contain: give the form for single episodes as env, or give act a simulation"
    )
    with (
        AgentDeployment(Correction(), arrays, [CORRECTED]) as in_arrays,
        AgentDeployment(Correction(), partial(stock_factory, CHAIN), [CORRECTED]) as in_single_form,
    ):
        for state in (system.get_maze_state(), system.get_simulation_state()):
            with pytest.raises(EnvContractError, match=fault):
                in_arrays.act(state)
        step: tuple[Any, ...] = (0.0,)
        for _ in range(8):
            action = in_arrays.act(system.get_maze_state(), *step, simulation=system)
            state = system.get_simulation_state()
            assert in_single_form.act(state, *step) == convert(action, state)
            played.step({"order_correction": np.full(4, 0.25, np.float32)})
            np.testing.assert_array_equal(action["order"], played.get_maze_action()["order"])
            _, *step, _ = system.core_env.step(action)


def test_the_heuristic_of_an_array_environment_needs_a_simulation() -> None:
    arrays = partial(StockArrayEnvironment, CHAIN)
    system = ArrayMazeEnv(arrays())
    system.reset(seed=5)
    with AgentDeployment("heuristic", arrays) as deployment:
        with pytest.raises(EnvContractError, match=r"^BaseStockPolicy uses the state of the simulation, which obs"):
            deployment.act(system.get_maze_state())
        action = deployment.act(system.get_maze_state(), simulation=system)
    states = [system.get_simulation_state()]
    expected = BaseStockPolicy(system.action_spaces_dict).act(PolicyBatch(0, {}, np.zeros(1), maze_state=states))
    np.testing.assert_array_equal(action["order"], expected.action["order"][0])


def test_a_search_with_such_a_rule_copies_the_simulation() -> None:
    arrays = partial(JobShopArrayEnvironment, ["random(3x2)"])
    search = "lookahead:heuristic:2:horizon=2"
    (played,) = rollout(
        arrays, "heuristic", seed=3, search=search, deterministic=True, max_steps=3, n_envs=1, record=("states",)
    )
    assert played.states is not None
    system = ArrayMazeEnv(arrays())
    system.reset(seed=played.seed)
    step: tuple[Any, ...] = (0.0,)
    with AgentDeployment("heuristic", arrays, search=search, seed=3) as deployment:
        with pytest.raises(EnvContractError, match="give the form for single episodes"):
            deployment.act(system.get_maze_state())
        for act in played.states.steps:
            action = deployment.act(system.get_maze_state(), *step, simulation=system)
            assert action == act.maze_action
            _, *step, _ = system.core_env.step(action)


class Leaning:
    """A rule that uses observations only."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action": -batch.observation["observation"][:, 1:2]})


class Nothing:
    """Corrects nothing."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action_correction": np.zeros((1, 1), np.float32)})


def test_rules_that_use_observations_need_no_simulation() -> None:
    wrappers = [partial(ResidualActionWrapper, corrections={"action": 0.5}, policy=Leaning())]
    state = {"observation": np.array([0.5, 0.25, -1.0], np.float32)}
    with AgentDeployment(Nothing(), PendulumArrayEnv, wrappers) as deployment:
        assert deployment.act(state) == {"action": np.float32([-0.25])}
    with AgentDeployment(Nothing(), partial(GymMazeEnv, "Pendulum-v1"), wrappers) as deployment:
        np.testing.assert_array_equal(deployment.act(state["observation"]), np.float32([-0.25]))
