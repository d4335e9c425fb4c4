"""Environments in arrays continue exactly, whatever the types of their states are and wherever arrays are replaced."""

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.agents import RandomPolicy
from maze_pl.collect.collector import Collector
from maze_pl.core.episode_batch import EpisodeBatch
from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv, ArrayWrapper
from maze_pl.events import define_episode_stats, define_epoch_stats, define_step_stats

N = 3


class Balance(CartPoleArrayEnv):
    """Rewards are a balance, integers at first, to which each step adds a fraction."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.balance: Any = np.zeros(n_envs, np.int64)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.balance[which] = 0
        return super().reset(which, seeds)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        added = np.zeros(self.n_envs)
        added[which] = 0.6
        self.balance = self.balance + added
        result.reward = self.balance.copy()
        return result


class TensorBalance(Balance):
    """The same in tensors."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.balance = torch.zeros(n_envs, dtype=torch.int64)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = CartPoleArrayEnv.step(self, actions, which)
        added = torch.zeros(self.n_envs, dtype=torch.float64)
        added[which] = 0.6
        self.balance = self.balance + added
        result.reward = self.balance.clone()
        return result


class Debts(CartPoleArrayEnv):
    """Rewards are integers, which the constructor or `allocate` makes as fractions, and which wrap around.

    Args:
        is_given: Whether the constructor makes them, and `reset` replaces them.
    """

    def __init__(self, is_given: bool) -> None:
        super().__init__()
        self.is_given = is_given
        if is_given:
            self.debt: Any = np.zeros(1)

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        if not self.is_given:
            self.debt = np.zeros(n_envs)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        debt = np.zeros(self.n_envs, np.int8)
        debt[...] = self.debt
        debt[which] = 99
        self.debt = debt
        return super().reset(which, seeds)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        self.debt = self.debt + np.full(self.n_envs, 9, np.int8)
        result.reward = self.debt.copy()
        return result


def make_debts() -> Debts:
    return Debts(is_given=False)


def make_given_debts() -> Debts:
    return Debts(is_given=True)


def _rewards(vector: ArrayVectorEnv, n_steps: int) -> list[list[float]]:
    rewards = []
    for _ in range(n_steps):
        vector.step()
        rewards.append(vector.staging.reward.tolist())
    return rewards


def _dtypes(state: dict[str, Any]) -> dict[str, Any]:
    """Return the types of the arrays of an environment's state."""
    return {name: array.dtype for name, array in state["array_env"].items() if isinstance(array, np.ndarray)}


@pytest.mark.parametrize("make_env", [Balance, TensorBalance, make_debts, make_given_debts])
@pytest.mark.parametrize("n_steps", [0, 3])
def test_states_keep_the_types_that_they_had_when_they_were_saved(make_env: Any, n_steps: int) -> None:
    whole = ArrayVectorEnv(make_env, N, seed=1)
    whole.reset()
    _rewards(whole, n_steps)
    state = copy.deepcopy(whole.state_dict())
    expected = _rewards(whole, 20)
    resumed = ArrayVectorEnv(make_env, N, seed=1)
    resumed.load_state_dict(state)
    assert _dtypes(resumed.state_dict()) == _dtypes(state)
    assert _rewards(resumed, 20) == expected
    resumed.load_state_dict(state)  # its arrays may have other types by now
    assert _rewards(resumed, 20) == expected


class Late(CartPoleArrayEnv):
    """Waits for a step of other environments before it starts an episode."""

    starts_late = True


def _observed(vector: ArrayVectorEnv, n_steps: int) -> list[Any]:
    """Return the observations after each step, and which environments wait for another one."""
    observed = []
    for _ in range(n_steps):
        vector.step()
        (rows,) = vector.staging.observation[0].values()
        assert vector.waiting is not None
        observed.append([rows.tolist(), vector.waiting.tolist()])
    return observed


def test_environments_that_wait_for_the_next_step_do_so_after_resuming() -> None:
    whole = ArrayVectorEnv(Late, N, seed=1)
    whole.reset()
    assert whole.waiting is not None
    while not whole.waiting.any():
        whole.step()
    state = copy.deepcopy(whole.state_dict())
    resumed = ArrayVectorEnv(Late, N, seed=1)
    resumed.load_state_dict(state)
    assert resumed.waiting is not None and resumed.waiting.tolist() == whole.waiting.tolist()
    assert _observed(resumed, 30) == _observed(whole, 30)
    del state["waiting"]  # as in earlier versions
    resumed.load_state_dict(state)
    assert not resumed.waiting.any()


def test_a_step_of_environments_that_wait_starts_their_episodes_and_no_others() -> None:
    vector = ArrayVectorEnv(Late, N, seed=1)
    vector.reset()
    assert vector.waiting is not None
    while not vector.waiting.any():
        vector.step()
    (rows,) = vector.staging.observation[0].values()
    before, waited = rows.copy(), vector.waiting.copy()
    vector.step(np.flatnonzero(waited))
    assert not vector.waiting.any()
    assert (rows != before).any(axis=1).tolist() == waited.tolist()


