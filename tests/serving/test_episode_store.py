"""Episodes on the server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.serving.episode_store import BYTES_OF_ACTOR, EpisodeStore
from maze_pl.serving.request_error import RequestError

MUCH = 10**9  # bytes of policy states


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_episodes_are_forgotten_if_they_are_not_used() -> None:
    clock = Clock()
    store = EpisodeStore(10, 5.0, MUCH, clock)
    first, second = store.begin({}), store.begin({})
    clock.now = 4.0
    store.find(first)
    clock.now = 8.0
    assert len(store) == 1
    store.find(first)
    with pytest.raises(RequestError, match="was not used for 5 s") as error:
        store.find(second)
    assert error.value.status == 404


def test_there_are_no_more_episodes_than_allowed() -> None:
    clock = Clock()
    store = EpisodeStore(2, 5.0, MUCH, clock)
    first = store.begin({})
    store.begin({})
    with pytest.raises(RequestError, match="already 2 episodes") as error:
        store.begin({})
    assert error.value.status == 503
    store.end(first)
    store.begin({})
    clock.now = 6.0
    store.begin({})
    assert len(store) == 1


def test_a_policy_with_other_states_cannot_continue_episodes() -> None:
    store = EpisodeStore(10, 5.0, MUCH)
    kept, lost = store.begin({0: {"a": [1]}}), store.begin({0: {"a": [2]}})
    assert store.forget_incompatible({0: {"a": [1]}}) == 1
    store.find(kept)
    with pytest.raises(RequestError):
        store.find(lost)


def state(n: int = 1) -> dict[str, np.ndarray]:
    """A policy state [1, 100] of 400 bytes, which is a row of an array of more rows."""
    return {"memory": np.full((n, 100), n, np.float32)[-1:]}


def test_the_memory_of_policy_states_is_bounded_over_all_episodes() -> None:
    clock = Clock()
    store = EpisodeStore(10, 5.0, 3 * (BYTES_OF_ACTOR + 400), clock)
    first, second = store.begin({}), store.begin({})
    for agent in (0, 1):
        store.keep(first, 0, agent, state())
    store.keep(second, 0, 0, state())
    with pytest.raises(RequestError, match=r"take 4200 bytes, and at most 4200 are allowed: end some by") as error:
        store.keep(second, 0, 1, state())
    assert error.value.status == 503
    store.keep(first, 0, 0, state(3))  # a known actor
    assert store.find(first).state_of(0, 0)["memory"].tolist() == [3.0] * 100
    store.end(first)
    store.keep(second, 0, 1, state())
    clock.now = 6.0
    assert (len(store), store.n_bytes) == (0, 0)
    third = store.begin({0: 1})
    store.keep(third, 0, 0, state())
    store.forget_incompatible({0: 2})
    assert store.n_bytes == 0


def test_a_policy_of_which_no_state_fits_is_refused_by_its_size() -> None:
    shapes: dict[Any, Any] = {0: {}, "b": {"memory": {"dtype": "float32", "shape": [4, 25]}}}
    EpisodeStore(10, 5.0, BYTES_OF_ACTOR + 400).require_room(shapes)
    EpisodeStore(10, 5.0, 1).require_room({0: {}})  # a policy without states keeps none
    message = r"of sub-step 'b' takes 1400 bytes, more than --max_state_bytes 1399 allows$"
    with pytest.raises(ConfigurationError, match=message):
        EpisodeStore(10, 5.0, BYTES_OF_ACTOR + 399).require_room(shapes)
    shapes["b"]["memory"]["shape"] = [2**40, 2**40]
    with pytest.raises(ConfigurationError, match="more than --max_state_bytes"):
        EpisodeStore(10, 5.0, 2**52).require_room(shapes)


def test_policy_states_do_not_keep_those_of_others_in_memory() -> None:
    store = EpisodeStore(10, 5.0, MUCH)
    name = store.begin({})
    store.keep(name, 0, 0, state(1000))
    assert store.find(name).state_of(0, 0)["memory"].base is None


def test_an_act_that_is_decided_after_the_end_of_its_episode_keeps_nothing() -> None:
    store = EpisodeStore(10, 5.0, MUCH)
    name = store.begin({})
    store.end(name)
    store.keep(name, 0, 0, state())
    assert store.n_bytes == 0


def test_an_episode_of_a_policy_without_states_keeps_nothing() -> None:
    store = EpisodeStore(10, 5.0, MUCH)
    name = store.begin({})
    for agent in range(3):
        assert store.find(name).state_of(0, agent) == {}
        store.keep(name, 0, agent, {})
    assert (store.find(name).states, store.n_bytes) == ({}, 0)
