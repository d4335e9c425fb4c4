"""Search in rollouts: the best of all sequences, no view of the future, the same results everywhere."""

from __future__ import annotations

import gc
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.agents import DummyCartPolePolicy
from maze_pl.collect.engines import ProcessEngine
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.cutting_2d import (
    Cutting2DCoreEnvironment,
    Cutting2DMazeAction,
    GreedyCuttingPolicy,
    MixedPeriodicDemand,
    masked_struct_env_factory,
)
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, TimeLimitWrapper
from maze_pl.modules import ES
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.search import SearchError, SearchOptions, SearchPolicy
from maze_pl.search.decision import PlannedAct
from tests.search.policies import GAMMA, StepCritic
from tests.search.problems import best_total, coin_env, foreman_env, table_env, turns_env

EXHAUSTIVE = ["best_of:400", "beam:36", "puct:200"]


def returns(trajectories: list[Trajectory]) -> list[float]:
    return [one.summary.reward for one in trajectories]


def cutting() -> Any:
    return TimeLimitWrapper(masked_struct_env_factory(20, (4, 3), [(1, 2), (1, 1), (2, 2)]), 12)


@pytest.mark.parametrize("search", EXHAUSTIVE)
def test_a_large_budget_finds_the_best_of_all_sequences(search: str) -> None:
    played = rollout(partial(table_env, 1), "random", search=search, record=(), n_envs=1)
    assert returns(played) == [best_total(1)]


def test_lookahead_takes_the_action_from_which_the_rule_goes_furthest() -> None:
    """Against a slow search that plays every action and then the first allowed one to the end."""

    def play_on(history: list[int]) -> float:
        core = table_env(2).core_env
        total = 0.0
        while True:
            total += core.reward_of(history)
            if len(history) == 4:
                return total
            forbidden = history[-1] if len(history) % 2 else -1
            history = [*history, next(choice for choice in range(3) if choice != forbidden)]

    history: list[int] = []
    total = 0.0
    while len(history) < 4:
        forbidden = history[-1] if len(history) % 2 else -1
        allowed = [choice for choice in range(3) if choice != forbidden]
        best = max(allowed, key=lambda choice: play_on([*history, choice]))
        history.append(best)
        total += table_env(2).core_env.reward_of(history)
    found = rollout(partial(table_env, 2), FirstAllowed(), search="lookahead:policy", record=(), n_envs=1)
    assert returns(found) == [total]


class FirstAllowed:
    """Takes the first allowed choice."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"choice": batch.observation["allowed"].argmax(1)})


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("search", ["best_of:4", "beam:4", "lookahead:random:6", "puct:6"])
def test_no_search_foresees_a_coin(search: str, is_early: bool) -> None:
    played = rollout(partial(coin_env, is_early), "random", episodes=12, search=search, record=())
    mean = np.mean(returns(played)) / 10
    assert abs(mean - 0.5) < 4 * 0.5 / np.sqrt(120), f"{mean} of 120 guesses are right"


@pytest.mark.parametrize("name", ["nothing", "something"], ids=["equal observations", "other names"])
@pytest.mark.parametrize("search", ["best_of:16", "beam:16", "lookahead:random:16", "puct:32"])
def test_sub_steps_between_which_chance_chooses_try_their_own_actions(search: str, name: str) -> None:
    """The environment raises an error if a sub-step gets an option of the other one."""
    assert len(rollout(partial(turns_env, name), "random", search=search, record=(), deterministic=True)) == 1


class Generous:
    """The foreman's best choice, with a step critic."""

    networks = SimpleNamespace(critic=StepCritic())
    gamma = GAMMA

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"choice": np.ones(len(batch.agent_id), np.int64)})


def test_values_of_one_actor_among_several_are_warned_of() -> None:
    env = partial(foreman_env, is_attributed=True)
    for search in ("puct:4", "lookahead:policy:horizon=1"):
        with pytest.warns(UserWarning, match="actor that acts next earns itself, but a search .*train with a shared"):
            rollout(env, Generous(), search=search, record=())
    for search in ("best_of:4", "lookahead:policy", "lookahead:random:horizon=1"):  # nothing is asked for a value
        rollout(env, Generous(), search=search, record=())
    rollout(partial(foreman_env, is_attributed=False), Generous(), search="puct:4", record=())


