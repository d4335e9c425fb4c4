"""The contract of array environments: state and events."""

import copy

import numpy as np
import pytest

from maze_pl.envs import ArrayEnv, CartPoleArrayEnv
from maze_pl.envs.cutting_2d.events import InventoryEvents


def _env(n_envs: int = 3) -> ArrayEnv:
    env = CartPoleArrayEnv()
    env.allocate(n_envs)
    env.reset(np.arange(n_envs), np.arange(n_envs))
    return env


def test_a_restored_state_continues_with_the_same_numbers() -> None:
    env, other = _env(), _env()
    env.step({0: {"action": np.array([0, 1, 0])}}, slice(None))
    env.reset(np.array([1]), np.array([9]))
    other.load_state_dict(copy.deepcopy(env.state_dict()))
    results = []
    for one in (env, other):
        one.step({0: {"action": np.array([1, 1, 0])}}, slice(None))
        results.append(one.reset(np.array([2]), np.array([5])).observation[0]["observation"].tolist())
    assert results[0] == results[1]


def test_refuses_the_state_of_another_number_of_environments() -> None:
    with pytest.raises(ValueError, match=r"the saved array 'position' of CartPoleArrayEnv has shape \(3,\), expected"):
        _env(2).load_state_dict(_env(3).state_dict())


def test_refuses_a_state_with_other_arrays() -> None:
    state = _env().state_dict()
    del state["n_steps"]
    with pytest.raises(ValueError, match="resume with the code that saved it"):
        _env().load_state_dict(state)


def test_the_maze_state_of_one_environment_is_its_entry_of_each_array() -> None:
    env = _env()
    env.step({0: {"action": np.zeros(3, np.int64)}}, np.array([1]))
    assert env.maze_state(1)["n_steps"] == 1
    assert env.maze_state(0)["n_steps"] == 0


def test_numbers_of_gives_indices_for_all_and_for_some() -> None:
    env = _env()
    assert env.numbers_of(slice(None)).tolist() == [0, 1, 2]
    assert env.numbers_of(np.array([2])).tolist() == [2]


def test_topics_fire_events_for_several_environments() -> None:
    env = _env()
    inventory = env.create_event_topic(InventoryEvents)
    inventory.pieces_in_inventory(np.array([0, 2]), np.array([4, 5]))
    inventory.piece_replenished(np.array([1]))
    inventory.piece_replenished(np.array([], np.int64))
    events = env.events.drain()
    assert [event.declaration.name for event in events] == ["pieces_in_inventory", "piece_replenished"]
    assert events[0].which.tolist() == [0, 2]
    assert events[0].attributes["value"].tolist() == [4, 5]
    assert env.events.drain() == []


def test_a_topic_refuses_unknown_events_and_values_for_other_environments() -> None:
    inventory = _env().create_event_topic(InventoryEvents)
    with pytest.raises(AttributeError, match="InventoryEvents has no event 'piece_lost'"):
        inventory.piece_lost(np.array([0]))
    with pytest.raises(ValueError, match=r"value of InventoryEvents.pieces_in_inventory has shape \(2,\) for 3"):
        inventory.pieces_in_inventory(np.arange(3), np.array([4, 5]))
