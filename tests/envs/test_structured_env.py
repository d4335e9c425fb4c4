from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec
from maze_pl.envs import CoreEnv, GymMazeEnv, MazeEnv, StructuredEnv
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from maze_pl.events import BaseEnvEvents
from tests.envs.structured_example import (
    HeapCoreEnv,
    HeapEvents,
    NamedAction,
    PlanObservation,
    TwoHalvesWrapper,
    WorkObservation,
    make_heap_env,
)


def play(env: StructuredEnv, amount: int = 1, limit: int = 100) -> list[tuple[ActorID, float, int, bool]]:
    acts = []
    for _ in range(limit):
        actor = env.actor_id()
        _, reward, terminated, truncated, _ = env.step({"amount": amount})
        acts.append((actor, reward, env.get_env_time(), env.is_actor_done()))
        if terminated or truncated:
            break
    return acts


def test_actors_act_in_the_order_that_the_simulation_gives_and_one_ends_early() -> None:
    env = make_heap_env()
    env.reset(seed=0)
    acts = play(env, amount=1)
    full, short = ["plan0", "work0", "work1", "work2"], ["plan0", "work0", "work2"]
    assert [f"{actor.step_key}{actor.agent_id}" for actor, *_ in acts] == full * 2 + short * 2
    assert [done for *_, done in acts] == [i == 6 for i in range(14)]


def test_time_advances_with_the_act_that_completes_the_environment_step() -> None:
    env = make_heap_env()
    env.reset(seed=0)
    assert [time for _, _, time, _ in play(env)] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4]


def test_spaces_follow_the_actor() -> None:
    env = make_heap_env()
    observation, _ = env.reset(seed=0)
    assert list(observation) == ["heap"]
    assert env.observation_space is env.observation_spaces_dict["plan"]
    observation, *_ = env.step({"amount": 2})
    assert env.observation_space is env.observation_spaces_dict["work"]
    assert env.observation_conversion is env.observation_conversion_dict["work"]
    assert env.observation_space.contains(observation)
    assert observation["target"] == 2
    assert env.action_masks_dict == {"plan": {}, "work": {"amount": "amount_mask"}}


def test_actor_rewards_are_those_of_the_finished_environment_step_in_order() -> None:
    env = make_heap_env()
    env.reset(seed=0)
    for amount in (2, 1, 2, 3):
        env.step({"amount": amount})
    assert env.get_actor_rewards() is not None
    np.testing.assert_array_equal(env.get_actor_rewards(), [0.0, -1.0, 0.0, -1.0])


def test_events_are_those_of_the_environment_step_and_reset_belongs_to_the_first() -> None:
    env = make_heap_env()
    env.reset(seed=0)
    counts = []
    for _ in range(6):
        env.step({"amount": 1})
        events = [record.event for record in env.get_step_events()]
        counts.append([events.count(e) for e in (HeapEvents.cleared, HeapEvents.added, BaseEnvEvents.reward)])
    assert counts == [[1, 0, 1], [1, 1, 2], [1, 2, 3], [1, 3, 4], [0, 0, 1], [0, 1, 2]]


def test_the_same_seed_gives_the_same_episode() -> None:
    heaps = []
    for seed in (5, 5, 6):
        env = make_heap_env()
        env.reset(seed=1)
        play(env, limit=3)
        observation, _ = env.reset(seed=seed)
        heaps.append((float(observation["heap"][0]), env.get_episode_id(), env.action_space.sample()["amount"]))
    assert heaps[0] == heaps[1]
    assert heaps[0][1] != heaps[2][1]


def test_statistics_of_a_structured_episode_count_environment_steps() -> None:
    env = LogStatsWrapper.wrap(make_heap_env())
    observation, _ = env.reset(seed=0)
    start = float(observation["heap"][0])
    env.step({"amount": 2})
    play(env, amount=1)
    (summary,) = env.drain_episode_summaries()
    assert summary.env_steps == 4
    assert summary.reward == -3.0  # the first target was 2, all others 1
    assert summary.kpis == {"acts_per_step": 10 / 4, "heap": start + 10}
    by_event = {key[1]: value for key, value in summary.statistics.items() if len(key[3]) == 0}
    assert by_event == {"added": 10.0, "cleared": 1.0}
    actions = {key[3]: len(np.atleast_1d(value)) for key, value in summary.statistics.items() if key[1] == "action"}
    assert sorted(actions.values()) == [4, 10]