def orders_of(env: Cutting2DCoreEnvironment, n: int) -> list[Any]:
    """The present order and those after it."""
    found = []
    for _ in range(n):
        found.append(env.current_demand)
        env.step(Cutting2DMazeAction(0, (0, 1), False))
    return found


def test_orders_that_were_drawn_already_are_not_foreseen() -> None:
    """In the first period of a mixed demand the coming orders are unknown; later periods repeat it."""
    envs = [Cutting2DCoreEnvironment(20, (20, 20), MixedPeriodicDemand(2, 6)) for _ in range(2)]
    for env in envs:
        env.seed(1)
        env.reset()
    first = orders_of(envs[0], 2)
    envs[1].clone_from(envs[0])
    envs[1].reseed(7)
    true, imagined = orders_of(envs[0], 4), orders_of(envs[1], 4)
    assert true[0] == imagined[0], "the present order is known"
    assert true != imagined
    envs[1].clone_from(envs[0])
    envs[1].reseed(8)
    assert orders_of(envs[1], 6) == first + true, "in the second period all orders are known"


@pytest.mark.parametrize("search", ["best_of:4", "beam:3", "lookahead:heuristic", "puct:6"])
def test_sub_steps_and_masks_are_searched(search: str) -> None:
    """Every search plays valid cuts only, and best_of is never worse than the policy that it samples."""
    greedy = rollout(cutting, "heuristic", episodes=2, record=(), deterministic=True)
    played = rollout(cutting, GreedyCuttingPolicy, episodes=2, search=search, record=("spaces",), deterministic=True)
    for trajectory in played:
        totals = trajectory.summary.kpis
        assert totals["raw_piece_usage_per_step"] > 0
    if search.startswith(("best_of", "lookahead")):
        assert all(ours >= theirs for ours, theirs in zip(returns(played), returns(greedy), strict=True))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_episodes_in_any_group_and_process() -> None:
    options: dict[str, Any] = {"episodes": 2, "search": "puct:4", "record": ("spaces",), "seed": 3, "max_steps": 4}
    together = rollout(cutting, "random", n_envs=2, **options)
    alone = rollout(cutting, "random", n_envs=1, **options)
    elsewhere = rollout(cutting, "random", n_envs=1, engine=ProcessEngine(n_workers=1), **options)
    for others in (alone, elsewhere):
        for one, other in zip(together, others, strict=True):
            assert one.spaces is not None and other.spaces is not None
            assert one.spaces.to_bytes() == other.spaces.to_bytes()


def test_recording_changes_nothing() -> None:
    options: dict[str, Any] = {"episodes": 2, "search": "puct:6", "max_steps": 5}
    bare = rollout(cutting, "random", record=(), **options)
    recorded = rollout(cutting, "random", record=("spaces", "states", "events"), **options)
    assert [one.summary.kpis for one in bare] == [one.summary.kpis for one in recorded]
    assert all(one.states is not None and one.spaces is not None and one.events for one in recorded)


@pytest.mark.slow
def test_statistics_of_wrappers_and_time_limits_hold_in_simulations() -> None:
    """CartPole with normalised observations, cut off after 30 steps: lookahead balances it."""
    played = rollout(
        lambda: GymMazeEnv("CartPole-v1"),
        "random",
        episodes=2,
        wrappers=[ObservationNormalizationWrapper],
        search="lookahead:random:24:horizon=25",
        max_steps=30,
        record=(),
    )
    assert returns(played) == [30.0, 30.0]


def test_environments_and_policies_that_cannot_be_searched_are_named() -> None:
    with pytest.raises(ValueError, match="search needs further environments: give a function that makes them"):
        rollout(table_env(), "random", search="puct:4")
    with pytest.raises(ConfigurationError, match=r"there is no method 'pict'.* write best_of:128"):
        rollout(table_env, "random", search="pict:4")
    with pytest.raises(SearchError, match=r"copies of the environment, but .*LunarLander.* cannot be copied"):
        rollout(lambda: GymMazeEnv("LunarLander-v3"), "random", search="puct:4")
    for search in ("puct:4", "beam:4", "lookahead:random"):
        with pytest.raises(SearchError, match=r"'action' of sub-step 0 is Box.*only best_of can search continuous"):
            SearchPolicy(FirstAllowed(), SearchOptions.parse(search), Spec.of(GymMazeEnv("Pendulum-v1")), coin_env, 0)
    with pytest.raises(ValueError, match=r"step_timeout=5.* keeps environments in separate processes"):
        rollout(table_env, "random", search="puct:4", engine=ProcessEngine(n_workers=1, step_timeout=5.0))


