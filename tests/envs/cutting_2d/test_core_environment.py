"""The simulation by itself, stepped as the first scripts of the tutorial do."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from maze_pl.envs.cutting_2d import (
    Cutting2DCoreEnvironment,
    Cutting2dKpiCalculator,
    Cutting2DMazeAction,
    Cutting2DMazeState,
    Cutting2DRenderer,
    CuttingEvents,
    DefaultRewardAggregator,
    InventoryEvents,
    RawPieceUsageRewardAggregator,
    maze_env_factory,
)
from maze_pl.envs.wrappers import LogStatsWrapper
from maze_pl.events import BaseEnvEvents, EpochStatistics
from tests.envs.cutting_2d.instances import CYCLE, MIXED, valid_cuts

UPRIGHT = Cutting2DMazeAction(piece_id=0, rotate=False, reverse_cutting_order=False)
TURNED_AND_REVERSED = Cutting2DMazeAction(piece_id=0, rotate=True, reverse_cutting_order=True)
NO_PIECE = Cutting2DMazeAction(piece_id=3, rotate=False, reverse_cutting_order=False)
TOO_SMALL = Cutting2DMazeAction(piece_id=1, rotate=False, reverse_cutting_order=False)

# (action, stock afterwards, reward, events) for a stock of 3, raw pieces of 4 x 3, and orders (1, 2), (2, 2) in turns.
BY_HAND: list[tuple[Cutting2DMazeAction, list[tuple[int, int]], float, list[str]]] = [
    (UPRIGHT, [(3, 3), (1, 1), (4, 3)], -2, ["piece_replenished", "valid_cut", "piece_replenished"]),
    (NO_PIECE, [(3, 3), (1, 1), (4, 3)], -2, ["invalid_piece_selected"]),
    (TOO_SMALL, [(3, 3), (1, 1), (4, 3)], -2, ["invalid_cut"]),
    (UPRIGHT, [(4, 3), (1, 3), (2, 1)], 0, ["piece_discarded", "valid_cut"]),
    (
        TURNED_AND_REVERSED,
        [(4, 2), (2, 1), (4, 3)],
        -1,
        ["piece_discarded", "valid_cut", "piece_discarded", "piece_replenished"],
    ),
]


# (piece, rotate) for the documented cycle: 3 x 3 and 1 x 1 are left first, then 2 x 3, 1 x 1 and 1 x 1, and so on.
ALL_OF_A_RAW_PIECE = [(0, False), (0, False), (0, False), (1, False), (2, True), (1, False)]


def make(**arguments: Any) -> Cutting2DCoreEnvironment:
    return Cutting2DCoreEnvironment(
        **{"max_pieces_in_inventory": 3, "raw_piece_size": (4, 3), "static_demand": [(1, 2), (2, 2)], **arguments}
    )


def names(env: Cutting2DCoreEnvironment) -> list[str]:
    return [record.event.__name__ for record in env.pubsub.get_step_events()]


def test_the_first_script_of_the_tutorial() -> None:
    env = Cutting2DCoreEnvironment(max_pieces_in_inventory=200, raw_piece_size=(100, 100), static_demand=(30, 15))
    state = env.reset()
    assert (state.inventory, state.current_demand) == ([(100, 100)], (30, 15))
    results = [env.step(UPRIGHT) for _ in range(11)]
    # Two raw pieces in the first step: the one of the reset, and the one in place of that which was cut.
    assert [result[1] for result in results[:5]] == [-2, 0, 0, -1, 0]
    assert [result[2:] for result in results[:10]] == [(False, False, {"msg": "valid_cut"})] * 10
    assert results[10][1:] == (-2, False, False, {"error": "invalid_cut"})  # the oldest piece is too small by now
    assert results[0][0].inventory == [(70, 100), (30, 85), (100, 100)]
    assert results[1][0].inventory == [(30, 85), (100, 100), (40, 100), (30, 85)]


def test_five_steps_by_hand() -> None:
    env = make()
    for _ in range(2):
        env.reset()
        for step, (action, stock, reward, events) in enumerate(BY_HAND):
            assert env.current_demand == [(1, 2), (2, 2)][step % 2]  # whether or not the cut before was valid
            state, received, *_ = env.step(action)
            assert (state.inventory, received) == (stock, reward)
            assert names(env) == [*events, "pieces_in_inventory"]
            assert env.get_env_time() == step


def test_info_says_what_came_of_an_action() -> None:
    env = make()
    infos = [env.step(action)[4] for action, *_ in BY_HAND[:3]]
    assert infos == [{"msg": "valid_cut"}, {"error": "piece_id_out_of_bounds"}, {"error": "invalid_cut"}]
    assert env.step(Cutting2DMazeAction(-1, False, False))[4] == {"error": "piece_id_out_of_bounds"}


def test_events_tell_sizes() -> None:
    env = make()
    env.step(UPRIGHT)
    sizes = {"current_demand": (1, 2), "piece_to_cut": (4, 3), "raw_piece_size": (4, 3)}
    (valid,) = env.pubsub.query_events(CuttingEvents.valid_cut)
    assert valid.attributes == {**sizes, "cutting_area": 2.0}
    env.step(NO_PIECE)
    env.step(TOO_SMALL)
    (invalid,) = env.pubsub.query_events(CuttingEvents.invalid_cut)
    assert invalid.attributes == {**sizes, "piece_to_cut": (1, 1)}
    (count,) = env.pubsub.query_events(InventoryEvents.pieces_in_inventory)
    assert count.attributes == {"value": 3}
    env.step(UPRIGHT)
    (discarded,) = env.pubsub.query_events(InventoryEvents.piece_discarded)
    assert discarded.attributes == {"piece": (1, 1)}


@pytest.mark.parametrize(
    ("aggregator", "rewards"),
    [
        (DefaultRewardAggregator(), [-2, -2, -2, 0, -1]),
        (DefaultRewardAggregator(invalid_action_penalty=-5, raw_piece_usage_penalty=-0.5), [-1, -5, -5, 0, -0.5]),
        (RawPieceUsageRewardAggregator(reward_scale=0.1), [-0.2, 0, 0, 0, -0.1]),
    ],
)
def test_rewards_are_computed_from_events_by_what_one_likes(aggregator: Any, rewards: list[float]) -> None:
    env = make(reward_aggregator=aggregator)
    env.reset()
    received = [env.step(action)[1] for action, *_ in BY_HAND]
    assert received == rewards
    assert all(type(reward) is float for reward in received)
    assert str(received[3]) == "0.0"


def test_a_state_stays_as_it_was_when_the_simulation_goes_on() -> None:
    env = make()
    first = env.reset()
    again = env.get_maze_state()
    env.step(UPRIGHT)
    assert first == again == Cutting2DMazeState([(4, 3)], 3, (1, 2), (4, 3))
    again.inventory.clear()
    assert env.inventory.pieces == BY_HAND[0][1]


def test_the_same_seed_gives_the_same_episodes() -> None:
    def play(env: Cutting2DCoreEnvironment) -> list[Cutting2DMazeState]:
        env.seed(5)
        states = []
        for _ in range(2):
            states.append(env.reset())
            for step in range(300):
                cuts = valid_cuts(states[-1])
                states.append(env.step(cuts[step % len(cuts)])[0])
        return states

    env = Cutting2DCoreEnvironment(**MIXED)
    first = play(env)
    assert first == play(env) == play(Cutting2DCoreEnvironment(**MIXED))
    assert [state.current_demand for state in first[:301]] != [state.current_demand for state in first[301:]]


def test_a_pickled_copy_goes_on_like_the_original() -> None:
    env = Cutting2DCoreEnvironment(**MIXED)
    env.seed(1)
    env.reset()
    for step in range(300):
        if step == 140:
            copy = pickle.loads(pickle.dumps(env))
        action = valid_cuts(env.get_maze_state())[0]
        result = env.step(action)
        if step >= 140:
            assert copy.step(action) == result
            assert names(env) == names(copy)


def test_renderer_kpis_and_actor_are_those_of_the_simulation() -> None:
    env = make()
    assert isinstance(env.get_renderer(), Cutting2DRenderer)
    assert isinstance(env.get_kpi_calculator(), Cutting2dKpiCalculator)
    assert env.actor_id() == (0, 0)
    assert env.agent_counts_dict == {0: 1}
    assert not env.is_actor_done()
    env.close()
    env.close()


def test_statistics_of_an_episode() -> None:
    env = LogStatsWrapper(maze_env_factory(3, (4, 3), [(1, 2), (2, 2)]))
    env.reset(seed=0)
    for action, *_ in BY_HAND:
        env.step(env.action_conversion.maze_to_space(action))
    env.close_episode()
    (summary,) = env.drain_episode_summaries()
    assert summary.kpis == {"raw_piece_usage_per_step": 3 / 5, "raw_pieces_per_order_served": (3 + 2) / 3}
    statistics = EpochStatistics(topics=[BaseEnvEvents, CuttingEvents, InventoryEvents])
    statistics.add(summary)
    logged = {path.partition("/")[2]: value for path, value in statistics.compute().items()}
    expected = {
        "reward/mean": -7,
        "valid_cut/mean_episode_total": 3,
        "invalid_cut/mean_episode_total": 1,
        "invalid_piece_selected/mean_episode_total": 1,
        "piece_discarded/mean_episode_total": 3,
        "piece_replenished/mean_episode_total": 3,
        "pieces_in_inventory/step_mean": 3,
        "pieces_in_inventory/step_max": 3,
        "no_piece_fits/mean_episode_total": 0,
        "kpi/mean/raw_piece_usage_per_step": 0.6,
    }
    assert {name: logged[name] for name in expected} == expected


def kpis_of(actions: list[Cutting2DMazeAction]) -> dict[str, float]:
    """Those of an episode of the documented instance."""
    env = LogStatsWrapper(maze_env_factory(50, (4, 3), CYCLE))
    env.reset(seed=0)
    for action in actions:
        env.step(env.action_conversion.maze_to_space(action))
    env.close_episode()
    (summary,) = env.drain_episode_summaries()
    return dict(summary.kpis)


def test_serving_no_order_is_worse_than_serving_all() -> None:
    idle = kpis_of([Cutting2DMazeAction(49, False, False)] * 6)
    busy = kpis_of([Cutting2DMazeAction(*choice, False) for choice in ALL_OF_A_RAW_PIECE])
    assert idle["raw_piece_usage_per_step"] < busy["raw_piece_usage_per_step"]
    assert busy["raw_pieces_per_order_served"] == 2 / 6
    assert idle["raw_pieces_per_order_served"] == 1 + 6


def test_six_orders_of_the_documented_cycle_fill_one_raw_piece() -> None:
    env = Cutting2DCoreEnvironment(50, (4, 3), CYCLE)
    assert sum(x * y for x, y in CYCLE) == 4 * 3
    rewards = [env.step(Cutting2DMazeAction(*choice, False))[1] for choice in ALL_OF_A_RAW_PIECE]
    assert rewards == [-2, 0, 0, 0, 0, 0]
    assert env.inventory.pieces == [(4, 3)]
