"""State in lists, tuples and dicts is saved, and what checkpoints cannot hold is refused."""

from __future__ import annotations

import copy
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs import ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import ArrayEnv, ArrayMazeEnv, ArrayWrapper, RandomStreams
from maze_pl.envs.arrays.array_maze_env import reseed_arrays
from maze_pl.envs.arrays.nested_arrays import nested_values, random_streams_of
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import RewardScalingWrapper

N = 3
SCALE = partial(RewardScalingWrapper, scale=0.5)
NAMES = {"parts.bonus", "parts.inner.0", "history.1", "parts.noise"}


class Nested(CartPoleArrayEnv):
    """Adds to rewards what it keeps in containers."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.tables = {"gain": np.full(1, gain)}  # an option

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.parts: dict[str, Any] = {
            "bonus": np.zeros(n_envs),
            "inner": [torch.zeros(n_envs, dtype=torch.float64)],
            "noise": RandomStreams(np.zeros(n_envs, np.int64)),
        }
        self.history = ("text", np.zeros((n_envs, 2)))

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.parts["noise"].seed(seeds, which)
        self.parts["bonus"][which] = 0.0
        self.parts["inner"][0][which] = 0.0
        self.history[1][which] = 0.0
        return super().reset(which, seeds)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        envs = self.numbers_of(which)
        self.parts["bonus"][which] += 1.0
        self.parts["inner"][0][which] += 0.01
        self.history[1][which] += 0.0001
        noise = self.parts["noise"].random(which=envs)
        result.reward = np.zeros(self.n_envs)
        kept = self.parts["bonus"] + self.parts["inner"][0].numpy() + self.history[1][:, 0]
        result.reward[envs] = kept[envs] * self.tables["gain"][0] + noise
        return result


def _vector(make_env: Any, *wrappers: Any, n_steps: int = 0) -> ArrayVectorEnv:
    vector = ArrayVectorEnv(partial(make_wrapped_arrays, make_env, list(wrappers)), N, seed=4)
    if n_steps:
        vector.reset()
    for _ in range(n_steps):
        vector.step()
    return vector


def _rewards(vector: ArrayVectorEnv) -> np.ndarray:
    """Rewards of six steps."""
    rewards = []
    for _ in range(6):
        vector.step()
        rewards.append(vector.staging.reward.copy())
    return np.array(rewards)


@pytest.mark.parametrize("wrappers", [[], [SCALE]])
def test_arrays_in_containers_are_saved(wrappers: Any) -> None:
    whole = _vector(Nested, *wrappers, n_steps=4)
    state = copy.deepcopy(whole.state_dict())
    assert state["array_env"].keys() >= NAMES
    assert "tables.gain" not in state["array_env"]
    resumed = _vector(Nested, *wrappers)
    resumed.load_state_dict(state)
    expected = _rewards(whole)
    assert len(np.unique(expected)) == expected.size  # which shows that streams continue
    np.testing.assert_array_equal(_rewards(resumed), expected)
    other = _vector(partial(Nested, 0.0), *wrappers)
    other.load_state_dict(state)  # the option is that of the resumed run
    assert (_rewards(other) < 1.0).all()


def test_states_of_earlier_versions_have_nothing_of_containers() -> None:
    state = copy.deepcopy(_vector(Nested, n_steps=4).state_dict())
    whole = copy.deepcopy(state)
    for name in NAMES:
        del state["array_env"][name]
    vector = _vector(Nested)
    vector.load_state_dict(state)
    assert vector.env.unwrapped.parts["bonus"].tolist() == [0.0] * N
    np.testing.assert_array_equal(vector.env.unwrapped.position, whole["array_env"]["position"])
    del whole["array_env"]["history.1"]
    with pytest.raises(ValueError, match="the saved state consists of"):
        _vector(Nested).load_state_dict(whole)


def test_copies_continue_alike_and_reseeding_reaches_streams_in_containers() -> None:
    one, other, reseeded = ArrayMazeEnv(Nested()), ArrayMazeEnv(Nested()), ArrayMazeEnv(Nested())
    one.reset(seed=3)
    one.step({"action": 1})
    for copied in (other, reseeded):
        copied.reset(seed=8)
        copied.clone_from(one)
    reseed_arrays(reseeded.array_env, np.zeros(1, np.int64), np.array([5]))
    rewards = [env.step({"action": 0})[1] for env in (one, other, reseeded)]
    assert rewards[0] == rewards[1] != rewards[2]
    assert int(rewards[0]) == int(rewards[2])


def test_states_of_single_environments_have_entries_of_containers() -> None:
    env = Nested()
    env.note_given_arrays()
    env.allocate(N)
    env.parts["bonus"][:] = [1.0, 2.0, 3.0]
    state = env.maze_state(1)
    assert state["parts.bonus"] == 2.0
    assert state["history.1"].tolist() == [0.0, 0.0]
    assert "tables.gain" not in state


class Narrow(CartPoleArrayEnv):
    """Replaces an array in a container by one of another type in its first step."""

    container: Any = list

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.levels = self.container([np.zeros(n_envs, np.int32)])

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.levels = self.container([self.levels[0] + 0.5])
        return super().step(actions, which)


class NarrowInTuple(Narrow):
    container = tuple


def test_arrays_of_another_type_are_put_into_containers() -> None:
    vector = _vector(Narrow)
    vector.load_state_dict(copy.deepcopy(_vector(Narrow, n_steps=2).state_dict()))
    assert vector.env.unwrapped.levels[0].tolist() == [1.0] * N
    with pytest.raises(ValueError, match=r"array 'levels\.0' of NarrowInTuple replaces another one in a tuple; keep"):
        _vector(NarrowInTuple).load_state_dict(_vector(NarrowInTuple, n_steps=2).state_dict())


def test_containers_are_searched_once_and_names_are_unique() -> None:
    shared: list[Any] = [np.zeros(1)]
    shared.append(shared)
    found = nested_values({"one": shared, "two": shared, "array": np.zeros(2)})
    assert [nested.name for nested in found] == ["one.0"]
    with pytest.raises(ValueError, match=r"have the name 'levels\.1'; use keys that differ as texts"):
        list(nested_values({"levels": {1: np.zeros(1), "1": np.zeros(1)}}))
    env = Nested()
    env.allocate(2)
    assert random_streams_of(env).keys() >= {"parts.noise"}


class Helper:
    """An object that an environment holds."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Held(CartPoleArrayEnv):
    """Lets a function change something in each step.

    Args:
        make: Makes it from the number of environments.
        change: Changes it.
    """

    def __init__(self, make: Any, change: Any, given: Any = None) -> None:
        super().__init__()
        self.make, self.change, self.given = make, change, given

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.held = self.make(n_envs)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.change(self)
        return super().step(actions, which)


