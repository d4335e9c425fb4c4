from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.core.actor_id import ActorID
from maze_pl.datasets.dead_end_clipping_trajectory_processor import DeadEndClippingTrajectoryProcessor
from maze_pl.datasets.identity_trajectory_processor import IdentityTrajectoryProcessor
from maze_pl.datasets.identity_with_next_observation_trajectory_processor import (
    IdentityWithNextObservationTrajectoryProcessor,
)
from maze_pl.datasets.trajectory_processors import TrajectoryProcessor
from maze_pl.records.columns import Columns
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.datasets.episodes_of_acts import Act, episode, flat, make_spec

TWO_SUB_STEPS = [Act(key, 0, time, 1.0 + time) for time in range(3) for key in "ab"]


def places(columns: dict[Any, Columns], field: str = "observation") -> dict[Any, list[int]]:
    """Which acts these are, by sub-step."""
    return {key: fields[field]["seen"][:, 1].astype(int).tolist() for key, fields in columns.items()}


def test_identity_takes_all_acts_as_they_are() -> None:
    record = episode([*TWO_SUB_STEPS, Act("b", 1, 2)], make_spec(1, 2))
    columns = IdentityTrajectoryProcessor().process(record)
    assert places(columns) == {"a": [0, 2, 4], "b": [1, 3, 5, 6]}
    assert columns["b"]["agent_id"].tolist() == [0, 0, 0, 1]
    assert columns["a"]["observation"]["seen"] is record.observation["a"]["seen"]
    assert columns["b"]["action"]["choice"] is record.action["b"]["choice"]


@pytest.mark.parametrize(("clip_k", "kept"), [(0, [0, 1, 2, 3, 4]), (2, [0, 1, 2]), (5, []), (7, [])])
def test_dead_ends_are_clipped(clip_k: int, kept: list[int]) -> None:
    processor = DeadEndClippingTrajectoryProcessor(clip_k)
    assert places(processor.process(flat(5))) == {"a": kept}
    assert places(processor.process(flat(5, terminated=False))) == {"a": [0, 1, 2, 3, 4]}, "it was no dead end"


def test_dead_ends_are_clipped_by_environment_steps() -> None:
    columns = DeadEndClippingTrajectoryProcessor(1).process(episode(TWO_SUB_STEPS, make_spec(1, 1)))
    assert places(columns) == {"a": [0, 2], "b": [1, 3]}
    assert [len(columns[key]["agent_id"]) for key in columns] == [2, 2]


def test_an_unfinished_step_at_the_end_is_clipped_as_a_step() -> None:
    record = flat(4)
    record.env_time = np.array([0, 1, 2, 2])
    record.last_env_time = 2  # the episode was terminated within the third step
    kept = {k: len(DeadEndClippingTrajectoryProcessor(k).process(record)["a"]["agent_id"]) for k in range(5)}
    assert kept == {0: 4, 1: 2, 2: 1, 3: 0, 4: 0}


def test_an_act_of_several_environment_steps_is_clipped_if_any_of_them_is() -> None:
    record = flat(4)
    record.env_time = np.array([0, 4, 8, 9])
    record.last_env_time = 11
    steps = [range(0, 4), range(4, 8), range(8, 9), range(9, 11)]
    for clip_k in range(13):
        kept = DeadEndClippingTrajectoryProcessor(clip_k).process(record)
        assert places(kept) == {"a": [place for place, act in enumerate(steps) if all(t < 11 - clip_k for t in act)]}


def test_all_sub_steps_of_skipped_environment_steps_are_clipped_together() -> None:
    acts = [Act(key, 0, time) for time in (0, 3, 6) for key in "ab"]
    record = episode(acts, make_spec(1, 1), last_time=8)
    kept = {clip_k: places(DeadEndClippingTrajectoryProcessor(clip_k).process(record)) for clip_k in (0, 2, 3, 5, 6)}
    assert kept[0] == {"a": [0, 2, 4], "b": [1, 3, 5]}
    assert kept[2] == {"a": [0, 2], "b": [1, 3]}
    assert kept[3] == kept[5] == {"a": [0], "b": [1]}
    assert kept[6] == {"a": [], "b": []}


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="clip_k=-1 must be at least 0"):
        DeadEndClippingTrajectoryProcessor(-1)
    with pytest.raises(ValueError, match=r"gamma=1\.5 must be between 0 and 1"):
        IdentityWithNextObservationTrajectoryProcessor(1.5)


@pytest.mark.parametrize("terminated", [True, False])
def test_next_observations_of_a_flat_episode(terminated: bool) -> None:
    columns = IdentityWithNextObservationTrajectoryProcessor(0.5).process(flat(4, terminated=terminated))["a"]
    assert columns["reward"].tolist() == [1, 2, 3, 4]
    assert columns["terminated"].tolist() == [False, False, False, terminated]
    assert columns["truncated"].tolist() == [False, False, False, not terminated]
    assert columns["discount"].tolist() == [0.5, 0.5, 0.5, 0.0 if terminated else 0.5]
    assert places({"a": columns}, "next_observation") == {"a": [1, 2, 3, 3 if terminated else 4]}
    assert columns["next_observation"]["seen"].dtype == np.float32