class Picky(gymnasium.Env[Any, Any]):
    """Accepts only actions in the type of its space, and none at all after some steps."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.MultiDiscrete([3, 2], dtype=np.int32)

    def __init__(self, n_accepted: int) -> None:
        self.n_accepted = n_accepted

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        assert self.time < self.n_accepted, "no more actions"
        self.time += 1
        return np.zeros(1, np.float32), float(action[0]), self.time == 3, False, {}


@pytest.mark.parametrize("search", ["best_of:4", "beam:4", "puct:4", "lookahead:random"])
def test_simulations_get_actions_in_the_type_of_their_space(search: str) -> None:
    policy = ES(spec=Spec.of(GymMazeEnv(Picky(3)))).policy
    assert len(rollout(lambda: GymMazeEnv(Picky(3)), policy, search=search, record=())) == 1


@pytest.mark.parametrize("search", ["best_of:4", "beam:4", "puct:4", "lookahead:random"])
def test_an_error_of_an_environment_within_a_search_is_not_one_of_the_policy(search: str) -> None:
    with pytest.raises(AssertionError, match="no more actions") as caught:
        rollout(lambda: GymMazeEnv(Picky(1)), "random", search=search, record=())
    assert any("a copy of the environment" in note for note in caught.value.__notes__)


def test_a_policy_that_does_not_fit_is_named_within_a_search() -> None:
    with pytest.raises(ValueError, match="SearchPolicy is not a policy for sub-step 0"):
        rollout(lambda: GymMazeEnv("Acrobot-v1"), DummyCartPolePolicy, search="best_of:4", record=())


def test_continuous_actions_are_sampled() -> None:
    plain = rollout(lambda: GymMazeEnv("Pendulum-v1"), "random", max_steps=10, record=())
    best = rollout(lambda: GymMazeEnv("Pendulum-v1"), "random", max_steps=10, search="best_of:30", record=())
    assert returns(best) > returns(plain)


class _Networks(torch.nn.Module):
    """Policy that notes the mode in which it acts."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout()
        self.modes: set[bool] = set()

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        self.modes.add(self.dropout.training)
        allowed = batch.observation["allowed"]
        return PolicyStep({"choice": allowed.argmax(-1)})


def test_networks_are_searched_in_evaluation_mode_and_keep_their_mode() -> None:
    env = table_env()
    spec = Spec.of(env)
    policy = _Networks()
    rule = _Networks()
    options = SearchOptions.parse("lookahead:heuristic:4")
    search = SearchPolicy(policy, options, spec, table_env, 0, rule=rule)
    observation, _ = env.reset(seed=0)
    batch = PolicyBatch(
        0,
        {name: values[np.newaxis] for name, values in observation.items()},
        np.zeros(1, np.int64),
        episode_index=np.zeros(1, np.int64),
        n_acts=np.zeros(1, np.int64),
        envs=[env],
    )
    search.act(batch)
    assert (policy.modes | rule.modes, rule.dropout.training, policy.dropout.training) == ({False}, True, True)


class Luck(gymnasium.Env[Any, Any]):
    """Ends by chance, and looks the same in all steps."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, bool(self.np_random.random() < 0.2), False, {}


def n_planned_acts() -> int:
    return sum(isinstance(one, PlannedAct) for one in gc.get_objects())


def test_plans_of_episodes_that_end_early_are_dropped() -> None:
    before = n_planned_acts()
    counts: list[int] = []
    rollout(
        lambda: GymMazeEnv(Luck()),
        "random",
        episodes=12,
        search="best_of:4:horizon=10",
        n_envs=2,
        record=(),
        receive=lambda _: counts.append(n_planned_acts() - before),
    )
    assert 0 < max(counts) < 2 * 10, "the plans of the latest two episodes at most"
