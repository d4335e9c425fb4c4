"""An environment that has taken over the state of another one goes on as that one does, and apart from it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import CoreEnv, GymMazeEnv, MazeEnv, RewardAggregatorInterface, take_over
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from tests.envs.structured_example import (
    HeapCoreEnv,
    HeapEvents,
    NamedAction,
    PlanObservation,
    TwoHalvesWrapper,
    WorkObservation,
    make_heap_env,
)


class Total(RewardAggregatorInterface):
    """Remembers more than the events of one step."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def get_interfaces(self) -> list[type]:
        return [HeapEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        self.total += sum(record.attributes["amount"] for record in self.query_events(HeapEvents.added))
        return float(self.total)


class TotalHeapCoreEnv(HeapCoreEnv):
    """Its reward is what was added since the environment was made."""

    def __init__(self) -> None:
        super().__init__()
        self.aggregator = Total()
        self.pubsub.register_subscriber(self.aggregator)

    def step(self, maze_action: tuple[str, int]) -> Any:
        state, _, *rest = super().step(maze_action)
        return (state, self.aggregator.summarize_reward(state), *rest)


def with_aggregator() -> MazeEnv:
    actions = {"plan": NamedAction("plan"), "work": NamedAction("work", "amount_mask")}
    return MazeEnv(TotalHeapCoreEnv(), actions, {"plan": PlanObservation(), "work": WorkObservation()})


def stack() -> Any:
    limited = TimeLimitWrapper.wrap(GymMazeEnv("Pendulum-v1"), max_episode_steps=20)
    learning = ReturnNormalizationRewardWrapper.wrap(ObservationNormalizationWrapper.wrap(limited))
    return LogStatsWrapper.wrap(RewardScalingWrapper.wrap(learning, scale=0.5))


MAKERS: list[Callable[[], Any]] = [
    make_heap_env,
    with_aggregator,
    lambda: LogStatsWrapper.wrap(make_heap_env()),
    lambda: GymMazeEnv("CartPole-v1"),
    lambda: LogStatsWrapper.wrap(TwoHalvesWrapper.wrap(GymMazeEnv("CartPole-v1"))),
    stack,
    lambda: LogStatsWrapper.wrap(masked_struct_env_factory(20, (10, 10), (3, 4))),
]


def begun(make: Callable[[], Any], seed: int, n_acts: int) -> tuple[Any, np.random.Generator]:
    env, generator = make(), np.random.default_rng(seed)
    if isinstance(env, LogStatsWrapper):
        env.estimate(100, seed)
    observation, _ = env.reset(seed=seed)
    return env, play(env, observation, generator, n_acts)[1]


def play(env: Any, observation: Any, generator: np.random.Generator, n_acts: int) -> tuple[list[Any], Any]:
    """Take the action that the observation allows and the generator chooses, and keep all that there is to see."""
    seen = []
    for _ in range(n_acts):
        key = env.actor_id().step_key
        masks = env.action_masks_dict[key]
        action = {
            head: int(generator.choice(np.flatnonzero(observation[masks[head]])))
            if head in masks
            else generator.integers(space.n)
            if hasattr(space, "n")
            else generator.uniform(space.low, space.high)
            for head, space in env.action_spaces_dict[key].items()
        }
        observation, *result, _ = env.step(action)
        events = [(record.event, record.attributes, record.env_time) for record in env.get_step_events()]
        seen.append((observation, result, env.actor_id(), env.get_env_time(), env.get_episode_id(), str(events)))
        if result[1] or result[2]:
            break
    return seen, (generator, observation)


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a[1:] == b[1:] and all(np.array_equal(a[0][name], b[0][name]) for name in a[0])
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n_acts", [0, 3])
def test_a_clone_and_its_original_go_on_equally_and_independently(make: Callable[[], Any], n_acts: int) -> None:
    (one, (_, observation)), (other, _) = begun(make, 1, n_acts), begun(make, 2, 2)
    other.clone_from(one)
    assert other.actor_id() == one.actor_id()
    assert other.get_env_time() == one.get_env_time()
    assert other.get_episode_id() == one.get_episode_id()
    first = play(one, observation, np.random.default_rng(7), 12)[0]
    second = play(other, observation, np.random.default_rng(7), 12)[0]
    assert first
    assert same(first, second)
    if isinstance(one, LogStatsWrapper):
        one.close_episode()
        other.close_episode()
        (summary,), (copied,) = one.drain_episode_summaries()[-1:], other.drain_episode_summaries()[-1:]
        assert summary.reward == copied.reward
        assert summary.env_steps == copied.env_steps
        assert summary.statistics.keys() == copied.statistics.keys()


def test_a_clone_is_a_copy_of_nothing_that_the_original_still_uses() -> None:
    (one, (_, observation)), (other, _) = begun(stack, 1, 3), begun(stack, 2, 2)
    other.clone_from(one)
    third, _ = begun(stack, 3, 1)
    third.clone_from(other)
    untouched = play(third, observation, np.random.default_rng(7), 8)[0]
    play(one, observation, np.random.default_rng(8), 8)
    assert same(untouched, play(other, observation, np.random.default_rng(7), 8)[0])
    for env in (one, other, third):
        assert env.pubsub is env.unwrapped.pubsub is env.core_env.pubsub
        assert env.context is env.unwrapped.context is env.core_env.context


def test_a_reward_aggregator_stays_the_one_that_gets_the_events() -> None:
    (one, _), (other, _) = begun(with_aggregator, 1, 2), begun(with_aggregator, 2, 2)
    aggregator = other.core_env.aggregator
    other.clone_from(one)
    assert other.core_env.aggregator is aggregator is other.pubsub.subscribers[0]
    assert aggregator.total == one.core_env.aggregator.total


class Silent(CoreEnv):
    step = reset = seed = close = get_maze_state = lambda self, *args: None  # type: ignore[assignment]


class Held(Silent):
    """Its simulator is neither a simulation nor an environment, and fires events by itself."""

    def __init__(self, time: int) -> None:
        super().__init__()
        self.env = SimpleNamespace(time=time, pubsub=self.pubsub)

    def clone_from(self, env: CoreEnv) -> None:
        take_over(self, env)


def test_a_simulator_that_is_called_env_is_copied_like_anything_else() -> None:
    one, other = Held(3), Held(0)
    other.clone_from(one)
    one.env.time += 1
    assert (one.env.time, other.env.time) == (4, 3)
    assert other.env.pubsub is other.pubsub is not one.pubsub


def test_a_gymnasium_environment_stays_the_one_that_others_may_hold_on_to() -> None:
    one, other = GymMazeEnv("CartPole-v1"), GymMazeEnv("CartPole-v1")
    one.reset(seed=1)
    other.reset(seed=2)
    inner = other.core_env.env
    other.clone_from(one)
    assert other.core_env.env is inner
    assert np.array_equal(vars(inner.unwrapped)["state"], vars(one.core_env.env.unwrapped)["state"])


def test_simulations_that_do_not_say_how_refuse() -> None:
    with pytest.raises(TypeError, match="Silent cannot take over the state of another one; define its clone_from"):
        Silent().clone_from(Silent())


def test_an_environment_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="MazeEnv cannot take over the state of a GymMazeEnv"):
        make_heap_env().clone_from(GymMazeEnv("CartPole-v1"))
    with pytest.raises(TypeError, match="LogStatsWrapper cannot take over the state of a MazeEnv"):
        LogStatsWrapper.wrap(make_heap_env()).clone_from(make_heap_env())


def test_what_cannot_be_copied_is_named() -> None:
    class Held:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(TypeError, match=r"Held cannot be copied \(.*lock.*\); define its clone_from"):
        take_over(Held(), Held())


def test_a_gymnasium_environment_whose_copies_start_anew_is_refused() -> None:
    pytest.importorskip("Box2D")
    one, other = GymMazeEnv("LunarLander-v3"), GymMazeEnv("LunarLander-v3")
    with pytest.raises(TypeError, match="LunarLander-v3 cannot be copied: its copies start from the beginning"):
        one.clone_from(other)


def test_what_is_copied_refers_to_the_own_environment() -> None:
    class Part:
        def __init__(self, env: Any) -> None:
            self.env, self.actors = env, [ActorID("plan", 0)]

    one, other = make_heap_env(), make_heap_env()
    own, theirs = Part(one), Part(other)
    take_over(own, theirs, (one, other))
    assert own.env is one
    assert own.actors == theirs.actors
    assert own.actors is not theirs.actors
