"""Containers of numbers and texts: exact content, the same objects where others hold them, and no options."""

from __future__ import annotations

import copy
from collections import deque
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from maze_pl.envs import ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.arrays.saved_containers import SAVED_CONTAINERS, ContainersInPlace, packed, unpacked
from maze_pl.envs.contract import EnvContractError
from tests.envs.arrays.adding import Adding, Functions, episode_of, rewards_of, vector_of

PRICES = [1, 2, 3]


def put_into(container: Any, saved: Any) -> Any:
    return ContainersInPlace([]).put(container, saved)


def test_restored_containers_stay_the_same_objects() -> None:
    present = {"queues": [deque([1], maxlen=2), deque([2], maxlen=2)], "other": [1], "table": (1, [2]), "bag": {1}}
    inner, bag = present["queues"], present["bag"]
    saved = {"queues": [deque([5, 6], maxlen=2), deque(maxlen=2)], "other": [1, 2], "bag": {2}, "new": {(1, 2): None}}
    assert unpacked(packed(saved)) == saved
    first = inner[0]  # type: ignore[index]
    assert put_into(present, unpacked(packed(saved))) is present == saved
    assert present["queues"] is inner
    assert inner[0] is first  # type: ignore[index]
    assert first.maxlen == 2
    assert present["bag"] is bag
    assert put_into([1], (2,)) == (2,)
    assert put_into(deque([1], maxlen=1), deque([1, 2], maxlen=2)) == deque([1, 2], maxlen=2)


def test_containers_in_two_places_are_those_of_the_saved_ones() -> None:
    present = [0]
    one, other, shared = [1], [2], [3]
    assert put_into([present, present], [one, other]) == [[1], [2]]
    first, second = put_into([present, [0]], [shared, shared])
    assert first is second is present == [3]


def test_numbers_of_numpy_keep_their_classes() -> None:
    numbers = [np.float32(0.1), np.int8(-3), np.bool_(True), np.float64(0.1), {np.int64(2): np.uint16(7)}]
    restored = unpacked(packed(numbers))
    assert restored == numbers
    assert [type(number) for number in restored] == [type(number) for number in numbers]
    assert isinstance(next(iter(restored[4])), np.int64)


class Helper:
    """Uses a container that an environment holds, too."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts


class Linked(CartPoleArrayEnv):
    """Its helper counts in a list of the environment."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.counts = [0] * n_envs
        self.both = {"counts": [self.counts]}
        self.helper = Helper(self.counts)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        for n in self.numbers_of(which).tolist():
            self.helper.counts[n] += 1
        result.reward = np.array(self.counts, np.float64)
        return result


def test_copies_keep_containers_that_helpers_use() -> None:
    one, other = ArrayMazeEnv(Linked()), ArrayMazeEnv(Linked())
    for env, n_acts in ((one, 3), (other, 1)):
        env.reset(seed=1)
        rewards_of(env, n_acts)
    other.clone_from(one)
    assert rewards_of(other, 2) == rewards_of(one, 2) == [4.0, 5.0]
    assert vars(other.array_env)["both"]["counts"][0] is vars(other.array_env)["counts"]


class Options(CartPoleArrayEnv):
    """Has options in containers, also where `allocate` puts them.

    Args:
        limits: Of the user.
    """

    kinds: Any = {"a": [1]}  # noqa: RUF012

    def __init__(self, limits: list[int]) -> None:
        super().__init__()
        self.limits = limits

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.tables = {"limits": self.limits}
        self.prices = PRICES
        self.first_kind = self.kinds["a"]

    @cached_property
    def doubled(self) -> list[int]:
        return [2 * limit for limit in self.limits]

    def step(self, actions: Any, which: Any) -> ArrayStep:
        assert self.doubled
        return super().step(actions, which)


