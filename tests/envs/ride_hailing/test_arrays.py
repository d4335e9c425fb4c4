"""Ride hailing over arrays, number for number against environments of single episodes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayVectorEnv, SequentialVectorEnv, WeightedRewardAggregator
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.ride_hailing import (
    CentralDispatchArrayEnvironment,
    HotSpot,
    IncomeRewardAggregator,
    RideHailingArrayEnvironment,
    ServedRewardAggregator,
    VehicleRewardAggregator,
)
from tests.envs.arrays.pairs_of_forms import PairOfForms
from tests.envs.ride_hailing.small import FORMS, SHORT

ARRAYS: dict[str, Any] = {"vehicles": RideHailingArrayEnvironment, "central": CentralDispatchArrayEnvironment}
CITIES: dict[str, dict[str, Any]] = {
    "short": SHORT,
    "default": {},
    "busy": {"n_shifts": 4, "shift_hours": (0.5, 1.5), "n_nearest": 2, "city": {"n_hours": 2.0, "rate": 200.0}},
    "empty": {"n_shifts": 3, "shift_hours": (0.5, 0.6), "city": {"n_hours": 1.5, "rate": 0.0, "n_zones": 1}},
    "free": {**SHORT, "city": {"n_hours": 1.5, "rate": 60.0, "base_fare": 0.0, "size": 3.0, "n_zones": 2}},
    "odd": {**SHORT, "city": {"n_hours": 1.5, "rate": 60.0, "base_fare": 0.0, "period": 0.7, "cost_per_km": 1.0}},
    "one": {"n_shifts": 1, "shift_hours": (0.2, 0.2), "patience": (3, 3), "city": {"n_hours": 0.5, "rate": 90.0}},
}
CENTRES = [HotSpot(stops=((7, 1.0, 1.0), (9, 5.0, 5.0)), share=0.5), HotSpot(stops=((8, 0.0, 5.0),), share=0.5)]
REWARDS: list[Any] = [IncomeRewardAggregator(), IncomeRewardAggregator(0.7, 0.0), ServedRewardAggregator()]
every_form = pytest.mark.parametrize("form", list(ARRAYS))


class CarelessPair(PairOfForms):
    """Ignores masks in half of the acts."""

    def actions_of(self, key: Any) -> dict[str, np.ndarray]:
        """Actions, some of which are not allowed."""
        actions = super().actions_of(key)
        for head, values in actions.items():
            is_careless = self.random.random(self.n_envs) < 0.5
            values[is_careless] = self.random.integers(self.steps[key].action_space[head].n, size=is_careless.sum())
        return actions


def pair_of(
    form: str, n_envs: int, seed: int, pair: Any = PairOfForms, cut_short: float = 0.02, **options: Any
) -> PairOfForms:
    arrays = ARRAYS[form](**copy.deepcopy(options))
    return pair(arrays, lambda: FORMS[form](**copy.deepcopy(options)), n_envs, seed, cut_short=cut_short)


@every_form
@pytest.mark.parametrize("city", CITIES.values(), ids=CITIES)
def test_arrays_equal_single_episodes(form: str, city: dict[str, Any]) -> None:
    pair = pair_of(form, 4, seed=5, **city)
    pair.play(60)
    assert pair.n_ended


@every_form
@pytest.mark.parametrize("city", CITIES.values(), ids=CITIES)
def test_options_that_do_not_exist_make_vehicles_stay_as_in_single_episodes(form: str, city: dict[str, Any]) -> None:
    pair_of(form, 4, seed=7, pair=CarelessPair, **city).play(40)


@every_form
def test_whole_days_equal_single_episodes(form: str) -> None:
    pair = pair_of(form, 3, seed=2, cut_short=0.0, **SHORT)
    pair.play(120)
    assert pair.n_ended >= 3


CASES = st.fixed_dictionaries(
    {
        "form": st.sampled_from(list(ARRAYS)),
        "n_shifts": st.integers(1, 9),
        "shift_hours": st.sampled_from([(0.2, 0.4), (0.5, 2.0), (3.0, 3.0)]),
        "patience": st.sampled_from([(1.0, 4.0), (10.0, 20.0), (30.0, 90.0)]),
        "n_nearest": st.integers(1, 9),
        "rate": st.sampled_from([0.0, 5.0, 36.0, 300.0]),
        "n_zones": st.integers(1, 5),
        "size": st.sampled_from([2.0, 6.0, 12.0]),
        "period": st.sampled_from([2.5, 5.0, 7.0]),
        "origins": st.sampled_from([(), CENTRES]),
        "max_vehicles": st.integers(1, 4),
        "pair": st.sampled_from([PairOfForms, CarelessPair]),
        "aggregator": st.sampled_from(REWARDS),
        "seed": st.integers(0, 2**32),
    }
)


def check_generated(case: dict[str, Any], n_acts: int) -> None:
    city = {name: case[name] for name in ("rate", "n_zones", "size", "period", "origins")}
    options = {name: case[name] for name in ("n_shifts", "shift_hours", "patience", "n_nearest")}
    if case["form"] == "central":
        options["max_vehicles"] = case["max_vehicles"]
    options |= {"city": {**city, "n_hours": 1.0}, "reward_aggregator": case["aggregator"]}
    pair_of(case["form"], 3, case["seed"], pair=case["pair"], **options).play(n_acts)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(CASES)
def test_generated_cities_equal_single_episodes(case: dict[str, Any]) -> None:
    check_generated(case, 40)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(CASES)
def test_500_generated_cities_equal_single_episodes(case: dict[str, Any]) -> None:
    check_generated(case, 80)


class _Tips(VehicleRewardAggregator):
    """Rewards short waits, and penalises options that do not exist by their number."""

    def request_reward(self, fare: Any, distance: Any, waiting_time: Any) -> Any:
        return 0.1 * fare - 0.01 * waiting_time * distance

    def invalid_reward(self, option: Any) -> Any:
        return -0.3 * option


@every_form
@pytest.mark.parametrize("aggregator", [*REWARDS, _Tips()])
def test_rewards_are_equal_in_arrays(form: str, aggregator: Any) -> None:
    pair = pair_of(form, 3, seed=4, pair=CarelessPair, reward_aggregator=aggregator, **SHORT)
    total = 0.0
    for _ in range(40):
        pair.play(1)
        total += float(np.abs(pair.shown.reward).sum()) if pair.shown.reward is not None else 0.0
    assert total > 0


def test_agents_come_and_go_as_in_single_episodes() -> None:
    env = RideHailingArrayEnvironment(**SHORT)
    vector = ArrayVectorEnv(lambda: env, 2, spec=Spec.of(env, {"vehicle": 5}))
    vector.reset()
    done: list[set[int]] = [set(), set()]
    decided: list[set[int]] = [set(), set()]
    while not (vector.staging.terminated & (vector.staging.env_steps > 0)).any():
        acting = vector.staging.next_agent.tolist()
        vector.staging.action["vehicle"]["option"][:] = 6  # stay
        vector.step()
        for n, vehicle in enumerate(acting):
            assert vehicle not in done[n]
            decided[n].add(vehicle)
            if vector.staging.actor_done[n]:
                done[n].add(vehicle)
    ended = int(vector.staging.terminated.argmax())
    assert done[ended] == decided[ended] == set(range(5))


@every_form
def test_vector_environments_of_both_forms_have_equal_statistics(form: str) -> None:
    options: dict[str, Any] = {"n_shifts": 3, "shift_hours": (0.4, 0.8), "city": {"n_hours": 1.0, "rate": 60.0}}
    slots = {"vehicle": 3} if form == "vehicles" else None
    spec = Spec.of(FORMS[form](**options), slots)

    def arrays() -> ArrayVectorEnv:
        return ArrayVectorEnv(lambda: ARRAYS[form](**options), 3, spec=spec)

    def singles() -> SequentialVectorEnv:
        return SequentialVectorEnv([lambda: FORMS[form](**options)] * 3, spec=spec)

    comparison = compare_envs(arrays, singles, n_steps=300)
    assert comparison.difference is None
    assert comparison.n_episodes


@every_form
@pytest.mark.parametrize("city", ["short", "busy"])
def test_saved_arrays_continue_as_they_were(form: str, city: str) -> None:
    pair = pair_of(form, 3, seed=1, **CITIES[city])
    for n_acts in (11, 40):
        pair.play(n_acts)
        copied = ARRAYS[form](**CITIES[city])
        copied.allocate(3)
        copied.load_state_dict(copy.deepcopy(pair.arrays.state_dict()))
        pair.arrays = copied
    pair.play(60)


def test_tables_of_requests_grow_and_are_restored_with_their_size() -> None:
    pair = pair_of("central", 2, seed=3, **CITIES["busy"])
    pair.play(20)
    state = copy.deepcopy(pair.arrays.state_dict())
    assert state["waiting"].shape[1] > 16
    copied = ARRAYS["central"](**CITIES["busy"])
    copied.allocate(2)
    copied.load_state_dict(state)
    np.testing.assert_equal(copied.state_dict(), state)
    with pytest.raises(ValueError, match="resume with the code that saved it"):
        copied.load_state_dict({"waiting": state["waiting"]})


@every_form
def test_the_state_of_one_environment_is_that_of_the_simulation(form: str) -> None:
    pair = pair_of(form, 4, seed=3, **SHORT)
    for _ in range(25):
        pair.play(1)
        for n in range(4):
            ours = pair.arrays.maze_state(n)
            theirs = pair.singles[n].get_maze_state()
            for name in type(theirs).__slots__:  # dataclass fields
                if name != "city":
                    np.testing.assert_equal(getattr(ours, name), getattr(theirs, name), name)
    assert type(pair.arrays.get_renderer()) is type(pair.singles[0].get_renderer())


def test_a_day_that_is_over_is_not_continued() -> None:
    env = RideHailingArrayEnvironment(**CITIES["empty"])
    env.allocate(2)
    env.reset(np.arange(2), np.array([1, 2]))
    stay = {"vehicle": {"option": np.full(2, 6)}}
    while not env.step(stay, np.array([1])).terminated[1]:
        pass
    with pytest.raises(ValueError, match=r"the days of environments \[1\] are over; call reset first"):
        env.step(stay, slice(None))


class _ByRecord(VehicleRewardAggregator):
    """Replaces the rewards of all events."""

    def reward_of(self, record: Any) -> float:
        return 1.0


@every_form
def test_wrong_options_are_refused_as_in_single_episodes(form: str) -> None:
    for make in (ARRAYS[form], FORMS[form]):
        with pytest.raises(ValueError, match="n_shifts=0 must be at least 1"):
            make(n_shifts=0)
        with pytest.raises(ValueError, match="speed=-1 must be a number above 0"):
            make(city={"speed": -1})
    with pytest.raises(ValueError, match="max_vehicles=0 must be at least 1"):
        CentralDispatchArrayEnvironment(max_vehicles=0)
    weighted: Any = WeightedRewardAggregator({"income": IncomeRewardAggregator()}, {"income": 0.5})
    with pytest.raises(TypeError, match="WeightedRewardAggregator has no array form; derive it from Vehicle"):
        ARRAYS[form](reward_aggregator=weighted)
    with pytest.raises(TypeError, match="_ByRecord replaces reward_of, so it has no array form; implement"):
        ARRAYS[form](reward_aggregator=_ByRecord())
