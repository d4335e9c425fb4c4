"""Flat and structured vehicle routing: observations, masks, rewards, events, KPIs and copies."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from maze_pl.core.spec import Spec
from maze_pl.envs import CoreEnv, GymMazeEnv, WeightedRewardAggregator
from maze_pl.envs.checker import check_env
from maze_pl.envs.vehicle_routing import (
    DistanceRewardAggregator,
    RoutingEvents,
    RoutingInstance,
    RoutingMazeAction,
    StructuredVehicleRoutingEnvironment,
    TotalDistanceRewardAggregator,
    VehicleRoutingCoreEnvironment,
    structured_vehicle_routing_factory,
    vehicle_routing_factory,
)
from maze_pl.envs.vehicle_routing.nearest_neighbour_policy import NearestNeighbourPolicy
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from maze_pl.runs.rollout import rollout
from tests.envs.vehicle_routing.reference import FACTORIES, SQUARE, drawn, play, straight

MIXED = ["random(3-8, capacity=12)"]
BY_HAND = [1, 2, 3, 4]
every_form = pytest.mark.parametrize("form", list(FACTORIES))


def random_acts(env: Any, n_episodes: int = 2, seed: int = 0) -> list[tuple[Any, ...]]:
    """Sub-step, observation, action, next observation and reward of each act."""
    generator = np.random.default_rng(seed)
    log: list[tuple[Any, ...]] = []
    for episode in range(n_episodes):
        observation, _ = env.reset(seed=seed + episode)
        terminated = False
        while not terminated:
            key = env.actor_id().step_key
            ((head, mask),) = env.action_masks_dict[key].items()
            action = {head: int(generator.choice(np.flatnonzero(observation[mask])))}
            following, reward, terminated, *_ = env.step(action)
            log.append((key, observation, action, following, reward))
            observation = following
    return log


# -------------------------------------------------------------------------------------------------------- observations


def test_observations_by_hand() -> None:
    env = vehicle_routing_factory([SQUARE], max_customers=5)
    env.reset(seed=0)
    observation, *_ = env.step({"option": 1})  # at (4, 0), with 2 of 4 left; 2, 3 and 4 remain
    s = (4 + 5 + 3 + 2 + 3 + 5 + math.sqrt(20) + 4 + math.sqrt(41) + 5) / 10
    second = [3 / s, 5 / s, (4 + 5 - 3) / s, 0, 4 / s, 3 / s, 4 / 5, 4 / s, 0, (3 - 5) / s]
    second += [1 / 4, 2 / 4, 1 / 4, 4 / s, 1, 0, 1, 1]
    fourth = [math.sqrt(20) / s, 2 / s, (4 + 2 - math.sqrt(20)) / s, (math.sqrt(20) - 3) / s, 0, -2 / s, 0, 5 / s, 0]
    fourth += [(math.sqrt(20) - 2) / s, 3 / 4, 2 / 4, -1 / 4, 4 / s, 2 / 5, 0, 0, 1]
    depot = [4 / s, 0, 0, (4 - 3) / s, 0, 0, 0, 2 / s, 5 / s, 4 / s, 0, 2 / 4, 2 / 4, 4 / s, 0, 1, 1, 1]
    np.testing.assert_allclose(observation["options"][[2, 4, 0]], [second, fourth, depot], rtol=1e-6, atol=1e-7)
    assert not observation["options"][[1, 5]].any()
    assert observation["option_mask"].tolist() == [1, 0, 1, 1, 0, 0]
    assert observation["exists"].tolist() == [1, 0, 1, 1, 1, 0]
    loads = (6 - 2) / 4
    summary = [3 / 4, 6 / 4 / 10, loads / 10, 0, 1, (5 + 3 + 2) / 3 / s, 3 / 4, math.log(4) / 5]
    np.testing.assert_allclose(observation["summary"], summary, rtol=1e-6, atol=1e-7)


def test_at_the_depot_directions_are_relative_to_the_mean_place() -> None:
    env = vehicle_routing_factory([SQUARE])
    observation, _ = env.reset(seed=0)
    mean = np.array([8, 4]) / 4
    unit = mean / np.linalg.norm(mean)
    for customer in range(1, 5):
        place = SQUARE.coordinates[customer]
        along = place @ unit / SQUARE.scale
        across = place @ np.array([-unit[1], unit[0]]) / SQUARE.scale
        np.testing.assert_allclose(observation["options"][customer, 4:6], [along, across], rtol=1e-5, atol=1e-6)


def test_distances_to_other_vehicles_equal_a_slow_reference() -> None:
    instance = drawn("random(10)", 3)
    env = vehicle_routing_factory([instance], n_vehicles=3)
    env.reset(seed=0)
    observation: Any = None
    for vehicle, customer in ((0, 4), (1, 7), (0, 2)):
        observation, *_ = env.step({"option": vehicle * 11 + customer})
    positions = env.get_maze_state().position.tolist()
    assert positions == [2, 7, 0]
    options = observation["options"].reshape(3, 11, 18)
    exists = observation["exists"].reshape(3, 11) > 0
    for vehicle, node in zip(*np.nonzero(exists), strict=True):
        others = [straight(instance, place, node) for v, place in enumerate(positions) if v != vehicle]
        nearest = min([*others, straight(instance, 0, node)])
        own = straight(instance, positions[vehicle], node)
        assert options[vehicle, node, 9] * instance.scale == pytest.approx(own - nearest, abs=1e-6)
    assert exists[2].any()


def test_neighbours_of_each_customer_equal_a_slow_reference() -> None:
    instance = drawn("random(20)", 1)
    env = vehicle_routing_factory([instance])
    observation, _ = env.reset(seed=0)
    for customer in (5, 9, 2):
        observation, *_ = env.step({"option": customer})
    left = np.flatnonzero(env.get_maze_state().unserved).tolist()
    for customer in left:
        ways = sorted(straight(instance, customer, other) for other in left if other != customer)
        features = observation["options"][customer] * instance.scale
        assert features[7] == pytest.approx(ways[0], abs=1e-6)
        assert features[8] == pytest.approx(ways[2], abs=1e-6)


@every_form
def test_observations_do_not_depend_on_the_unit_of_distance_or_demand_or_on_the_place(form: str) -> None:
    logs = []
    first = drawn("random(10)", 0)
    moved = RoutingInstance("moved", 7 * first.coordinates + 3, 5 * first.demands, 5 * first.capacity)
    for instance in (first, moved):
        logs.append(random_acts(FACTORIES[form]([instance]), 1))
    for (_, seen, *_), (_, other, *_) in zip(*logs, strict=True):
        for name, values in seen.items():
            np.testing.assert_allclose(values, other[name], rtol=1e-4, atol=1e-5)


@every_form
def test_observations_are_in_their_spaces_and_share_no_memory(form: str) -> None:
    env = FACTORIES[form](MIXED, max_customers=10)
    log = random_acts(env, 4)
    for key, observation, *_ in log:
        assert env.observation_spaces_dict[key].contains(observation), observation
    copies = copy.deepcopy(log)
    for (_, earlier, *_), (_, later, *_) in pairwise(log):
        assert not any(np.shares_memory(a, b) for a in earlier.values() for b in later.values())
    random_acts(env, 1, seed=9)
    for (_, seen, *_), (_, kept, *_) in zip(log, copies, strict=True):
        np.testing.assert_equal(seen, kept)


@every_form
def test_the_specification_survives_being_written(form: str) -> None:
    spec = Spec.of(FACTORIES[form](MIXED))
    assert Spec.from_dict(spec.to_dict()) == spec
    assert spec.is_flat == (form == "flat")


def test_sub_steps_show_the_nearest_customer_of_each_vehicle_and_the_options_of_one() -> None:
    flat = vehicle_routing_factory(["random(10)"], n_vehicles=3)
    structured = structured_vehicle_routing_factory(["random(10)"])
    flat.reset(seed=3)
    structured.reset(seed=3)
    seen: Any = None
    first: Any = None
    for vehicle, customer in ((0, 4), (1, 7)):
        seen, *_ = flat.step({"option": vehicle * 11 + customer})
        structured.step({"vehicle": vehicle})
        first, *_ = structured.step({"node": customer})
    options = seen["options"].reshape(3, 11, 18)
    mask = seen["option_mask"].reshape(3, 11)
    assert first["vehicle_mask"].tolist() == [1, 1, 1]
    for vehicle in range(3):
        customers = [node for node in np.flatnonzero(mask[vehicle]) if node]
        nearest = min(customers, key=lambda node: options[vehicle, node, 0])
        assert first["vehicles"][vehicle].tolist() == options[vehicle, nearest].tolist()
    second, reward, *_ = structured.step({"vehicle": 1})
    assert second["nodes"].tolist() == options[1].tolist()
    assert second["node_mask"].tolist() == mask[1].tolist()
    assert second["exists"].tolist() == seen["exists"].reshape(3, 11)[1].tolist()
    assert reward == 0


def test_the_structured_environment_does_what_the_flat_one_does() -> None:
    structured = structured_vehicle_routing_factory(MIXED, n_vehicles=2)
    flat = vehicle_routing_factory(MIXED, n_vehicles=2)
    for seed in range(4):
        log = random_acts(structured, 1, seed)
        flat.reset(seed=seed)
        for (_, _, vehicle, *_), (_, _, node, following, reward) in zip(log[::2], log[1::2], strict=True):
            seen, received, *_ = flat.step({"option": vehicle["vehicle"] * 9 + node["node"]})
            assert received == reward
            assert following["summary"].tolist() == seen["summary"].tolist()
        assert flat.get_maze_state().routes == structured.get_maze_state().routes


# ---------------------------------------------------------------------------------------- rewards, events, ends, KPIs


def rewards_of(aggregator: Any) -> list[float]:
    env = vehicle_routing_factory([SQUARE], reward_aggregator=aggregator)
    env.reset(seed=0)
    return [env.step({"option": customer})[1] for customer in BY_HAND]


def test_rewards_by_hand() -> None:
    bound = 2 * (2 * 4 + 1 * 5 + 2 * 3 + 3 * 2) / 4
    assert bound == SQUARE.bound == 12.5
    assert rewards_of(None) == [-4, -8, -6, -4]
    assert rewards_of(DistanceRewardAggregator(relative=True)) == [-4 / bound, -8 / bound, -6 / bound, -4 / bound]
    assert rewards_of(TotalDistanceRewardAggregator()) == [0, 0, 0, -22]
    assert rewards_of(TotalDistanceRewardAggregator(relative=True)) == [0, 0, 0, -22 / bound]
    parts = {"distance": DistanceRewardAggregator(), "total": TotalDistanceRewardAggregator()}
    assert rewards_of(WeightedRewardAggregator(parts, {"total": 0.5})) == [-4, -8, -6, -15]


@every_form
def test_rewards_add_up_to_minus_the_distance(form: str) -> None:
    env = FACTORIES[form](MIXED)
    for seed in range(3):
        rewards = [act[4] for act in random_acts(env, 1, seed)]
        assert sum(rewards) == pytest.approx(-env.get_maze_state().length)
        assert max(rewards) <= 0


@every_form
def test_kpis_and_statistics_of_an_episode_by_hand(form: str) -> None:
    env = LogStatsWrapper(FACTORIES[form]([SQUARE], n_vehicles=1))
    play(env, NearestNeighbourPolicy(env.action_spaces_dict))
    (summary,) = env.drain_episode_summaries()
    routes = env.get_maze_state().routes
    assert routes == [[4, 2], [3, 1]]  # 4 is nearest, then only 2 fits
    length = sum(straight(SQUARE, i, j) for route in routes for i, j in pairwise([0, *route, 0]))
    assert summary.reward == pytest.approx(-length)
    assert summary.kpis == {
        "distance": pytest.approx(length),
        "gap_percent": pytest.approx(100 * (length / 16 - 1)),
        "bound_gap_percent": pytest.approx(100 * (length / 12.5 - 1)),
        "n_routes": len(routes),
        "mean_load": pytest.approx(8 / (4 * len(routes))),
    }


def test_an_instance_without_a_solution_has_no_gap_to_it() -> None:
    env = LogStatsWrapper(vehicle_routing_factory(["random(10)"]))
    play(env, NearestNeighbourPolicy(env.action_spaces_dict))
    (summary,) = env.drain_episode_summaries()
    assert set(summary.kpis) == {"distance", "bound_gap_percent", "n_routes", "mean_load"}


def test_an_episode_that_is_cut_off_has_no_kpis() -> None:
    env = LogStatsWrapper(TimeLimitWrapper(vehicle_routing_factory([SQUARE]), max_episode_steps=2))
    env.reset(seed=0)
    env.step({"option": 1})
    *_, terminated, truncated, _ = env.step({"option": 2})
    assert (terminated, truncated) == (False, True)
    (summary,) = env.drain_episode_summaries()
    assert not summary.kpis


def test_events_of_a_step_and_of_the_end() -> None:
    env = vehicle_routing_factory([SQUARE])
    env.reset(seed=0)
    assert env.get_step_events() == []
    env.step({"option": 1})
    assert [record.event.__name__ for record in env.get_step_events()] == ["customer_served", "reward"]
    for customer in BY_HAND[1:]:
        env.step({"option": customer})
    records = {record.event: record.attributes for record in env.get_step_events()}
    assert records[RoutingEvents.customer_served] == {"vehicle": 0, "customer": 4, "demand": 3, "distance": 2.0}
    assert records[RoutingEvents.vehicle_returned] == {"vehicle": 0, "distance": 2.0, "load": 0.75}
    assert records[RoutingEvents.routes_completed] == {"distance": 22.0, "n_routes": 3}


@pytest.mark.parametrize("option", [0, 5, -1, 9])
def test_a_choice_that_is_not_allowed_is_replaced_and_reported(option: int) -> None:
    env = vehicle_routing_factory([SQUARE], max_customers=6)
    env.reset(seed=0)
    *_, info = env.step({"option": option})
    assert info == {"error": "move_not_allowed"}
    names = [record.event.__name__ for record in env.get_step_events()]
    assert names == ["invalid_choice", "customer_served", "reward"]
    assert env.get_maze_state().routes == [[4]]


def test_a_structured_choice_of_a_vehicle_that_does_not_exist_is_replaced() -> None:
    env = structured_vehicle_routing_factory([SQUARE])
    env.reset(seed=0)
    observation, *_ = env.step({"vehicle": 7})
    assert not observation["nodes"].any()
    assert not observation["node_mask"].any()
    *_, info = env.step({"node": 0})
    assert info == {"error": "move_not_allowed"}


def test_time_moves_and_both_actors_are_credited_when_the_vehicle_moves() -> None:
    env = structured_vehicle_routing_factory([SQUARE], n_vehicles=1)
    env.reset(seed=0)
    for time, (customer, reward) in enumerate(zip(BY_HAND, [-4, -8, -6, -4], strict=True)):
        env.step({"vehicle": 0})
        assert (env.get_env_time(), env.actor_id(), env.is_actor_done()) == (time, (1, 0), False)
        _, received, *_ = env.step({"node": customer})
        assert (env.get_env_time(), env.actor_id(), received) == (time + 1, (0, 0), reward)
        assert env.get_actor_rewards().tolist() == [reward / 2, reward / 2]


def test_complete_routes_must_be_reset() -> None:
    core_env = VehicleRoutingCoreEnvironment([SQUARE])
    for customer in BY_HAND:
        core_env.step(RoutingMazeAction(0, customer))
    with pytest.raises(ValueError, match="all customers of square are served; call reset first"):
        core_env.step(RoutingMazeAction(0, 1))
    assert core_env.get_env_time() == 3
    core_env.reset()
    assert core_env.get_env_time() == 0


def test_a_step_without_an_episode_is_refused() -> None:
    with pytest.raises(ResetNeeded, match="called before reset"):
        structured_vehicle_routing_factory([SQUARE]).step({"vehicle": 0})


# ---------------------------------------------------------------------------------------- seeds, copies, conversions


@every_form
def test_the_same_seed_gives_the_same_episode_and_another_one_another(form: str) -> None:
    first, second = FACTORIES[form](MIXED), FACTORIES[form](MIXED)
    random_acts(second, seed=7)
    np.testing.assert_equal(random_acts(first, seed=3), random_acts(second, seed=3))
    assert str(random_acts(first, seed=3)) != str(random_acts(first, seed=4))


def test_each_instance_is_drawn_about_equally_often() -> None:
    instances = [RoutingInstance(name, [(0, 0), (1, 1)], [0, 1], 1) for name in "abcd"]
    env = vehicle_routing_factory(instances)
    names = []
    for seed in range(80):
        env.reset(seed=seed)
        names.append(env.get_maze_state().instance.name)
    assert min(names.count(name) for name in "abcd") > 9


@every_form
def test_an_environment_takes_over_the_state_of_another(form: str) -> None:
    env, other = FACTORIES[form](MIXED), FACTORIES[form](MIXED)
    for n_acts in (0, 1, 2):
        observation, _ = env.reset(seed=1)
        for _ in range(n_acts):
            observation, *_ = _first_allowed(env, observation)
        other.reset(seed=2)
        other.clone_from(env)
        assert other.core_env.simulation is not env.core_env.simulation
        copied = copy.deepcopy(observation)
        terminated = False
        while not terminated:
            observation, reward, terminated, *_ = _first_allowed(env, observation)
            copied, received, *_ = _first_allowed(other, copied)
            np.testing.assert_equal(observation, copied)
            assert reward == received
        np.testing.assert_equal(env.reset()[0], other.reset()[0])  # also the generator


def _first_allowed(env: Any, observation: dict[str, np.ndarray]) -> tuple[Any, ...]:
    ((head, mask),) = env.action_masks_dict[env.actor_id().step_key].items()
    result: tuple[Any, ...] = env.step({head: int(observation[mask].argmax())})
    return result


@every_form
def test_recorded_states_and_actions_are_converted_back(form: str) -> None:
    env = FACTORIES[form](MIXED)
    observation, _ = env.reset(seed=0)
    state = env.get_maze_state()
    taken = {}
    seen = {}
    for _ in range(1 if form == "flat" else 2):
        key = env.actor_id().step_key
        ((head, mask),) = env.action_masks_dict[key].items()
        taken[key] = {head: int(observation[mask].argmax())}
        seen[key] = observation
        observation, *_ = env.step(taken[key])
    observations, actions = env.get_observation_and_action_dicts(state, env.get_maze_action(), True)
    np.testing.assert_equal(observations, seen)
    assert actions == taken
    assert env.get_observation_and_action_dicts(None, None, False) == (None, None)


@every_form
def test_states_are_pickled_and_do_not_change(form: str) -> None:
    env = FACTORIES[form](MIXED)
    env.reset(seed=0)
    state = env.get_maze_state()
    before = pickle.dumps(state)
    random_acts(env, 1)
    assert pickle.dumps(state) == before
    assert pickle.loads(before).allowed.tolist() == state.allowed.tolist()


@every_form
def test_results_do_not_depend_on_the_number_of_environments(form: str) -> None:
    def summaries(n_envs: int) -> list[float]:
        made = partial(FACTORIES[form], MIXED)
        return [one.summary.reward for one in rollout(made, "heuristic", episodes=4, n_envs=n_envs, seed=2)]

    assert summaries(1) == summaries(3)


@every_form
def test_the_doctor_finds_nothing_wrong(form: str) -> None:
    env = FACTORIES[form](MIXED, max_customers=10, reward_aggregator=DistanceRewardAggregator(relative=True))
    report = check_env(env, n_steps=200)
    assert [line for line in report.lines if line.verdict not in ("ok", "skipped") and line.name != "events"] == []
    warnings = {line.explanation for line in report.lines if line.verdict == "warning"}
    without_value = "declared in kpi_names, but without a value in all episodes: gap_percent"  # if no optimum is known
    assert warnings - {without_value} == {"never fired: RoutingEvents.invalid_choice"}  # masks exclude it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_customers": 3}, "max_customers=3 is less than the 8 of the largest instance"),
        ({"n_vehicles": 0}, "n_vehicles=0 must be at least 1"),
    ],
)
def test_wrong_options_get_one_message(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vehicle_routing_factory(MIXED, **options)


def test_other_environments_are_not_wrapped() -> None:
    with pytest.raises(ValueError, match="wraps flat vehicle routing"):
        StructuredVehicleRoutingEnvironment(GymMazeEnv("CartPole-v1"))


def test_the_simulation_is_a_core_environment_without_torch() -> None:
    assert issubclass(VehicleRoutingCoreEnvironment, CoreEnv)
    code = "import sys, maze_pl.envs.vehicle_routing; assert not {'torch', 'matplotlib', 'pyvrp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_aggregator_that_all_environments_of_a_function_share_is_refused() -> None:
    make = partial(vehicle_routing_factory, ["random(10)"], reward_aggregator=DistanceRewardAggregator())
    with pytest.raises(ValueError, match="the same DistanceRewardAggregator was given to two environments"):
        rollout(make, "random", episodes=2, n_envs=2)