def test_sub_steps_of_an_environment_step_are_not_discounted_against_each_other() -> None:
    columns = IdentityWithNextObservationTrajectoryProcessor(0.5).process(episode(TWO_SUB_STEPS, make_spec(1, 1)))
    # act: 0 a, 1 b | 2 a, 3 b | 4 a, 5 b, with the rewards 1, 1 | 2, 2 | 3, 3
    assert columns["a"]["reward"].tolist() == [1 + 1, 2 + 2, 3 + 3]
    assert columns["b"]["reward"].tolist() == [1 + 0.5 * 2, 2 + 0.5 * 3, 3]
    assert places(columns, "next_observation") == {"a": [2, 4, 4], "b": [3, 5, 5]}


def test_acts_without_a_successor_are_left_out() -> None:
    record = episode(TWO_SUB_STEPS[:5], make_spec(1, 1), terminated=False, last_actor=ActorID("b", 0))
    columns = IdentityWithNextObservationTrajectoryProcessor().process(record)
    assert places(columns) == {"a": [0, 2], "b": [1, 3]}
    assert places(columns, "next_observation") == {"a": [2, 4], "b": [3, 5]}
    assert columns["b"]["truncated"].tolist() == [False, True]


def test_an_agent_that_is_done_ends_only_its_own_acts() -> None:
    acts = [Act("a", agent, time, 1.0, done=(agent, time) == (1, 1)) for time in range(3) for agent in (0, 1, 2)]
    acts.pop(7)  # agent 1 does not act after it is done
    columns = IdentityWithNextObservationTrajectoryProcessor(0.5).process(episode(acts, make_spec(3)))["a"]
    mine = columns["agent_id"] == 1
    assert columns["terminated"][mine].tolist() == [False, True]
    assert columns["reward"][mine].tolist() == [1 + 1 + 0.5, 1 + 1], "it gets what comes in its last step"


def test_rewards_that_are_attributed_are_the_acts_own() -> None:
    columns = IdentityWithNextObservationTrajectoryProcessor().process(
        episode(TWO_SUB_STEPS, make_spec(1, 1), attributed=True)
    )
    assert columns["a"]["reward"].tolist() == columns["b"]["reward"].tolist() == [10, 20, 30]


def test_acts_without_a_known_reward_are_no_transitions() -> None:
    record = flat(4, terminated=False)
    record.actor_reward = np.array([1.0, 2.0, np.nan, np.nan])
    record.actor_done = np.array([False, False, False, True])
    record.last_actor = ActorID("a", 0)
    columns = IdentityWithNextObservationTrajectoryProcessor().process(record)["a"]
    assert columns["reward"].tolist() == [1.0, 2.0]
    assert columns["terminated"].tolist() == [False, False]


def outcome(record: SpacesTrajectoryRecord, acts: list[Act], place: int, gamma: float) -> tuple[Any, ...] | None:
    """Reward, discount, terminated, truncated and next act of an act, by looking at one after the other."""
    act, reward = acts[place], 0.0
    for later in range(place, len(acts)):
        other = acts[later]
        if later > place and (other.key, other.agent) == (act.key, act.agent):
            return reward, gamma ** (other.time - act.time), False, False, later
        if act.done and other.time > act.time:
            break
        reward += gamma ** (other.time - act.time) * other.reward
    if act.done or record.terminated:
        return reward, 0.0, True, False, place
    if record.last_actor != ActorID(act.key, act.agent):
        return None
    return reward, gamma ** (record.last_env_time - act.time), False, True, len(acts)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_next_observations_are_those_that_a_walk_through_the_episode_finds(data: st.DataObject) -> None:
    gamma, time, acts, gone = 0.7, 0, list[Act](), set()
    actors = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    for _ in range(data.draw(st.integers(1, 20))):
        time += data.draw(st.integers(0, 2))
        alive = [actor for actor in actors if actor not in gone]
        if not alive:
            break
        actor = data.draw(st.sampled_from(alive))
        is_done = data.draw(st.integers(0, 9)) == 0
        gone |= {actor} if is_done else set()
        acts.append(Act(*actor, time, data.draw(st.integers(-3, 3)), is_done))
    terminated = data.draw(st.booleans())
    last = ActorID(*data.draw(st.sampled_from([a for a in [*actors, ("a", 2), ("a", 3)] if a not in gone])))
    record = episode(
        acts,
        make_spec(2, 2),
        terminated=terminated,
        last_time=time + data.draw(st.integers(0, 1)),
        last_actor=None if terminated else last,
    )
    columns = IdentityWithNextObservationTrajectoryProcessor(gamma).process(record)
    for key, fields in columns.items():
        expected = [(place, outcome(record, acts, place, gamma)) for place, act in enumerate(acts) if act.key == key]
        known = [(place, *found) for place, found in expected if found is not None]
        assert places(columns)[key] == [place for place, *_ in known]
        assert places(columns, "next_observation")[key] == [found[-1] for found in known]
        np.testing.assert_allclose(fields["reward"], [found[1] for found in known])
        np.testing.assert_allclose(fields["discount"], [found[2] for found in known])
        assert fields["terminated"].tolist() == [found[3] for found in known]
        assert fields["truncated"].tolist() == [found[4] for found in known]


def test_the_base_class_says_nothing_about_what_is_learned() -> None:
    with pytest.raises(TypeError, match="abstract method"):
        TrajectoryProcessor()  # type: ignore[abstract]


def test_the_only_actor_of_a_truncated_episode_is_never_done() -> None:
    processor = IdentityWithNextObservationTrajectoryProcessor(0.5)
    record = flat(3, terminated=False)
    expected = processor.process(record)
    assert expected["a"]["truncated"].tolist() == [False, False, True]
    record.actor_done[-1] = True  # as some logs mark their last row
    np.testing.assert_equal(processor.process(record), expected)
