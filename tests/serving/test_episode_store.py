"""Episodes on the server."""

from __future__ import annotations

import pytest

from maze_pl.serving.episode_store import EpisodeStore
from maze_pl.serving.request_error import RequestError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_episodes_are_forgotten_if_they_are_not_used() -> None:
    clock = Clock()
    store = EpisodeStore(10, 5.0, clock)
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
    store = EpisodeStore(2, 5.0, clock)
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
    store = EpisodeStore(10, 5.0)
    kept, lost = store.begin({0: {"a": [1]}}), store.begin({0: {"a": [2]}})
    assert store.forget_incompatible({0: {"a": [1]}}) == 1
    store.find(kept)
    with pytest.raises(RequestError):
        store.find(lost)
