"""States of objects hold all that these need, and decide about nothing else."""

from __future__ import annotations

import enum
import random
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import pytest

from maze_pl.core.object_state import give_state, is_same_state, take_state


class Phase(enum.Enum):
    FIRST = 1
    SECOND = 2


class Point(NamedTuple):
    x: int
    y: int


class Slotted:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def harmless(text: str) -> str:
    return text


def harmful(text: str) -> str:
    raise AssertionError(text)


class Thing:
    """Has something of everything.

    Args:
        seed: Makes one thing different from another.
    """

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.generator, self.old, self.python = generator, np.random.RandomState(seed), random.Random(seed)
        self.array, self.scalar, self.bits = generator.random((2, 3)), np.float32(seed), generator.random(4) > 0.5
        self.many = generator.integers(100, size=200).tolist()
        self.rewards = generator.random(100).tolist()
        self.actions = list(generator.random((70, 2)))
        self.queue, self.names, self.empty = deque([seed, 2], maxlen=3), {f"a{seed}", "b"}, ()
        self.table = {("a", seed): [seed], 3: {"x": None}}
        self.phase, self.point, self.slotted = Phase(1 + seed % 2), Point(seed, 2), Slotted(seed)
        self.alias, self.me, self.content = self.table, self, bytes([seed])
        self.function, self.method, self.pairs = harmless, self.draw, [self.array, self.array]
        if seed > 1:
            self.late = {"point": Point(1, seed)}

    def draw(self) -> tuple[float, float, float]:
        return float(self.generator.random()), float(self.old.rand()), self.python.random()


def test_an_object_that_is_given_a_state_is_like_the_one_that_it_was_taken_of() -> None:
    one, other = Thing(3), Thing(1)
    array, table = other.array, other.table
    give_state(other, take_state(one))
    assert is_same_state(take_state(one), take_state(other))
    assert other.draw() == one.draw()
    assert (other.many, other.rewards, other.queue.maxlen, other.late) == (one.many, one.rewards, 3, one.late)
    np.testing.assert_array_equal(other.actions, one.actions)
    assert other.phase is Phase.SECOND and other.slotted.number == 3 and other.scalar.dtype == np.float32
    # others may hold on to what there was, and what was one thing still is
    assert other.array is array is other.pairs[0] is other.pairs[1] and other.table is table is other.alias
    assert other.me is other and other.method.__self__ is other
    one.array += 1
    assert not np.array_equal(one.array, other.array)
    give_state(other, take_state(Thing(1)))
    assert not hasattr(other, "late")


class Foreign(Exception):
    """Part of it is what Python does not see."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (iter([1]), r"it.part is a builtins:list_iterator, whose state is not visible from Python"),
        (Foreign(), r"it.part is a tests.core.test_object_state:Foreign, whose state"),
        (np.array([None]), "it.part is an array of Python objects"),
    ],
)
def test_what_has_a_state_that_cannot_be_seen_is_named(value: Any, message: str) -> None:
    one = Thing(1)
    one.part = value  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=message):
        take_state(one)


def replaced(state: Any, what: str, by: str) -> Any:
    """A state in which a name was replaced by another one."""
    if isinstance(state, list):
        return [replaced(part, what, by) for part in state]
    return by if isinstance(state, str) and state == what else state


@pytest.mark.parametrize(
    ("what", "by"),
    [
        (f"function {__name__}:harmless", f"function {__name__}:harmful"),
        (f"function {__name__}:harmless", "function os:system"),
        (f"{__name__}:Slotted", "subprocess:Popen"),
        ("draw", "__class__"),
        ("builtins:set", f"{__name__}:Slotted"),  # which would be called with what is in the set
        ("builtins:list", f"{__name__}:Slotted"),
    ],
)
def test_a_forged_state_cannot_replace_what_is_called(what: str, by: str) -> None:
    forged = replaced(take_state(Thing(2)), what, by)
    assert not is_same_state(forged, take_state(Thing(2)))
    thing = Thing(2)
    thing.others = {"function": harmful}  # type: ignore[attr-defined]  # which it knows as well
    with pytest.raises(TypeError, match="new object"):
        give_state(thing, forged)


def test_an_object_that_says_itself_what_its_state_is_is_not_looked_into() -> None:
    class Counter:
        def __init__(self, start: int) -> None:
            self.numbers = iter(range(start, 100))

        def episode_state(self) -> int:
            position = next(self.numbers)
            self.numbers = iter(range(position, 100))
            return position

        def load_episode_state(self, state: int) -> None:
            self.numbers = iter(range(state, 100))

    one, other = {"counter": Counter(5)}, {"counter": Counter(0)}
    give_state(other, take_state(one))
    assert next(other["counter"].numbers) == next(one["counter"].numbers) == 5
