"""Rules for dispatching: choices by hand, and the best assignment by enumeration."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.ride_hailing import City, RideHailingSimulation, ride_hailing_factory
from maze_pl.envs.ride_hailing.dispatching_rule_policy import DispatchingRulePolicy
from maze_pl.runs.rollout import rollout
from tests.envs.ride_hailing.small import FORMS, SHORT, begun

SPACES = ride_hailing_factory(**SHORT).action_spaces_dict


def choice(state: Any, rule: Any, **options: Any) -> int:
    return DispatchingRulePolicy(SPACES, rule, **options).choose(state)


def test_choices_by_hand() -> None:
    # seen from (1, 1): 1 km to a trip of 1 km; 3 km to a trip of 6 km, which has waited longer
    simulation = begun([[30, 2, 1, 2, 2], [30, 4, 1, 4, 7]], [[1, 1], [2, 2]])
    simulation.waiting[1, 0] = -8
    state = simulation.state()
    assert choice(state, "nearest") == 0
    assert choice(state, "longest_waiting") == 1
    # 2 km cost 5 minutes, 9 km cost 22.5 minutes: the values are 3.9 - 5 v and 9.3 - 22.5 v
    assert choice(state, "longest_waiting", value_of_time=0.5) == 0
    assert choice(state, "nearest", value_of_time=0.9) == 6
    # the first request is nearer, but the other vehicle can serve only this one without a detour
    simulation = begun([[30, 2, 1, 2, 2], [30, 4, 1, 4, 7]], [[2.9, 1], [1, 1]])
    assert choice(simulation.state(), "nearest") == 0
    assert choice(simulation.state(), "batch") == 1


def test_the_batch_is_the_best_assignment() -> None:
    generator = np.random.default_rng(0)
    for _ in range(10):
        places = generator.random((3, 2)) * 8
        requests = [[9.0, *generator.random(4) * 8] for _ in range(4)]
        simulation = begun(requests, places.tolist())
        policy = DispatchingRulePolicy(SPACES, "batch", value_of_time=0.1)
        state = simulation.state()
        values = np.zeros((3, 4 + 3))  # three columns for no request
        for vehicle in range(3):
            reached = state.nearest(vehicle)
            km = state.pickup_distances(vehicle) + state.waiting[:, 6]
            gain = 3 + 1.5 * state.waiting[:, 6] - 0.3 * km - 0.1 * km / 0.4
            values[vehicle, reached] = gain[reached]
        best = max(sum(values[v, c] for v, c in enumerate(columns)) for columns in permutations(range(7), 3))
        total = 0.0
        while simulation.undecided:
            state = simulation.state()
            option = policy.choose(state)
            if option == state.n_nearest:
                simulation.stay(0)
                continue
            drive = simulation.accept(0, int(state.nearest(state.undecided[0])[option]))
            km = drive.empty + drive.trip
            total += drive.fare - 0.3 * km - 0.1 * km / 0.4
        assert total == pytest.approx(best)


def test_vehicles_without_a_request_drive_to_the_best_zone() -> None:
    city = City(size=8.0, n_zones=2, origins=(), n_hours=2.0)
    simulation = RideHailingSimulation(city, n_shifts=1)
    simulation.positions[0] = [1, 1]
    simulation.waiting = simulation.waiting[:0]
    city.forecast[:] = [0.5, 1.0, 0.2, 3.0]
    state = simulation.state()
    assert choice(state, "batch") == 6
    assert choice(state, "batch", reposition=True) == 8  # to the east, on the way to zone 3
    assert choice(state, "batch", reposition=True, distance_weight=1.0) == 6


def test_unknown_rules_and_batches_without_states_are_refused() -> None:
    with pytest.raises(ValueError, match="rule='random' is unknown; known rules are nearest"):
        DispatchingRulePolicy(SPACES, "random")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs the states of the simulation"):
        DispatchingRulePolicy(SPACES).act(PolicyBatch("vehicle", {}, np.zeros(1)))


@pytest.mark.parametrize(
    "heads", [{"option": spaces.Discrete(10)}, {"pair": spaces.Discrete(21)}, {"vehicle": spaces.Discrete(11)}]
)
def test_heads_of_another_size_or_name_are_refused(heads: dict[str, Any]) -> None:
    state = begun([[30, 2, 1, 2, 2]], [[1, 1]]).state()  # with 6 requests and 5 moves
    policy = DispatchingRulePolicy({0: spaces.Dict(heads)})
    with pytest.raises(ValueError, match="DispatchingRulePolicy gives actions of"):
        policy.act(PolicyBatch(0, {}, np.zeros(1), maze_state=[state]))


def test_the_heuristic_of_both_forms_plays_the_same_days() -> None:
    returns = []
    for form, factory in FORMS.items():
        max_agents = {"vehicle": 5} if form == "vehicles" else None
        episodes = rollout(partial(factory, **SHORT), "heuristic", episodes=2, max_agents=max_agents)
        returns.append([one.summary.reward for one in episodes])
    assert returns[0] == pytest.approx(returns[1])
