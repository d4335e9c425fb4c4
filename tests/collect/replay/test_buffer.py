"""The replay buffer of all sub-steps: restoring it in place, from states that are whole or damaged."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.replay import storage as storage_module
from maze_pl.collect.replay.buffer import ReplayBuffer
from maze_pl.collect.replay.placement import bytes_of_values
from maze_pl.collect.replay.storage import ReplayStorage
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import StepSpec
from maze_pl.records.columns import Columns
from tests.equality import assert_equal

CAPACITY = 40
CPU = torch.device("cpu")
STEP = StepSpec(spaces.Dict(seen=spaces.Box(-1e9, 1e9, (3,), np.float32)), spaces.Dict(choice=spaces.Discrete(1000)))
STEPS = {"first": STEP, "second": STEP}


def acts(start: int, n: int) -> Columns:
    numbers = np.arange(start, start + n)
    return {
        "observation": {"seen": np.stack([numbers] * 3, -1)},
        "action": {"choice": numbers},
        "next_observation": {"seen": np.stack([numbers + 1] * 3, -1)},
        "agent_id": np.zeros_like(numbers),
        "reward": numbers.astype(np.float32),
        "discount": np.full(n, 0.5, np.float32),
    }


def buffer_of(n_demonstrated: int = 0, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(STEPS, 1, 0.9, partial(ReplayStorage, **options), CAPACITY, n_demonstrated)


def filled(start: int, n: int, n_demonstrated: int = 0, **options: Any) -> ReplayBuffer:
    """Buffer of n acts of each sub-step, and 5 separate demonstrations if wanted."""
    buffer = buffer_of(n_demonstrated, **options)
    for key, storages in buffer._storages.items():
        streams = {"stream": np.zeros(n, np.int64), "is_first": np.zeros(n, np.bool_)}
        storages[0].add({**acts(start, n), **streams})
        if n_demonstrated:
            buffer.add_demonstrations(key, acts(start + 500, 5), None)
    return buffer


def assert_same_draws(first: ReplayBuffer, second: ReplayBuffer) -> None:
    drawn = [buffer.draw(4, 10).acts for buffer in (first, second)]
    for key in STEPS:
        assert_equal(drawn[0][key], drawn[1][key])


def test_a_buffer_is_restored_in_the_memory_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[int] = []
    allocate = storage_module._allocate_on_device

    def noted(shape: tuple[int, ...], dtype: Any, device: torch.device) -> torch.Tensor:
        tensor = allocate(shape, dtype, device)
        allocated.append(tensor.nbytes)
        return tensor

    monkeypatch.setattr(storage_module, "_allocate_on_device", noted)
    state = filled(100, 30).state_dict()
    buffer = buffer_of(device=CPU)
    buffer.load_state_dict(state)
    assert sum(allocated) == CAPACITY * sum(map(bytes_of_values, STEPS.values()))
    assert len(buffer) == 60


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "on_device": {"device": CPU},
    "n_step": {"n_step": 3},
    "runs": {"run_length": 4},
    "prioritized": {"alpha": 0.7, "n_step": 2, "keep_sizes": True},
    "demonstrations": {"n_demonstrated": 4, "alpha": 0.7},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_before", [0, 5, 38])
def test_nothing_is_left_of_what_a_buffer_held_before(kind: str, n_before: int) -> None:
    saved = filled(100, 12, **KINDS[kind])
    state = copy.deepcopy(saved.state_dict())
    buffer = filled(700, n_before, **KINDS[kind]) if n_before else buffer_of(**KINDS[kind])
    rings = {key: storages[0] for key, storages in buffer._storages.items()}
    buffer.load_state_dict(state)
    assert all(buffer._storages[key][0] is ring for key, ring in rings.items())
    assert_equal(buffer.state_dict(), state)
    assert_same_draws(buffer, saved)
    for start in (900, 930):  # over the end of the ring
        for one in (buffer, saved):
            for storages in one._storages.values():
                flags = {"stream": np.zeros(30, np.int64), "is_first": np.zeros(30, np.bool_)}
                storages[0].add({**acts(start, 30), **flags})
        assert_same_draws(buffer, saved)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_before", [0, 5])
def test_a_damaged_state_is_refused_and_leaves_the_rings_as_they_were(kind: str, n_before: int) -> None:
    state = copy.deepcopy(filled(100, 12, **KINDS[kind]).state_dict())
    buffer = filled(700, n_before, **KINDS[kind]) if n_before else buffer_of(**KINDS[kind])
    before = copy.deepcopy(buffer.state_dict()["storages"])
    state["storages"]["second"][0]["highest"] = -1.0
    with pytest.raises(ValueError, match="highest priority"):
        buffer.load_state_dict(state)
    del state["storages"]["second"]
    with pytest.raises(KeyError, match="second"):
        buffer.load_state_dict(state)
    assert_equal(buffer.state_dict()["storages"], before)


def open_acts() -> dict[str, Any]:
    """An act of the only environment whose successor is not known yet."""
    return {
        "env": torch.tensor([0]),
        "slot": torch.tensor([0]),
        "agent_id": torch.tensor([0]),
        "is_first": torch.tensor([True]),
        "reward": torch.tensor([1.5], dtype=torch.float64),
        "discount": torch.tensor([0.9], dtype=torch.float64),
        "observation": {"seen": torch.ones(1, 3)},
        "action": {"choice": torch.tensor([4])},
    }


DAMAGES: dict[str, tuple[dict[str, Any], str]] = {
    "no generator": ({"generator": None}, "state of its random generator is damaged"),
    "a short generator": ({"generator": torch.zeros(3, dtype=torch.uint8)}, "state of its random generator is damaged"),
    "no open acts": ({"open": None}, "open acts cannot be read"),
    "acts in lists": ({"open": [[1.0]]}, "open acts cannot be read"),
    "another sub-step": ({"open": {"third": open_acts()}}, "open acts of 'third'"),
    "a number": ({"open": {"first": {**open_acts(), "reward": 1.0}}}, "open acts cannot be read"),
    "another length": ({"open": {"first": {**open_acts(), "reward": torch.zeros(7)}}}, "other types or lengths"),
    "another type": ({"open": {"first": {**open_acts(), "slot": torch.zeros(1)}}}, "other types or lengths"),
    "another environment": ({"open": {"first": {**open_acts(), "env": torch.tensor([1])}}}, "actors of 1 environments"),
    "a negative slot": ({"open": {"first": {**open_acts(), "slot": torch.tensor([-1])}}}, "actors of 1 environments"),
    "another observation": (
        {"open": {"first": {**open_acts(), "observation": {"seen": torch.ones(1, 2)}}}},
        "have no observation of Dict",
    ),
    "no action": ({"open": {"first": {**open_acts(), "action": {}}}}, "have no action of Dict"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_open_acts_and_generators_are_refused(damage: str) -> None:
    change, words = DAMAGES[damage]
    state = copy.deepcopy(filled(100, 12).state_dict())
    state["open"] = {"first": open_acts()}
    buffer = filled(700, 5)
    before = copy.deepcopy(buffer.state_dict())
    with pytest.raises(ValueError, match=words):
        buffer.load_state_dict({**state, **change})
    assert_equal(buffer.state_dict(), before)
    buffer.load_state_dict(state)
    assert_equal(buffer.state_dict(), state)


def test_two_open_acts_of_one_actor_are_refused() -> None:
    state = copy.deepcopy(filled(100, 12).state_dict())
    state["open"] = {"first": mapped(lambda tensor: torch.cat([tensor, tensor]), open_acts())}
    with pytest.raises(ValueError, match="actors of 1 environments"):
        buffer_of().load_state_dict(state)


@pytest.mark.parametrize(("n_step", "n_expected"), [(1, 1), (3, 2)])
def test_places_are_sent_to_a_device_once(n_step: int, n_expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With returns over several acts, the next observation has other places."""
    storage = ReplayStorage(STEP, CAPACITY, n_step=n_step, device=CPU)
    storage.add({**acts(0, 20), "stream": np.zeros(20, np.int64), "is_first": np.zeros(20, np.bool_)})
    converted: list[Any] = []
    from_numpy = torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: (converted.append(array), from_numpy(array))[1])
    drawn, places = storage.sample(2, 6, torch.Generator().manual_seed(0))
    assert sum(array.dtype == np.int64 and array.any() for array in converted) == n_expected
    assert drawn.observation["seen"][..., 0].tolist() == places.tolist()
    assert drawn.action["choice"].tolist() == places.tolist()
    following = np.minimum(places + n_step, 20)
    assert drawn.next_observation["seen"][..., 1].tolist() == following.tolist()
