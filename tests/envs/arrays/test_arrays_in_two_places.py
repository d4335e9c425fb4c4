"""Arrays that lie in two places are restored as one array, and those that have become separate as separate ones."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np
import pytest

from maze_pl.envs import ArrayStep, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.contract import EnvContractError
from tests.envs.arrays.adding import rewards_of, vector_of


class Frames(CartPoleArrayEnv):
    """Keeps the latest values of a counter; each step calls `advance`."""

    frames: Any

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.count = np.zeros(n_envs)
        self.make()

    def make(self) -> None:
        self.frames = deque([np.zeros(self.n_envs)] * 3, maxlen=3)

    def advance(self) -> None:
        self.frames.append(self.count.copy())

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.count += 1
        self.advance()
        return super().step(actions, which)

    def look(self) -> list[float]:
        """Return all values of the first environment."""
        return [float(frame[0]) for frame in self.frames]


class InList(Frames):
    """Keeps them in a list, which each step replaces."""

    def make(self) -> None:
        self.frames = [np.zeros(self.n_envs)] * 3

    def advance(self) -> None:
        self.frames = [*self.frames[1:], self.count.copy()]


class InTuple(InList):
    """Keeps them in a tuple."""

    def make(self) -> None:
        self.frames = (*[np.zeros(self.n_envs)] * 3,)

    def advance(self) -> None:
        self.frames = (*self.frames[1:], self.count.copy())


class Previous(Frames):
    """Keeps the counter of the step before, which is the same array at first."""

    def make(self) -> None:
        self.previous = self.latest = np.ones(self.n_envs)

    def advance(self) -> None:
        self.previous = self.latest
        self.latest = self.latest + 1

    def look(self) -> list[float]:
        return [float(self.previous[0]), float(self.latest[0])]


class Given(Previous):
    """Begins with an array of its constructor."""

    def __init__(self) -> None:
        super().__init__()
        self.start = np.ones(3)

    def make(self) -> None:
        self.latest = self.previous = self.start

    def look(self) -> list[float]:
        return [*super().look(), float(self.start[0])]


class Joined(Frames):
    """Puts its counter in three places only in its steps, and changes it in place."""

    def make(self) -> None:
        self.last, self.table = np.zeros(self.n_envs), {"count": np.zeros(self.n_envs)}

    def advance(self) -> None:
        self.last = self.table["count"] = self.count
        self.latest = self.count

    def look(self) -> list[float]:
        return [float(array[0]) for array in (self.last, self.table["count"], self.latest)]


class Buffers(Frames):
    """Has two arrays in a tuple, and changes which of them is the current one, as an attribute and in a dict."""

    def make(self) -> None:
        self.buffers = np.zeros(self.n_envs), np.ones(self.n_envs)
        self.current = self.buffers[0]
        self.table = {"current": self.current}

    def advance(self) -> None:
        self.current = self.table["current"] = self.buffers[int(self.count[0]) % 2]
        self.current += self.count

    def look(self) -> list[float]:
        self.buffers[0][:] += 1  # also seen in the other places
        return [float(array[0]) for array in (*self.buffers, self.current, self.table["current"])]


class SeparateBuffers(Buffers):
    """Has other arrays as the current ones at first, and before them."""

    def make(self) -> None:
        self.current = np.zeros(self.n_envs)
        super().make()
        self.current, self.table = np.zeros(self.n_envs), {"current": np.zeros(self.n_envs)}


class JoinedBuffers(Buffers):
    """Makes the attribute before the tuple."""

    def make(self) -> None:
        self.current = np.zeros(self.n_envs)
        self.buffers = self.current, np.ones(self.n_envs)
        self.table = {"current": self.current}


BUFFERS = [Buffers, SeparateBuffers, JoinedBuffers]


@pytest.mark.parametrize("kind", [Frames, InList, Previous, Given, Joined, *BUFFERS])
@pytest.mark.parametrize("n_of_resumed", [0, 1, 2])
def test_arrays_are_one_or_separate_as_they_were(kind: Any, n_of_resumed: int) -> None:
    whole, resumed = vector_of(kind(), 2), vector_of(kind(), n_of_resumed)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert resumed.env.look() == whole.env.look()  # type: ignore[attr-defined]
    for vector in (whole, resumed):
        vector.env.count += 1  # type: ignore[attr-defined]
    assert resumed.env.look() == whole.env.look()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Frames, InList, Previous, Joined, *BUFFERS])
@pytest.mark.parametrize("n_of_target", [0, 1, 2])
def test_copies_have_one_array_or_separate_ones(kind: Any, n_of_target: int) -> None:
    one, other = ArrayMazeEnv(kind()), ArrayMazeEnv(kind())
    for env, n_acts in ((one, 2), (other, n_of_target)):
        env.reset(seed=1)
        rewards_of(env, n_acts)
    other.clone_from(one)
    for _ in range(2):
        assert other.array_env.look() == one.array_env.look()  # type: ignore[attr-defined]
        for env in (one, other):
            rewards_of(env, 1)


def test_separate_arrays_cannot_take_the_places_of_one_in_a_tuple() -> None:
    state = copy.deepcopy(vector_of(InTuple(), 3).state_dict())
    with pytest.raises(ValueError, match=r"array 'frames\.1' of InTuple replaces another one in a tuple; keep"):
        vector_of(InTuple(), 0).load_state_dict(state)
    resumed = vector_of(InTuple(), 3)
    resumed.load_state_dict(state)
    assert vars(resumed.env)["frames"][2][0] == 3


class Tables(CartPoleArrayEnv):
    """Puts an array of its constructor in containers, with arrays of its state.

    Args:
        table: The array.
    """

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.pair = self.table, np.zeros(n_envs)
        self.entries = [self.table, {"table": self.table}]
        self.current = self.initial = np.zeros(n_envs)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.pair[1][which] += 1
        self.current = self.table
        self.latest = self.table, self.pair[1].copy()
        return super().step(actions, which)

    def places(self) -> list[Any]:
        """Return what is in the places of the array."""
        return [self.table, self.pair[0], self.entries[0], self.entries[1]["table"], self.current]


def test_a_resumed_run_has_its_own_option_in_all_places() -> None:
    state = copy.deepcopy(vector_of(Tables(np.arange(5.0)), 2).state_dict())
    assert state["array_env"]["pair.0"] == ["given", "table"]
    table = np.ones(7)
    resumed = vector_of(Tables(table), 0)
    resumed.load_state_dict(state)
    env: Any = resumed.env
    assert all(place is table for place in env.places())
    assert env.pair[1].tolist() == [2.0] * 3
    assert table.tolist() == [1.0] * 7
    resumed.load_state_dict(copy.deepcopy(vector_of(Tables(np.arange(5.0)), 0).state_dict()))
    assert env.current is env.initial


def test_copies_have_their_own_option_in_all_places() -> None:
    tables = [np.arange(5.0), np.arange(5.0)]
    one, other = (ArrayMazeEnv(Tables(table)) for table in tables)
    for env, n_acts in ((one, 2), (other, 0)):
        env.reset(seed=1)
        rewards_of(env, n_acts)
    other.clone_from(one)
    copied: Any = other.array_env
    assert all(place is tables[1] for place in (*copied.places(), copied.latest[0]))
    assert copied.latest[1].tolist() == copied.pair[1].tolist() == [2.0]


def test_a_state_needs_its_options() -> None:
    state = copy.deepcopy(vector_of(Tables(np.arange(5.0)), 1).state_dict())
    message = r"state of Tables has the array 'table' of the constructor as '\w+(\.0)?', but there is no such array now"
    with pytest.raises(ValueError, match=message):
        vector_of(Tables(5.0), 0).load_state_dict(state)


def test_an_option_must_not_change_in_another_place() -> None:
    class Changing(Tables):
        """Changes the array in its tuple."""

        def step(self, actions: Any, which: Any) -> ArrayStep:
            self.pair[0][0] += 1
            return super().step(actions, which)

    with pytest.raises(EnvContractError, match=r"Changing changes 'table', .* made by the constructor: make it in all"):
        vector_of(Changing(np.arange(5.0)), 1).state_dict()
