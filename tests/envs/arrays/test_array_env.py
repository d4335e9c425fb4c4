"""The contract of array environments: state and events."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv, TimeLimitArrayWrapper
from maze_pl.envs.cutting_2d.events import InventoryEvents
from maze_pl.envs.tensors import CartPoleTensorEnv
from maze_pl.envs.tensors.tensor_env import Outcome
from maze_pl.envs.wrappers import LogStatsWrapper
from maze_pl.modules import PPO


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
    events = env.array_events.drain()
    assert [event.declaration.name for event in events] == ["pieces_in_inventory", "piece_replenished"]
    assert events[0].which.tolist() == [0, 2]
    assert events[0].attributes["value"].tolist() == [4, 5]
    assert env.array_events.drain() == []


def test_a_topic_may_be_the_attribute_events_as_in_single_episodes() -> None:
    class Counting(CartPoleArrayEnv):
        def __init__(self) -> None:
            super().__init__()
            self.events = self.create_event_topic(InventoryEvents)

        def step(self, actions: Any, which: Any) -> ArrayStep:
            self.events.piece_replenished(self.numbers_of(which))
            return super().step(actions, which)

    vector = ArrayVectorEnv(lambda: TimeLimitArrayWrapper(Counting(), 4), 2)
    vector.reset()
    for _ in range(4):
        vector.step()
    single = LogStatsWrapper.wrap(ArrayMazeEnv(Counting()))
    single.reset(seed=1)
    while not any(single.step({"action": 1})[2:4]):
        continue
    single_summaries = single.drain_episode_summaries()
    for summary in [*vector.drain_summaries(), *single_summaries]:
        (count,) = [value for key, value in summary.statistics.items() if key[1] == "piece_replenished"]
        assert count == summary.env_steps > 3


def test_a_topic_of_an_environment_in_tensors_may_be_the_attribute_events() -> None:
    class Counting(CartPoleTensorEnv):
        def __init__(self) -> None:
            super().__init__()
            self.events = self.create_event_topic(InventoryEvents)

        def act(self, step_key: Any, action: Any) -> Outcome:
            self.events.piece_replenished(torch.ones(self.n_envs, dtype=torch.bool))  # type: ignore[call-arg]
            return super().act(step_key, action)

    collector = TensorCollector(
        TensorVector(Counting(), 2, Spec.of(Counting()), torch.device("cpu")), 60, torch.Generator()
    )
    summaries = list(collector.collect(PPO(spec=collector.vector.spec).policy).summaries)
    assert summaries
    for summary in summaries:
        (count,) = [value for key, value in summary.statistics.items() if key[1] == "piece_replenished"]
        assert count == summary.env_steps


def test_a_topic_refuses_unknown_events_and_values_for_other_environments() -> None:
    inventory = _env().create_event_topic(InventoryEvents)
    with pytest.raises(AttributeError, match="InventoryEvents has no event 'piece_lost'"):
        inventory.piece_lost(np.array([0]))
    with pytest.raises(ValueError, match=r"value of InventoryEvents.pieces_in_inventory has shape \(2,\) for 3"):
        inventory.pieces_in_inventory(np.arange(3), np.array([4, 5]))