def test_spec_is_read_through_wrappers() -> None:
    spec = Spec.of(TimeLimitWrapper.wrap(make_heap_env(), max_episode_steps=3))
    assert spec.step_keys == ("plan", "work")
    assert spec.steps["work"].n_slots == 3
    assert spec.steps["work"].masks == {"amount": "amount_mask"}


def test_a_wrapper_may_split_a_flat_environment_into_sub_steps() -> None:
    env = LogStatsWrapper.wrap(TwoHalvesWrapper.wrap(GymMazeEnv("CartPole-v1")))
    env.reset(seed=3)
    assert env.actor_id() == ActorID("whether", 0)
    assert env.action_space == spaces.Dict({"act": spaces.Discrete(2)})
    env.step({"act": 1})
    assert env.actor_id() == ActorID("what", 0)
    assert env.get_env_time() == 0
    _, reward, *_ = env.step({"action": 1})
    assert (reward, env.get_env_time()) == (1.0, 1)
    np.testing.assert_array_equal(env.get_actor_rewards(), [0.5, 0.5])
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step({"act": 0} if env.actor_id().step_key == "whether" else {"action": 1})
        ended = terminated or truncated
    (summary,) = env.drain_episode_summaries()
    assert summary.env_steps == summary.reward == env.get_env_time()
    assert len(Spec.of(env).steps) == 2


def test_conversions_for_other_sub_steps_than_the_simulation_has_are_refused() -> None:
    with pytest.raises(ValueError, match="one of each for every sub-step"):
        MazeEnv(HeapCoreEnv(), {"plan": NamedAction("plan")}, {"plan": PlanObservation()})


def test_a_mask_that_is_no_observation_is_refused() -> None:
    with pytest.raises(ValueError, match="not among its observations"):
        Spec.of(
            MazeEnv(
                HeapCoreEnv(),
                {"plan": NamedAction("plan", "nowhere"), "work": NamedAction("work")},
                {"plan": PlanObservation(), "work": WorkObservation()},
            )
        )


class Forgetful(NamedAction):
    """Its masks lack `@property`."""

    def action_masks(self) -> dict[str, str]:  # type: ignore[override]
        return {"amount": "heap"}


class Listing(NamedAction):
    """Its masks are not a dict."""

    @property
    def action_masks(self) -> Any:
        return ["heap"]


@pytest.mark.parametrize(
    ("conversion", "came"), [(Forgetful, "Forgetful is a method"), (Listing, "Listing returned a list of 1 values")]
)
def test_masks_that_are_not_a_dict_in_a_property_are_named(conversion: type[NamedAction], came: str) -> None:
    actions = {"plan": NamedAction("plan"), "work": conversion("work")}
    with pytest.raises(
        TypeError, match=rf"^action_masks of {came}; define it as a property \(@property\) that returns"
    ):
        MazeEnv(HeapCoreEnv(), actions, {"plan": PlanObservation(), "work": WorkObservation()})


def test_states_of_several_sub_steps_are_not_converted_by_guessing() -> None:
    env = make_heap_env()
    with pytest.raises(ValueError, match="does not tell"):
        env.get_observation_and_action_dicts(env.get_maze_state(), None, True)


def test_reset_options_are_not_ignored_silently() -> None:
    with pytest.raises(ValueError, match="takes no options"):
        make_heap_env().reset(options={"level": 3})


def test_conversions_without_an_inverse_say_so() -> None:
    with pytest.raises(TypeError, match="space_to_maze"):
        PlanObservation().space_to_maze({})
    with pytest.raises(TypeError, match="noop_action"):
        NamedAction("plan").noop_action()


def test_a_simulation_is_flat_unless_it_says_otherwise() -> None:
    class Still(CoreEnv):
        def step(self, maze_action: object) -> tuple[int, float, bool, bool, dict[str, object]]:
            return 0, 0.0, False, False, {}

        def reset(self) -> int:
            return 0

        def seed(self, seed: int) -> None: ...

        def close(self) -> None: ...

        def get_maze_state(self) -> int:
            return 0

    env = Still()
    assert (env.actor_id(), env.is_actor_done(), dict(env.agent_counts_dict)) == (ActorID(0, 0), False, {0: 1})
    assert env.get_actor_rewards() is env.get_renderer() is env.get_kpi_calculator() is None
    assert (env.get_serializable_components(), env.get_env_time()) == ({}, 0)


def test_closing_reaches_the_simulation() -> None:
    env = TimeLimitWrapper.wrap(make_heap_env(), max_episode_steps=3)
    env.close()
    assert env.core_env.closed