def _raise_value(env: Any) -> None:
    env.held.value = env.held.value + 1


def _raise_in_place(env: Any) -> None:
    env.held.value[-1] += 1


IN_HELPER = "Held changes 'held.value', which checkpoints and copies do not hold: make it an attribute of"
STREAMS = "use RandomStreams as an attribute"
CHANGES: dict[str, tuple[Any, Any, str]] = {
    "array": (lambda n: Helper(np.zeros(n)), _raise_in_place, IN_HELPER),
    "other array": (lambda n: Helper(np.zeros(n)), _raise_value, IN_HELPER),
    "tensor": (lambda n: Helper(torch.zeros(n)), _raise_in_place, IN_HELPER),
    "streams": (lambda n: Helper(RandomStreams(np.arange(n))), lambda env: env.held.value.random(), IN_HELPER),
    "in a list": (
        lambda n: [Helper(np.zeros(n))],
        lambda env: env.held[0].value.__setitem__(0, 1.0),
        "changes 'held.0.value'",
    ),
    "generator": (np.random.default_rng, lambda env: env.held.random(), STREAMS),
    "old generator": (np.random.RandomState, lambda env: env.held.random_sample(), STREAMS),
    "generator of Python": (random.Random, lambda env: env.held.random(), STREAMS),
    "grown list": (lambda n: [], lambda env: env.held.append(np.zeros(1)), "made or removed 'held.0' in reset or step"),
    "option": (
        np.zeros,
        lambda env: env.given.__setitem__(0, 5.0),
        "'given'.*made by the constructor",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("wrappers", [[], [SCALE]])
def test_changes_that_checkpoints_do_not_hold_are_refused(name: str, wrappers: Any) -> None:
    make, change, message = CHANGES[name]
    vector = _vector(partial(_held, make, change), *wrappers, n_steps=2)
    with pytest.raises(EnvContractError, match=message):
        vector.state_dict()


class Latest(CartPoleArrayEnv):
    """Keeps the latest actions, of which it has none at first."""

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.latest = actions[0]["action"].copy()
        self.all_latest = actions
        return super().step(actions, which)


@pytest.mark.parametrize("wrappers", [[], [SCALE]])
def test_attributes_that_steps_make_are_restored_or_warned_of(wrappers: Any, caplog: pytest.LogCaptureFixture) -> None:
    whole = _vector(Latest, *wrappers, n_steps=2)
    whole.staging.action[0]["action"][:] = [1, 0, 1]
    whole.step()
    state = copy.deepcopy(whole.state_dict())
    expected = (
        "Latest made 'all_latest.0.action' in reset or step, which a resumed run does not have at first: if later"
    )
    assert expected in caplog.text
    resumed = _vector(Latest, *wrappers)
    resumed.load_state_dict(state)
    assert resumed.env.unwrapped.latest.tolist() == [1, 0, 1]
    assert not hasattr(resumed.env.unwrapped, "all_latest")
    np.testing.assert_array_equal(_rewards(resumed), _rewards(whole))
    one, other = ArrayMazeEnv(Latest()), ArrayMazeEnv(Latest())
    one.reset(seed=3)
    one.step({"action": 1})
    other.reset(seed=8)
    other.clone_from(one)
    assert other.array_env.unwrapped.latest.tolist() == [1]


class Counting(CartPoleArrayEnv):
    """Counts its steps in an attribute."""

    def __init__(self, n_calls: Any = 0) -> None:
        super().__init__()
        self.n_calls = n_calls

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.n_calls += 1
        return super().step(actions, which)


@pytest.mark.parametrize(("start", "wrappers"), [(0, []), (0, [SCALE]), (np.int64(0), []), (np.float32(0.5), [])])
def test_changed_numbers_are_warned_of_once(start: Any, wrappers: Any, caplog: pytest.LogCaptureFixture) -> None:
    vector = _vector(partial(Counting, start), *wrappers, n_steps=2)
    expected = "Counting changes its number 'n_calls' in reset or step, which checkpoints do not hold: if later steps"
    vector.state_dict()
    assert caplog.text.count(expected) == 1
    vector.step()
    vector.state_dict()
    assert caplog.text.count("changes its number") == 1


class Missing(CartPoleArrayEnv):
    """Has attributes that are not numbers, or not yet."""

    def __init__(self) -> None:
        super().__init__()
        self.missing, self.time = float("nan"), np.timedelta64("NaT")
        self.best = float("nan")

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.missing, self.time = self.missing + 1.0, self.time + np.timedelta64(1, "s")
        self.best = 3.0
        return super().step(actions, which)


def test_a_number_that_stays_nan_has_not_changed(caplog: pytest.LogCaptureFixture) -> None:
    _vector(Missing, n_steps=2).state_dict()
    assert caplog.text.count("changes its number") == 1
    assert "Missing changes its number 'best'" in caplog.text


def _held(make: Any, change: Any) -> ArrayEnv:
    return Held(make, change, np.zeros(2))


class OwnState(Held):
    """Saves a helper itself."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "helper": self.held.value}


class CountingWrapper(ArrayWrapper):
    """Counts steps in a helper."""

    def __init__(self, env: ArrayEnv) -> None:
        super().__init__(env)
        self.helper = Helper(np.zeros(1))

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.helper.value += 1
        return super().step(actions, which)


def test_environments_with_a_state_dict_are_trusted_and_wrappers_are_checked() -> None:
    make = partial(OwnState, *CHANGES["array"][:2])
    _vector(make, n_steps=2).state_dict()
    vector = ArrayVectorEnv(lambda: CountingWrapper(CartPoleArrayEnv()), N)
    vector.reset()
    vector.step()
    with pytest.raises(EnvContractError, match=r"CountingWrapper changes 'helper\.value'"):
        vector.state_dict()


def test_constant_helpers_are_allowed() -> None:
    def nothing(env: Any) -> None:
        pass

    table = np.arange(1_000_000.0)
    vector = _vector(partial(Held, lambda n: Helper({"table": table, "tensor": torch.ones(3)}), nothing), n_steps=2)
    vector.state_dict()
    vector.step()
    vector.state_dict()
