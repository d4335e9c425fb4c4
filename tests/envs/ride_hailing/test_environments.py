"""Vehicles that come and go, and the central dispatcher: acts, rewards, events, KPIs, copies."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from maze_pl.core.spec import Spec
from maze_pl.envs import WeightedRewardAggregator
from maze_pl.envs.checker import check_env
from maze_pl.envs.ride_hailing import (
    CentralDispatchCoreEnvironment,
    CentralDispatchEnvironment,
    HotSpot,
    IncomeRewardAggregator,
    RideEvents,
    RideHailingCoreEnvironment,
    RideHailingEnvironment,
    RideHailingMazeAction,
    ServedRewardAggregator,
)
from maze_pl.envs.wrappers import LogStatsWrapper
from tests.envs.ride_hailing.small import EMPTY, FORMS, SHORT, begun, random_acts

every_form = pytest.mark.parametrize("form", list(FORMS))
WAITING = [[30.0, 4, 1, 4, 7], [30.0, 1, 3, 1, 3]]
PLACES = [[1.0, 1.0], [7.0, 7.0]]


def begun_core(**options: Any) -> RideHailingCoreEnvironment:
    """Two vehicles and two requests at time 0."""
    core_env = RideHailingCoreEnvironment(begun(WAITING, PLACES), **options)
    core_env._find_actor()
    return core_env


def test_agents_come_and_go_and_do_not_return() -> None:
    env = FORMS["vehicles"](**SHORT)
    log = random_acts(env, 1)
    done = set()
    for actor, *_, is_done in log:
        assert actor.step_key == "vehicle"
        assert actor.agent_id not in done
        if is_done:
            done.add(actor.agent_id)
    assert len(done) == 5
    assert env.agent_counts_dict == {"vehicle": -1}


@every_form
def test_observations_are_in_their_spaces_and_are_not_changed_later(form: str) -> None:
    env = FORMS[form](**SHORT)
    log = random_acts(env, 2)
    copies = copy.deepcopy(log)
    random_acts(env, 1, seed=9)
    for (actor, observation, *_), (_, kept, *_) in zip(log, copies, strict=True):
        assert env.observation_spaces_dict[actor.step_key].contains(observation)
        np.testing.assert_equal(observation, kept)


def test_numbers_of_options_by_hand() -> None:
    env = RideHailingEnvironment(begun_core())
    state = env.core_env.get_maze_state()
    observation = env.observation_conversion_dict["vehicle"].maze_to_space(state)
    assert observation["option_mask"].tolist() == [1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1]
    near, far = observation["options"][:2]
    assert near[[0, 1, 2]].tolist() == [1, 0, 0]
    # 2 km to a trip of 0 km: fare 3, cost 0.6, 5 minutes; patience of 35 minutes, 5 of them over
    expected = [2 / 5, 0, 0.24, 2.4 / 5, 5 / 35, 0, 5 / 30, -0.75, -0.25, 0]
    np.testing.assert_allclose(near[3:13], expected, rtol=1e-6, atol=1e-7)
    assert near[15:].tolist() == pytest.approx([2.0, 0, 55 / 240])
    assert far[4] == pytest.approx(6 / 5)
    assert far[15:].tolist() == pytest.approx([9 / 5, 0, 37.5 / 240])
    east = observation["options"][8]
    np.testing.assert_allclose(east[[2, 3, 5, 9, 10, 11]], [1, 0.4, -0.06, 1 / 6, -0.25, -0.75], rtol=1e-6)


def test_rewards_of_vehicles_by_hand() -> None:
    core_env = begun_core()
    _, reward, *_ = core_env.step(RideHailingMazeAction(0, 1))
    assert (reward, core_env.actor_id(), core_env.get_env_time()) == (0.0, ("vehicle", 1), 0)
    _, reward, terminated, *_ = core_env.step(RideHailingMazeAction(0, 7))  # to the west
    income = 12 - 0.3 * 9
    assert core_env.get_actor_rewards() == pytest.approx([income, -0.6])
    assert reward == pytest.approx(income - 0.6)
    assert (core_env.get_env_time(), terminated) == (1, False)
    names = [record.event.__name__ for record in core_env.pubsub.get_step_events()]
    assert names == ["driven_empty", "request_accepted", "driven_empty"]


def test_other_aggregators() -> None:
    core_env = begun_core(reward_aggregator=ServedRewardAggregator())
    core_env.step(RideHailingMazeAction(0, 0))
    assert core_env.step(RideHailingMazeAction(0, 6))[1] == 1
    parts = {"income": IncomeRewardAggregator(), "served": ServedRewardAggregator()}
    core_env = begun_core(reward_aggregator=WeightedRewardAggregator(parts, {"served": 2.0}))
    core_env.step(RideHailingMazeAction(0, 0))
    assert core_env.step(RideHailingMazeAction(0, 6))[1] == pytest.approx(3 - 0.6 + 2)
    assert core_env.get_actor_rewards() is None
    with pytest.raises(ValueError, match="overtime_cost=-1 must be a number of at least 0"):
        IncomeRewardAggregator(overtime_cost=-1)


@every_form
def test_the_reward_has_the_cost_of_driving_in_the_city(form: str) -> None:
    returns: dict[str, float] = {}
    city = {**SHORT["city"], "cost_per_km": 1.0}
    income = IncomeRewardAggregator()
    aggregators = {
        "of the city": None,
        "nested": WeightedRewardAggregator({"income": income}),
        "given": IncomeRewardAggregator(1.0),
        "another": IncomeRewardAggregator(0.3),
    }
    for name, aggregator in aggregators.items():
        env = FORMS[form](**{**SHORT, "city": city, "reward_aggregator": aggregator})
        returns[name] = sum(reward for _, _, _, reward, _ in random_acts(env))
    assert returns["of the city"] == returns["given"]
    assert returns["nested"] == pytest.approx(returns["given"])
    assert returns["another"] > returns["given"] + 10


@every_form
def test_passengers_without_fare_and_trip_count(form: str) -> None:
    spots = [HotSpot(stops=((7, 0.0, 0.0),), spread=1.0, share=0.9)]  # clipped to the corner
    city = {"base_fare": 0.0, "origins": spots, "destinations": spots, "n_hours": 2.0, "rate": 60.0}
    options = {"n_shifts": 4, "city": city, "reward_aggregator": ServedRewardAggregator()}
    env = FORMS[form](**options)
    observation, _ = env.reset(seed=0)
    total, n_accepted, terminated = 0.0, 0, False
    while not terminated:
        ((head, mask),) = env.action_masks_dict[env.actor_id().step_key].items()
        choice = int(np.flatnonzero(observation[mask])[0])
        n_accepted += choice % (env.core_env.simulation.n_nearest + 5) < env.core_env.simulation.n_nearest
        observation, reward, terminated, *_ = env.step({head: choice})
        total += reward
    assert total == n_accepted > 10


@pytest.mark.parametrize("option", [2, -1, 11, 7])
def test_an_option_that_does_not_exist_makes_the_vehicle_stay(option: int) -> None:
    core_env = begun_core()
    *_, info = core_env.step(RideHailingMazeAction(0, option))
    assert info == {"error": "no_such_option"}
    (record,) = core_env.pubsub.get_step_events()
    assert record.event is RideEvents.invalid_choice
    assert core_env.simulation.positions[0].tolist() == PLACES[0]


def test_the_dispatcher_chooses_any_vehicle_and_time_waits_for_all() -> None:
    core_env = CentralDispatchCoreEnvironment(begun(WAITING, PLACES))
    env = CentralDispatchEnvironment(core_env, max_vehicles=2)
    action = env.action_conversion_dict[0].space_to_maze({"pair": 11 + 6}, core_env.get_maze_state())
    assert action == RideHailingMazeAction(1, 6)
    assert env.action_conversion_dict[0].maze_to_space(action) == {"pair": 17}
    core_env.step(action)
    assert core_env.simulation.undecided == [0]
    assert core_env.simulation.now == 0
    _, reward, *_ = core_env.step(RideHailingMazeAction(0, 0))
    assert reward == pytest.approx(2.4)
    assert core_env.simulation.now == 5


@every_form
def test_rewards_and_kpis_agree_with_the_events(form: str) -> None:
    env = LogStatsWrapper(FORMS[form](**SHORT))
    log = random_acts(env, 1)
    (summary,) = env.drain_episode_summaries()
    assert summary.reward == pytest.approx(sum(act[3] for act in log))
    assert summary.env_steps == env.get_env_time()
    kpis = summary.kpis
    state = env.core_env.get_maze_state()
    hours = (state.shift_end - state.shift_start).sum() / 60
    assert 0 < kpis["served_share"] < 1
    assert 0 < kpis["mean_waiting_time"] < 20
    assert 0 < kpis["empty_share"] < 1
    assert kpis["income_per_vehicle_hour"] * hours >= summary.reward


@every_form
def test_the_same_seed_gives_the_same_day_and_a_copy_continues_like_the_original(form: str) -> None:
    first, second = FORMS[form](**SHORT), FORMS[form](**SHORT)
    random_acts(second, 1, seed=7)
    np.testing.assert_equal(random_acts(first, seed=3), random_acts(second, seed=3))
    observation, _ = first.reset(seed=1)
    second.reset(seed=2)
    second.clone_from(first)
    ((head, mask),) = first.action_masks_dict[first.actor_id().step_key].items()
    terminated = False
    while not terminated:
        action = {head: int(np.flatnonzero(observation[mask])[0])}
        observation, reward, terminated, *_ = first.step(action)
        other, other_reward, *_ = second.step(action)
        np.testing.assert_equal(observation, other)
        assert (reward, first.actor_id()) == (other_reward, second.actor_id())


@every_form
def test_the_specification_survives_being_written(form: str) -> None:
    spec = Spec.of(FORMS[form](**SHORT), None if form == "central" else {"vehicle": 5})
    assert Spec.from_dict(spec.to_dict()) == spec


@pytest.mark.slow
@every_form
def test_the_doctor_finds_nothing_wrong(form: str) -> None:
    report = check_env(FORMS[form](n_shifts=3, shift_hours=(0.5, 0.6), city={"n_hours": 0.7}), n_steps=100)
    assert [line for line in report.lines if line.verdict not in ("ok", "skipped") and line.name != "events"] == []
    (warning,) = [line.explanation for line in report.lines if line.verdict == "warning"]
    assert warning == "never fired: RideEvents.invalid_choice"  # masks exclude it


def test_a_day_that_is_over_must_be_reset() -> None:
    core_env = RideHailingCoreEnvironment(begun([], [[1.0, 1.0]]))
    terminated = False
    while not terminated:
        _, _, terminated, *_ = core_env.step(RideHailingMazeAction(0, 6))
    assert core_env.simulation.now == EMPTY.minutes
    with pytest.raises(ValueError, match="the day is over; call reset first"):
        core_env.step(RideHailingMazeAction(0, 6))
    with pytest.raises(ValueError, match="max_vehicles=0 must be at least 1"):
        CentralDispatchEnvironment(CentralDispatchCoreEnvironment(), max_vehicles=0)
