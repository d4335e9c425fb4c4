"""Numbers in containers and objects: saved and copied, or warned of in checkpoints and refused in copies."""

from __future__ import annotations

import copy
import io
import logging
import re
from collections import Counter, deque
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs import ArrayStep, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.arrays.nested_arrays import holds_values_only, parts_of
from maze_pl.envs.arrays.nested_numbers import nested_numbers
from maze_pl.envs.arrays.saved_containers import SAVED_CONTAINERS
from maze_pl.envs.contract import EnvContractError
from tests.envs.arrays.adding import Adding, Functions, N, episode_of, rewards_of, vector_of


class Slotted:
    """Has slots instead of a dict of attributes."""

    __slots__ = ("__hidden", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.__hidden = value

    def reads_hidden(self) -> Any:
        return self.__hidden


def _append_sum(held: Any, n: int) -> None:
    held.append(held[0] + (np.arange(len(held[0])) == n))


def _raise_entry(held: Any, n: int) -> None:
    held[n] += 1


def _raise_first(held: Any, n: int) -> None:
    held[n][0] += 1


def _raise_value(held: Any, n: int) -> None:
    held[n].value += 1


def _entry(held: Any, n: int) -> Any:
    return held[n]


def _first(held: Any, n: int) -> Any:
    return held[n][0]


def _value(held: Any, n: int) -> Any:
    return held[n].value


COPIED: dict[str, Functions] = {
    "list": (lambda n: [0] * n, _raise_entry, _entry),
    "list of lists": (lambda n: [[0.0] for _ in range(n)], _raise_first, _first),
    "numbers of NumPy": (lambda n: [0] * n, lambda held, n: held.__setitem__(n, held[n] + np.int64(1)), _entry),
    "dict": (lambda n: dict.fromkeys(range(n), 0), _raise_entry, _entry),
    "deques in a list": (
        lambda n: [deque([0], maxlen=1) for _ in range(n)],
        lambda held, n: held[n].append(held[n][0] + 1),
        _first,
    ),
    "set": (
        lambda n: set(),
        lambda held, n: held.add((n, sum(one[0] == n for one in held))),
        lambda held, n: sum(one[0] == n for one in held),
    ),
    "texts": (
        lambda n: [""] * n,
        lambda held, n: held.__setitem__(n, held[n] + "a"),
        lambda held, n: len(held[n]),
    ),
}


def _raise_later_value(held: Any, n: int) -> None:
    held[n].value = (getattr(held[n], "value", None) or 0) + 1


def _raise_in_new_object(held: Any, n: int) -> None:
    if held[n] is None:
        held[n] = SimpleNamespace()
    _raise_later_value(held, n)


# also the name of the number, and the class in a container that cannot be saved
REFUSED: dict[str, tuple[Functions, str, str]] = {
    "objects": (
        (lambda n: [SimpleNamespace(value=0) for _ in range(n)], _raise_value, _value),
        "held.0.value",
        "SimpleNamespace",
    ),
    "in place of None": (
        (lambda n: [SimpleNamespace(value=None) for _ in range(n)], _raise_later_value, _value),
        "held.0.value",
        "SimpleNamespace",
    ),
    "slots": ((lambda n: [Slotted(0) for _ in range(n)], _raise_value, _value), "held.0.value", "Slotted"),
    "with arrays": ((lambda n: [*[0] * n, np.zeros(1)], _raise_entry, _entry), "held", "ndarray"),
    "large": ((lambda n: [0] * 30_000, _raise_entry, _entry), "held", "number of entries above 20,000"),
}
LATER: dict[str, tuple[Functions, str, str]] = {
    "new attributes": (
        (lambda n: [SimpleNamespace() for _ in range(n)], _raise_later_value, _value),
        "held.0.value",
        "SimpleNamespace",
    ),
    "new objects": ((lambda n: [None] * n, _raise_in_new_object, _value), "held.0.value", "SimpleNamespace"),
}


@pytest.mark.parametrize("kind", COPIED)
@pytest.mark.parametrize("n_of_target", [0, 5])
def test_copies_get_the_numbers_of_containers(kind: str, n_of_target: int) -> None:
    original, target = episode_of(COPIED[kind], 3, seed=1), episode_of(COPIED[kind], n_of_target, seed=2)
    target.clone_from(original)
    assert rewards_of(target, 3) == [4.0, 5.0, 6.0]
    assert rewards_of(original, 3) == [4.0, 5.0, 6.0]  # which the copy has not changed


def test_a_container_in_two_places_is_one_in_copies_too() -> None:
    class Shared(CartPoleArrayEnv):
        """Has a list that also lies in another one."""

        def allocate(self, n_envs: int) -> None:
            super().allocate(n_envs)
            self.first = [0]
            self.all = [self.first, [0]]

    one, other = ArrayMazeEnv(Shared()), ArrayMazeEnv(Shared())
    for env in (one, other):
        env.reset(seed=1)
    other.clone_from(one)
    copied = other.array_env
    assert isinstance(copied, Shared)
    assert copied.all[0] is copied.first is not one.array_env.first


def test_objects_that_a_step_puts_in_the_place_of_none_are_allowed() -> None:
    instances = (lambda n: [None] * n, lambda held, n: held.__setitem__(n, SimpleNamespace()), lambda held, n: 1.0)
    env, target = episode_of(instances, 0, seed=1), episode_of(instances, 0, seed=2)
    target.clone_from(env)
    rewards_of(env, 2)
    target.clone_from(env)
    assert rewards_of(target, 1) == [1.0]


@pytest.mark.parametrize("kind", REFUSED)
def test_copies_that_would_lack_numbers_are_refused(kind: str) -> None:
    functions, name, _ = REFUSED[kind]
    env, target = episode_of(functions, 0, seed=1), episode_of(functions, 0, seed=2)
    target.clone_from(env)
    rewards_of(env, 3)
    with pytest.raises(
        EnvContractError, match=f"Adding changes a number or text in '{name}', which copies do not hold"
    ):
        target.clone_from(env)


@pytest.mark.parametrize("kind", LATER)
def test_copies_that_would_lack_numbers_in_later_objects_are_refused_at_a_later_copy(kind: str) -> None:
    functions, name, _ = LATER[kind]
    env, target = episode_of(functions, 2, seed=1), episode_of(functions, 0, seed=2)
    target.clone_from(env)
    rewards_of(env, 3)
    with pytest.raises(EnvContractError, match=f"'{name}', which copies do not hold, as 'held' has a Simple"):
        target.clone_from(env)


@pytest.mark.parametrize("kind", COPIED)
@pytest.mark.parametrize("n_of_resumed", [0, 5])
def test_numbers_in_containers_are_saved(kind: str, n_of_resumed: int, caplog: pytest.LogCaptureFixture) -> None:
    whole, resumed = vector_of(Adding(*COPIED[kind]), 3), vector_of(Adding(*COPIED[kind]), n_of_resumed)
    state = copy.deepcopy(whole.state_dict())
    file = io.BytesIO()
    torch.save(state["array_env"][SAVED_CONTAINERS], file)
    file.seek(0)
    state["array_env"][SAVED_CONTAINERS] = torch.load(file, weights_only=True)
    resumed.load_state_dict(state)
    for vector in (whole, resumed):
        vector.step()
        assert vector.staging.reward.tolist() == [4.0] * N
    assert not caplog.records
    del state["array_env"][SAVED_CONTAINERS]  # as in checkpoints of earlier versions
    resumed.load_state_dict(state)


@pytest.mark.parametrize("kind", [*REFUSED, *LATER])
def test_checkpoints_warn_once_of_numbers_that_they_lack(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    functions, name, held = {**REFUSED, **LATER}[kind]
    vector = vector_of(Adding(*functions), 2)
    for _ in range(2):
        vector.state_dict()
        vector.step()
    lost = f"Adding changes a number or text in '{name}' in reset or step, which checkpoints do not hold"
    message = f"{lost}, as 'held' has a {held}: if later steps"
    assert caplog.text.count(message) == caplog.text.count("changes a") == 1


class Queues(CartPoleArrayEnv):
    """Its constructor makes a list, and `allocate` makes containers of which one lies in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []
        self.replaced = [1, 2]
        self.limits = [3]

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.queues = [deque([n], maxlen=2) for n in range(3)]
        self.first = self.queues[0]
        self.names = {"a": [(1, "b"), (1, "b")]}
        self.counts = Counter("abc")
        self.given = [self.limits, [0]]

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.log.append(1)
        self.first.append(7)
        self.counts["a"] += 1
        self.given[1][0] += 1
        self.replaced = [3]
        return super().step(actions, which)


def test_containers_that_cannot_be_saved_exactly_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    vector = vector_of(Queues(), 2)
    state = copy.deepcopy(vector.state_dict())
    assert state["array_env"][SAVED_CONTAINERS].keys() == {"limits", "log", "names", "replaced"}
    reasons = {}
    for record in caplog.records:
        _, name, _, _, reason, *_ = re.split(r"'|: ", record.getMessage())
        reasons[name] = reason.strip()
    assert reasons == {
        "log": "existed before allocate",
        "queues.0": "lies in two places, or has a container that does",
        "counts": "is or has a Counter",
        "given.1": "has a container that existed before allocate",
    }
    resumed = vector_of(Queues(), 0)
    resumed.load_state_dict(state)
    env = resumed.env
    assert isinstance(env, Queues)
    assert (env.replaced, env.log, env.queues[0]) == ([3], [], env.first)


def test_arrays_in_a_deque_are_saved() -> None:
    functions = (lambda n: deque([np.zeros(n)], maxlen=1), _append_sum, lambda held, n: held[0][n])
    whole = vector_of(Adding(*functions), 3)
    resumed = vector_of(Adding(*functions), 0)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    for vector in (whole, resumed):
        vector.step()
        assert vector.staging.reward.tolist() == [4.0] * N


def test_arrays_in_slots_are_found() -> None:
    def change(held: Any, n: int) -> None:
        held.value[n] += 1

    functions = (lambda n: Slotted(np.zeros(n)), change, lambda held, n: held.value[n])
    with pytest.raises(
        EnvContractError, match=r"Adding changes 'held\.value', which checkpoints and copies do not hold"
    ):
        vector_of(Adding(*functions), 2).state_dict()
    assert parts_of(Slotted(3)) == {"value": 3, "__hidden": 3}
    assert Slotted(3).reads_hidden() == 3


def test_new_attributes_with_objects_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    class Late(CartPoleArrayEnv):
        """Makes objects in its first steps."""

        def step(self, actions: Any, which: Any) -> ArrayStep:
            self.empty = object()
            self.helper = SimpleNamespace(value=1)
            self.helpers = {0: SimpleNamespace(value=np.zeros(1))}
            return super().step(actions, which)

    vector_of(Late(), 2).state_dict()
    (record,) = caplog.records
    assert record.getMessage().startswith("Late made 'helper', 'helpers' in reset or step, which a resumed run")


class Making(CartPoleArrayEnv):
    """Makes attributes in its steps, and has some that never change or do not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = [[1, 2], {"a": (3.0, None)}]
        self.logger = logging.getLogger("maze_pl")
        self.path = Path("a") / "b"

    @cached_property
    def squares(self) -> list[int]:
        return [n * n for n in range(5)]

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.logger.isEnabledFor(logging.DEBUG)  # which it remembers, as the path does its text and hash
        hash((str(self.path), self.path))
        self.n_squares = len(self.squares)
        self.seen = [1, 2]
        return super().step(actions, which)


def test_new_attributes_are_warned_of_and_copied(caplog: pytest.LogCaptureFixture) -> None:
    vector_of(Making(), 2).state_dict()
    message = "Making made 'n_squares' in reset or step, which a resumed run does not have at first: if later"
    assert message in caplog.text
    assert len(caplog.records) == 1
    one, other = ArrayMazeEnv(Making()), ArrayMazeEnv(Making())
    one.reset(seed=1)
    one.step({"action": 1})
    other.reset(seed=1)
    other.clone_from(one)
    assert vars(other.array_env)["seen"] == [1, 2]


def test_large_tables_are_read_in_part_only() -> None:
    table = list(range(1_000_000))
    assert len(parts_of(table)) == len(parts_of(dict.fromkeys(table))) == 20_000
    assert not holds_values_only(table)
    assert not holds_values_only([[0] * 1000] * 30)
    assert nested_numbers({"table": table}).keys() == {"table"}
    rows = [[n] for n in range(30_000)]
    assert len(nested_numbers({"rows": rows, "counts": [1]})) < 20_002
    assert "counts" in nested_numbers({"rows": rows, "counts": [1]})


@pytest.mark.parametrize("value", [[1, [2.5, None], {"a": ("b", {3})}], deque([np.float32(1)]), frozenset({1})])
def test_containers_of_values_have_nothing_else(value: Any) -> None:
    assert holds_values_only(value)
    assert not holds_values_only([value, np.zeros(1)])
    assert not holds_values_only({1: [value, object()]})
    itself: list[Any] = [value]
    itself.append(itself)
    assert not holds_values_only(itself)
