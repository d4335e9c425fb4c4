"""Policies that act while statistics are estimated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jsonargparse import ArgumentParser

from maze_pl.config.factories import Factory
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.cutting_2d import maze_env_factory
from maze_pl.envs.job_shop import job_shop_factory
from maze_pl.envs.multi_echelon_stock import PoissonDemand, StockChain, stock_factory
from maze_pl.envs.ride_hailing import central_dispatch_factory, ride_hailing_factory
from maze_pl.envs.vehicle_routing import vehicle_routing_factory
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, ResidualActionWrapper
from tests.envs.structured_example import HeapCoreEnv, NamedAction, PlanObservation, WorkObservation

CHAIN = StockChain([1, 2], PoissonDemand(5.0), backlog_costs=[9, 0], orders="box")
ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "cart pole": lambda: GymMazeEnv("CartPole-v1"),
    "cutting": lambda: maze_env_factory(10, (4, 3), (1, 2)),
    "job shop": lambda: job_shop_factory(["random(3x3)"]),
    "stock": lambda: stock_factory(CHAIN),
    "corrected stock": lambda: ResidualActionWrapper(stock_factory(CHAIN), {"order": 0.25}),
    "routes": lambda: vehicle_routing_factory(["random(6, capacity=20)"]),
    "rides": ride_hailing_factory,
    "central rides": central_dispatch_factory,
}


@pytest.mark.parametrize("make_env", ENVIRONMENTS.values(), ids=list(ENVIRONMENTS))
def test_the_heuristic_of_every_environment_acts(make_env: Callable[[], Any]) -> None:
    env = make_env()
    assert env.heuristic_policy is not None
    env = ObservationNormalizationWrapper(env, sampling_policy=env.heuristic_policy)
    env.estimate(40, seed=0)
    assert not env.missing_statistics


class Leftwards:
    """A rule without a constructor."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action": np.zeros(len(batch.agent_id), np.int64)})


def make_leftwards(env: Any, masks: Any) -> Leftwards:
    assert masks == {0: {}} and env.action_spaces_dict[0]["action"].n == 2
    return Leftwards()


def make_from_spaces(spaces: Any) -> Leftwards:
    return Leftwards()


class FromSpaces(Leftwards):
    def __init__(self, spaces: Any) -> None:
        pass


def make_wrongly(env: Any) -> Leftwards:
    len(3)  # type: ignore[arg-type]
    return Leftwards()


class Wrong(Leftwards):
    def __init__(self, env: Any) -> None:
        len(3)  # type: ignore[arg-type]


def of_class_path(name: str) -> Any:
    """A class of this module as a configuration gives it."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--policy", type=Callable[..., Leftwards])
    parsed = parser.parse_object({"policy": {"class_path": f"{__name__}.{name}"}})
    return parser.instantiate(parsed).policy


def means(policy: Any) -> list[float]:
    env = ObservationNormalizationWrapper(
        GymMazeEnv("CartPole-v1"), default_strategy_config={"axis": 0}, sampling_policy=policy
    )
    env.estimate(50, seed=0)
    found: list[float] = env.get_normalization_statistics()["observation"]["mean"].tolist()
    return found


def test_policies_classes_functions_and_their_paths_act_alike() -> None:
    expected = means(Leftwards())
    for policy in (Leftwards, f"{__name__}.Leftwards", make_leftwards, f"{__name__}.make_leftwards"):
        assert means(policy) == expected
    assert means(None) != expected


def test_a_policy_that_cannot_be_made_is_refused_with_the_names_that_are_known() -> None:
    fault = r"sampling_policy cannot make a policy: .*'spaces'; .* by name: action_spaces_dict, masks, env"
    for policy in (make_from_spaces, Factory(f"{__name__}.make_from_spaces"), of_class_path("FromSpaces")):
        with pytest.raises(ValueError, match=fault):
            means(policy)


def test_an_error_inside_of_what_makes_a_policy_is_not_one_of_its_arguments() -> None:
    for policy in (make_wrongly, Factory(f"{__name__}.make_wrongly"), of_class_path("Wrong")):
        with pytest.raises(TypeError, match=r"object of type 'int' has no len"):
            means(policy)


class PlainTarget(WorkObservation):
    """Returns a number that is not an array."""

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, Any]:
        return {**super().maze_to_space(maze_state), "target": int(maze_state["target"])}


def test_observations_may_be_numbers_that_are_not_arrays() -> None:
    actions = {"plan": NamedAction("plan"), "work": NamedAction("work", "amount_mask")}
    env = MazeEnv(HeapCoreEnv(), actions, {"plan": PlanObservation(), "work": PlainTarget()})
    normalized = ObservationNormalizationWrapper(env)
    normalized.estimate(50, seed=0)
    assert not normalized.missing_statistics


@pytest.mark.parametrize("maker", [RandomPolicy, lambda action_spaces_dict: RandomPolicy(action_spaces_dict)])
def test_random_policies_heed_masks_however_they_are_made(maker: Callable[..., Any]) -> None:
    def statistics_with(policy: Any) -> Any:
        env = ObservationNormalizationWrapper(job_shop_factory(["random(3x3)"]), sampling_policy=policy)
        env.estimate(30, seed=0)
        return env.get_normalization_statistics()

    np.testing.assert_equal(statistics_with(maker), statistics_with(None))