@pytest.mark.parametrize("make_env", [Balance, TensorBalance, make_debts, make_given_debts])
def test_copies_for_search_have_the_same_types(make_env: Callable[[], ArrayEnv]) -> None:
    env = ArrayMazeEnv(make_env())
    copied = ArrayMazeEnv(make_env())
    copied.reset(seed=3)
    copied.step({"action": 1})
    env.reset(seed=1)
    for _ in range(5):
        copied.clone_from(env)
        following = ArrayMazeEnv(make_env())
        following.clone_from(copied)
        reward = env.step({"action": 0})[1]
        assert copied.step({"action": 0})[1] == reward
        assert following.step({"action": 0})[1] == reward


class Marked(CartPoleArrayEnv):
    """Rewards are the sum of marks, an array of the constructor that a step on the right side replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = np.zeros(2)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        if actions[0]["action"][0]:
            self.marks = self.marks + 1.0
        result.reward = np.full(self.n_envs, self.marks.sum())
        return result


def test_copies_for_search_return_to_an_array_of_the_constructor_that_was_not_replaced_yet() -> None:
    env, copied = ArrayMazeEnv(Marked()), ArrayMazeEnv(Marked())
    env.reset(seed=1)
    for _ in range(2):
        copied.clone_from(env)
        assert [copied.step({"action": action})[1] for action in (0, 1, 1)] == [0.0, 2.0, 4.0]
    env.step({"action": 1})
    copied.clone_from(env)
    assert [copied.step({"action": action})[1] for action in (0, 1)] == [2.0, 4.0]


class Nested(CartPoleArrayEnv):
    """Has an array of its state in a dict."""

    dtype: Any = np.int32

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.parts = {"level": np.zeros(n_envs, self.dtype)}

    def _arrays(self) -> Iterator[tuple[str, Any]]:
        yield from super()._arrays()
        for name, array in self.parts.items():
            yield f"part {name}", array


class Wider(Nested):
    dtype = np.float64


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_arrays_that_are_not_attributes_are_not_converted(is_wrapped: bool) -> None:
    one, other = (
        ArrayVectorEnv((lambda kind=kind: ArrayWrapper(kind())) if is_wrapped else kind, N, seed=1)
        for kind in (Wider, Nested)
    )
    one.reset()
    message = "the saved array 'part level' of Nested has type float64, expected int32; give it the same type in"
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(one.state_dict())


def n_kinds(kinds: Any) -> int:
    """Return the number of different texts."""
    return len(set(kinds))


def total(events: Any) -> Any:
    """Return the sum of the amounts of all events of a kind."""
    return sum(event["amount"] for event in events if event["kind"] == "bb")


class Sightings:
    """Events with texts."""

    @define_epoch_stats(np.mean)
    @define_episode_stats(n_kinds)
    @define_step_stats(None, input_name="kind")
    def seen(self, kind: str, amount: float) -> None:
        """Something was seen."""

    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(total)
    def counted(self, kind: str, amount: float) -> None:
        """Something was seen, and counted in one of two ways."""


class Watching(CartPoleArrayEnv):
    """Fires events with texts of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.sightings = self.create_event_topic(Sightings)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        envs = self.numbers_of(which)
        kinds = np.array(["a", "bb"])[(envs + self.n_steps[envs]) % 2]
        self.sightings.seen(envs, kind=kinds, amount=0.1)
        self.sightings.counted(envs, kind=kinds, amount=(envs / 3.0).astype(np.float32))
        return super().step(actions, which)


class Phases(Watching):
    """Extends its state by what is not an array, and wants it back as it was."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.extra: dict[str, Any] = {"phase": "warm", "none": None, "queue": [[1, 2], [3]], "table": [np.zeros(2)]}

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.extra["queue"][0].append(7)
        self.extra["table"][0][0] += 1.0
        result = super().step(actions, which)
        result.reward = np.full(self.n_envs, len(self.extra["queue"][0]) + self.extra["table"][0][0])
        return result

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "extra": self.extra, "n_steps_of": {"first": int(self.n_steps[0])}}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        assert type(state["n_steps_of"]["first"]) is int
        self.extra = copy.deepcopy(state["extra"])
        assert self.extra["phase"] == "warm"
        assert self.extra["none"] is None


def _summaries(make_env: Any, saved_after: int | None) -> list[str]:
    """Play some rollouts, with the state saved and restored after one of them."""

    def started() -> Collector:
        return Collector(ArrayVectorEnv(make_env, N, seed=1), 7, torch.Generator().manual_seed(0))

    collector = started()
    policy = RandomPolicy({key: step.action_space for key, step in collector.vector.spec.steps.items()})
    summaries = []
    for number in range(6):
        collected = collector.collect(policy).summaries
        assert isinstance(collected, EpisodeBatch)
        summaries.append(repr(collected.to_dict()))
        if number == saved_after:
            file = io.BytesIO()
            state = collector.state_dict()
            collector.collect(policy)  # changes nothing in the state
            torch.save(state, file)
            file.seek(0)
            collector = started()
            collector.load_state_dict(torch.load(file, weights_only=True))
    return summaries


@pytest.mark.parametrize("make_env", [Watching, Phases])
@pytest.mark.parametrize("saved_after", [0, 2])
def test_texts_in_events_and_states_are_saved(make_env: Any, saved_after: int) -> None:
    expected = _summaries(make_env, None)
    assert any("counted" in summary for summary in expected)
    assert _summaries(make_env, saved_after) == expected
