"""Of a long episode a checkpoint holds the state of the environment, and not all actions, where that is possible."""

from __future__ import annotations

import io
import re
from functools import partial
from typing import Any

import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import RandomPolicy
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv, episode_state, sequential_vector_env
from maze_pl.envs.wrappers import (
    ReturnNormalizationRewardWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
)
from tests.datamodules.drift import Endless, Iterating
from tests.envs import structured_example
from tests.envs.structured_example import (
    HeapCoreEnv,
    NamedAction,
    PlanObservation,
    WorkObservation,
    make_heap_env,
)
from tests.equality import assert_equal


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have episodes be long from 50 acts on, and those of heaps not end by themselves."""
    monkeypatch.setattr(sequential_vector_env, "MOST_REPLAYED_ACTS", 50)
    monkeypatch.setattr(structured_example, "N_STEPS", 10**9)


def plain(n_steps: int = 150) -> Any:
    return GymMazeEnv("Pendulum-v1", max_episode_steps=n_steps)


def wrapped(n_steps: int = 150) -> Any:
    env = TimeLimitWrapper.wrap(StepSkipWrapper.wrap(plain(10**6), n_steps=2), max_episode_steps=2 * n_steps)
    return ReturnNormalizationRewardWrapper.wrap(env)


class HeapWithoutKpis(HeapCoreEnv):
    """KPIs need all events of an episode."""

    def get_kpi_calculator(self) -> None:
        return None


def structured(n_steps: int = 150) -> Any:
    actions = {"plan": NamedAction("plan"), "work": NamedAction("work", "amount_mask")}
    env = MazeEnv(HeapWithoutKpis(), actions, {"plan": PlanObservation(), "work": WorkObservation()})
    return TimeLimitWrapper.wrap(env, max_episode_steps=n_steps)


def collector_of(make_env: Any, kind: Any = SequentialVectorEnv, **options: Any) -> Collector:
    vector: VectorEnv = kind([make_env] * 2, seed=5, **options)
    return Collector(vector, 40, torch.Generator().manual_seed(3))


def collect(collector: Collector, n: int) -> list[Rollout]:
    steps = collector.vector.spec.steps.items()
    policy = RandomPolicy({key: step.action_space for key, step in steps}, {key: step.masks for key, step in steps})
    return [collector.collect(policy).clone() for _ in range(n)]


def saved(collector: Collector) -> Any:
    """The state as a checkpoint holds it."""
    file = io.BytesIO()
    torch.save(collector.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("make_env", [plain, wrapped, structured])
def test_a_long_episode_goes_on_exactly_from_its_state(make_env: Any) -> None:
    whole = collector_of(make_env)
    collect(whole, 3)
    state = saved(whole)
    for history in state["histories"]:
        assert len(history["keys"]) == episode_state.ACTS_BEFORE_STATE and "why" not in history
    expected = collect(whole, 3)
    assert sum(len(rollout.summaries) for rollout in expected) > 0  # with the statistics of the whole episode
    resumed = collector_of(make_env)
    assert resumed.load_state_dict(state) == []
    assert_equal(collect(resumed, 3), expected)


@pytest.mark.parametrize("make_env", [partial(plain, 1000), partial(structured, 1000)])
def test_a_resumed_episode_can_be_saved_and_resumed_again_whether_its_state_is_taken_again_or_not(
    make_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = collector_of(make_env)
    collect(whole, 2)
    first = saved(whole)
    expected = collect(whole, 4)
    resumed = collector_of(make_env)
    resumed.load_state_dict(first)
    assert_equal(collect(resumed, 2), expected[:2])
    second = saved(resumed)
    monkeypatch.setattr(SequentialVectorEnv, "_shorten", lambda *_: None)  # as where it is not possible any more
    third = saved(whole)  # of which the acts since the last state are a part
    assert len(second["histories"][0]["keys"]) < 20 < len(third["histories"][0]["keys"])
    for state, since in ((second, expected[2:]), (third, collect(whole, 2))):
        again = collector_of(make_env)
        assert again.load_state_dict(state) == []
        assert_equal(collect(again, 2), since)


def test_environments_in_processes_do_the_same() -> None:
    whole, there = collector_of(plain), collector_of(plain, SubprocVectorEnv, n_workers=1)
    collect(whole, 3)
    state = saved(whole)
    there.load_state_dict(state)
    assert_equal(collect(there, 2), collect(whole, 2))
    there.vector.close()


def test_what_is_saved_of_an_endless_episode_stays_small() -> None:
    collector = collector_of(partial(structured, 10**6))
    sizes = []
    for _ in range(3):
        collect(collector, 10)
        file = io.BytesIO()
        torch.save(collector.state_dict()["histories"], file)
        sizes.append(file.tell())
    for history in collector.vector.histories():
        assert len(history["keys"]) == episode_state.ACTS_BEFORE_STATE
    n_acts = 2 * 10 * 40 * 3  # at least, in two environments
    assert max(sizes[1] - sizes[0], sizes[2] - sizes[1]) < 4 * n_acts  # all actions are more than 16 bytes for each


class Hidden(Endless):
    """Has a state that is no attribute of it."""

    memory: dict[int, int] = {}  # noqa: RUF012, that is the mistake

    def step(self, action: Any) -> Any:
        self.memory[id(self)] = self.memory.get(id(self), 0) + 1
        self.start = float(self.memory[id(self)])
        return super().step(action)


class Saving(Iterating):
    """Says itself what its state is."""

    def episode_state(self) -> Any:
        after = next(self.numbers)
        self.numbers = iter(range(after, 10**9))
        return {"after": after, "start": self.start, "time": self.time}

    def load_episode_state(self, state: Any) -> None:
        self.numbers = iter(range(state["after"], 10**9))
        self.start, self.time = state["start"], state["time"]
        self.rewards = []


@pytest.mark.parametrize(
    ("make_env", "why"),
    [
        (Iterating, r"environment 0 .*\.numbers is a builtins:range_iterator, whose state Python does not see"),
        (make_heap_env, "environment 0 cannot be taken: its KPIs are computed from all events of the episode"),
        (Hidden, "environment 0 cannot be taken: two new ones that are given its state do not go on equally"),
    ],
)
def test_an_episode_whose_state_cannot_be_taken_is_kept_as_a_whole_and_says_why(make_env: Any, why: str) -> None:
    collector = collector_of(make_env)
    collect(collector, 3)
    history, other = collector.vector.histories()
    assert "state" not in history and len(history["keys"]) >= 120
    assert re.search(why, history["why"])
    assert re.search(why, other["why"])


def test_an_environment_that_says_what_its_state_is_goes_on_from_that() -> None:
    whole = collector_of(Saving)
    collect(whole, 3)
    state = saved(whole)
    assert "state" in state["histories"][0]
    resumed = collector_of(Saving)
    resumed.load_state_dict(state)
    assert_equal(collect(resumed, 1), collect(whole, 1))


class Renamed(Endless):
    """What `Endless` is in the next version of the user's code."""


def test_a_state_of_another_class_is_refused() -> None:
    whole = collector_of(Endless)
    collect(whole, 3)
    state = saved(whole)
    with pytest.raises(ValueError, match=r"environment 0 cannot take the state .*:Endless, of which .*: --warm-start"):
        collector_of(Renamed).load_state_dict(state)