def test_a_resumed_run_has_its_own_options(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ArrayVectorEnv(lambda: Options([5, 10]), 2)
    whole.reset()
    whole.step()
    state = copy.deepcopy(whole.state_dict())
    module = Options.__module__
    saved = {"prices": ["given", f"{module}:PRICES"], "first_kind": ["given", f"{module}:kinds.a"]}
    assert state["array_env"][SAVED_CONTAINERS] == {"limits": ["given", "limits"], **saved}
    prices, limits = [7, 8], [5, 12]
    monkeypatch.setitem(globals(), "PRICES", prices)
    resumed = ArrayVectorEnv(lambda: Options(limits), 2)
    resumed.reset()
    resumed.load_state_dict(state)
    resumed.step()
    env = resumed.env
    assert isinstance(env, Options)
    assert env.tables["limits"] is limits == [5, 12]
    assert env.prices is prices == [7, 8]
    assert env.first_kind is Options.kinds["a"]
    assert env.doubled == [10, 24]
    assert not caplog.records


def test_saved_containers_take_the_place_of_options_which_stay_as_they_are() -> None:
    class Replacing(Options):
        """Replaces a list that the constructor was given, and one that it finds in a dict."""

        def step(self, actions: Any, which: Any) -> ArrayStep:
            self.limits = [1]
            self.tables = {"limits": [2]}
            return super().step(actions, which)

    limits = [5]
    whole, resumed = vector_of(Replacing([5]), 1), vector_of(Replacing(limits), 0)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert vars(resumed.env)["limits"] == [1]
    assert vars(resumed.env)["tables"] == {"limits": [2]}
    assert limits == [5]


class Waiting(CartPoleArrayEnv):
    """Replaces a list of its constructor in `allocate`, if there is anything to wait for.

    Args:
        queue: The list.
        waits: Whether there is.
    """

    def __init__(self, queue: list[int] | None, *, waits: bool = True) -> None:
        super().__init__()
        self.queue = queue
        self.waits = waits

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        if self.waits:
            self.queue = [0] * n_envs


def _without_containers(vector: ArrayVectorEnv) -> Any:
    state = copy.deepcopy(vector.state_dict())
    del state["array_env"][SAVED_CONTAINERS]  # as in an earlier version
    return state


def _with_list_in_two_places(vector: ArrayVectorEnv) -> Any:
    env: Any = vector.env
    env.alias = env.queue
    return copy.deepcopy(vector.state_dict())


@pytest.mark.parametrize("state_of", [_without_containers, _with_list_in_two_places])
def test_containers_of_allocate_stay_where_a_state_lacks_them(state_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    queue: list[int] = []
    state = state_of(vector_of(Waiting([]), 1))
    resumed = vector_of(Waiting(queue), 0)
    caplog.clear()
    resumed.load_state_dict(state)
    (record,) = caplog.records
    assert record.getMessage() == "the saved state of Waiting holds nothing of 'queue', which stays as it is"
    assert vars(resumed.env)["queue"] == [0, 0, 0]
    assert queue == []


def test_options_may_become_something_else(caplog: pytest.LogCaptureFixture) -> None:
    state = copy.deepcopy(vector_of(Waiting([5], waits=False), 1).state_dict())
    resumed = vector_of(Waiting(None, waits=False), 0)
    resumed.load_state_dict(state)
    assert vars(resumed.env)["queue"] is None
    assert not caplog.records
    resumed = vector_of(Waiting(None), 0)
    resumed.load_state_dict(state)
    (record,) = caplog.records
    came = "the saved state of Waiting has 'queue' as 'queue', but there is no such container now"
    assert record.getMessage() == f"{came}: 'queue' stays as it is"


def test_copies_leave_options_as_they_are() -> None:
    limits = [5]
    one, other = ArrayMazeEnv(Options([5])), ArrayMazeEnv(Options(limits))
    for env in (one, other):
        env.reset(seed=1)
    vars(other.array_env)["limits"] = [3]  # which its own steps have put there
    for _ in range(2):
        other.clone_from(one)
        copied = other.array_env
        assert isinstance(copied, Options)
        assert copied.limits is copied.tables["limits"] is limits == [5]
        assert copied.prices is PRICES


def test_copies_are_refused_if_a_container_of_the_constructor_changes() -> None:
    class Growing(CartPoleArrayEnv):
        """Lets a list of its constructor grow."""

        def __init__(self) -> None:
            super().__init__()
            self.log: list[int] = []

        def step(self, actions: Any, which: Any) -> ArrayStep:
            self.log.append(1)
            return super().step(actions, which)

    env, target = ArrayMazeEnv(Growing()), ArrayMazeEnv(Growing())
    for one in (env, target):
        one.reset(seed=1)
    rewards_of(env, 1)
    with pytest.raises(EnvContractError, match=r"'log', which copies do not hold, as 'log' existed before alloc"):
        target.clone_from(env)


def test_changes_of_cached_properties_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    class Caching(CartPoleArrayEnv):
        """Counts in a cached property."""

        @cached_property
        def counts(self) -> list[int]:
            return [0]

        def step(self, actions: Any, which: Any) -> ArrayStep:
            self.counts[0] += 1
            return super().step(actions, which)

    vector_of(Caching(), 2).state_dict()
    (record,) = caplog.records
    assert "checkpoints do not hold, as 'counts' is a cached property" in record.getMessage()


def test_containers_that_later_checkpoints_lack_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    functions: Functions = (
        lambda n: [0.0] * n,
        lambda held, n: held.__setitem__(n, held[n] + (1.0 if held[n] < 3 else np.longdouble(1))),
        lambda held, n: held[n],
    )
    env = Adding(*functions)
    vector = vector_of(env, 2)
    env.other = [1]  # type: ignore[attr-defined]
    vector.state_dict()
    caplog.clear()
    for _ in range(3):
        vector.step()
    states = [copy.deepcopy(vector.state_dict()) for _ in range(2)]
    (record,) = caplog.records
    assert record.getMessage() == "checkpoints no longer hold 'held' of Adding, which is or has a longdouble"
    resumed = vector_of(Adding(*functions), 0)
    caplog.clear()
    resumed.load_state_dict(states[1])
    (record,) = caplog.records
    assert record.getMessage() == "the saved state of Adding holds nothing of 'held', which stays as it is"


def test_copies_of_environments_can_be_copied_and_resumed() -> None:
    functions: Functions = (
        lambda n: [0] * n,
        lambda held, n: held.__setitem__(n, held[n] + 1),
        lambda held, n: held[n],
    )
    env, target = copy.deepcopy(episode_of(functions, 2, seed=1)), episode_of(functions, 0, seed=2)
    target.clone_from(env)
    assert rewards_of(target, 2) == rewards_of(env, 2) == [3.0, 4.0]
