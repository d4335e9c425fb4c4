"""Transitions agree with playing random structured environments act by act, however a run is cut into rollouts."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.collect.replay.storage import ReplayStorage
from maze_pl.collect.replay.transitions import Transitions
from maze_pl.core.batches import Rollout
from maze_pl.core.streams import act_streams
from maze_pl.datasets.identity_with_next_observation_trajectory_processor import (
    IdentityWithNextObservationTrajectoryProcessor,
)
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import SpacesRecordingWrapper
from maze_pl.records.columns import Columns
from tests.collect.collectors import random_policy
from tests.collect.random_scripts import script_collector, scripts
from tests.collect.scripted import Act, Episode, PlayedAct, Reference, Script, make_env

N_STEPS = 10
Found = dict[tuple[Any, ...], tuple[float, ...]]
"""Sub-step and what was seen -> stream, what is seen next, reward, discount, whether it is the actor's first act."""


def collected(script: Script, n_rollout_steps: int, gamma: float) -> tuple[Found, Transitions, list[Columns]]:
    """What comes of ten environment steps in rollouts of so many, and in which order."""
    collector = script_collector(script, n_rollout_steps)
    transitions, policy = Transitions(collector.n_envs, gamma, script.n_slots), random_policy(collector)
    found: Found = {}
    parts: list[Columns] = []
    following: dict[tuple[int, float], float] = {}  # what the latest transition of a stream sees next
    for _ in range(N_STEPS // n_rollout_steps):
        for key, columns in transitions.of(collector.collect(policy)).items():
            parts.append(columns := {name: np.copy(part) for name, part in flattened(columns).items()})
            for i, seen in enumerate(columns["seen"][:, 0].tolist()):
                assert (key, seen) not in found
                names = ("stream", "next", "reward", "discount", "is_first")
                found[key, seen] = tuple(float(columns[name].reshape(-1)[i]) for name in names)
                stream, seen_next, *_, is_first = found[key, seen]
                assert is_first or following[key, stream] == seen, "transitions of a stream follow each other"
                following[key, stream] = seen_next
    return found, transitions, parts


def flattened(columns: Columns) -> dict[str, Any]:
    seen = {"seen": columns["observation"]["id"], "next": columns["next_observation"]["id"]}
    return {**columns, **seen, "observation": 0, "next_observation": 0, "action": columns["action"]["choice"]}


def by_hand(acts: list[PlayedAct], script: Script, gamma: float) -> Found:
    """The transitions of one environment, straight from the definitions of R, D and of what an open act is."""
    found: Found = {}
    for i, me in enumerate(acts):
        reward, discount, following = 0.0, 1.0, None
        for j in range(i, len(acts)):
            it = acts[j]
            if j > i and it.act.key == me.act.key and it.act.agent == me.act.agent:
                following = it.obs
                break
            reward += discount * it.act.reward
            if (me.act.actor_done and it.step_end) or it.terminated:
                discount, following = 0.0, me.obs
                break
            if it.ends_row and not me.act.actor_done:
                discount *= gamma**it.advance
            if it.truncated or j == len(acts) - 1:
                if it.follower == (me.act.key, me.act.agent):
                    following = it.follower_obs
                break
        if following is not None:
            reward = me.act.own_reward if script.attributed else reward
            n_slots, n_envs = script.n_slots[me.act.key], len(script.episodes)
            stream = me.env * n_slots + me.slot if me.slot < n_slots else me.slot * n_envs + me.env
            found[me.act.key, me.obs] = (stream, following, reward, discount, float(me.is_first))
    return found


def by_streams(rollout: Rollout, gamma: float) -> Found:
    """The transitions of one long rollout by what on-policy algorithms make of it."""
    found: Found = {}
    for key, streams in act_streams(rollout, gamma).items():
        segment, final = rollout.segments[key], rollout.finals[key].observation["id"]
        for b in range(streams.row.shape[1]):
            rows = streams.row[:, b].tolist()
            for i, t in enumerate(rows):
                if t < 0 or streams.open[i, b]:
                    continue
                seen, at = segment.observation["id"][:, b, 0], streams.final[i, b]
                following = seen[t] if streams.terminated[i, b] else final[at, 0] if at >= 0 else seen[rows[i + 1]]
                numbers = (following, streams.reward[i, b], streams.discount[i, b], segment.is_first[t, b])
                found[key, float(seen[t])] = tuple(map(float, numbers))
    return found


def check_transitions(script: Script, n_rollout_steps: int, gamma: float) -> None:
    found, _, _ = collected(script, n_rollout_steps, gamma)
    long = script_collector(script, N_STEPS)
    played, expected = Reference(script, N_STEPS).collect(), {}
    for acts in played:
        expected |= by_hand(acts, script, gamma)
    assert found.keys() == expected.keys()
    streams = by_streams(long.collect(random_policy(long)), gamma)
    assert found.keys() == streams.keys()
    for what, numbers in found.items():
        assert numbers == pytest.approx(expected[what], abs=1e-9), what
        assert numbers[1:] == pytest.approx(streams[what], abs=1e-9), what


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(script=scripts(), n_rollout_steps=st.sampled_from([1, 2, 5]), gamma=st.floats(0.5, 1.0))
def test_a_run_cut_into_rollouts_gives_the_transitions_of_playing_act_by_act(
    script: Script, n_rollout_steps: int, gamma: float
) -> None:
    check_transitions(script, n_rollout_steps, gamma)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(script=scripts(), n_rollout_steps=st.sampled_from([1, 2, 5]), gamma=st.floats(0.5, 1.0))
def test_many_runs_cut_into_rollouts_give_the_transitions_of_playing_act_by_act(
    script: Script, n_rollout_steps: int, gamma: float
) -> None:
    check_transitions(script, n_rollout_steps, gamma)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(script=scripts(), gamma=st.floats(0.5, 1.0))
def test_recorded_episodes_give_the_transitions_of_playing_act_by_act(script: Script, gamma: float) -> None:
    processor = IdentityWithNextObservationTrajectoryProcessor(gamma)
    for index, played in enumerate(Reference(script, 1).episodes()):
        env = SpacesRecordingWrapper.wrap(make_env(script, index), n_episodes=100, max_agents=script.limits)
        for acts in played:
            env.reset()
            for _ in acts:
                env.step({"choice": 0})
        for record, acts in zip(env.trajectories, played, strict=True):
            assert record.agent_id.tolist() == [a.act.agent for a in acts]
            expected = by_hand(acts, script, gamma)
            found = {}
            for key, columns in processor.process(record).items():
                numbers = [columns["next_observation"]["id"][:, 0], columns["reward"], columns["discount"]]
                seen = columns["observation"]["id"][:, 0].tolist()
                found |= {(key, one): row for one, row in zip(seen, np.transpose(numbers), strict=True)}
            assert found.keys() == expected.keys()
            for what, row in found.items():
                assert row == pytest.approx(expected[what][1:4], abs=1e-9), what


HAND = Script(
    (1, 2),
    False,
    (
        (
            Episode(
                (
                    Act(0, 0, 1.0, 0.0, 0),
                    Act(1, 0, 2.0, 0.0, 1),
                    Act(1, 1, 4.0, 0.0, 1, actor_done=True),
                    Act(0, 0, 8.0, 0.0, 0),
                    Act(1, 0, 16.0, 0.0, 2),
                ),
                True,
                (1, 0),
            ),
        ),
    ),
)


TURNOVER = Script(
    (-1, 1),
    False,
    (
        (
            Episode(
                (
                    Act(0, 0, 1.0, 0.0, 0),
                    Act(1, 0, 2.0, 0.0, 0),
                    Act(0, 0, 4.0, 0.0, 0, actor_done=True),
                    Act(1, 0, 8.0, 0.0, 0),
                    Act(1, 0, 0.5, 0.0, 0),  # begins another row
                    Act(0, 1, 16.0, 0.0, 0),  # takes the slot in the same environment step, and acts in it twice
                    Act(1, 0, 32.0, 0.0, 0),
                    Act(0, 1, 64.0, 0.0, 1),
                    Act(0, 1, 128.0, 0.0, 1),
                ),
                False,
                (0, 1),
            ),
        ),
    ),
    (1, 1),
)


@pytest.mark.parametrize(
    ("n_agents", "follower"), [((1, 2), (0, 1)), ((1, 2), (0, -1)), ((1, 2), (1, 2)), ((-1, -1), (0, -1))]
)
def test_final_observations_of_agents_that_are_not_declared_are_refused(
    n_agents: tuple[int, int], follower: tuple[int, int]
) -> None:
    """The slots of such agents would be those of another sub-step, or of no agent."""
    ((episode,),) = HAND.episodes
    script = Script(n_agents, False, ((replace(episode, follower=follower),),), (1, 2))
    collector = script_collector(script, 4)
    named = rf"environment 0: actor_id\(\) names agent {follower[1]} of sub-step {follower[0]} after a truncated"
    with pytest.raises(EnvContractError, match=named):
        collector.collect(random_policy(collector))


@pytest.mark.parametrize("n_rollout_steps", [1, 5])
def test_returns_over_several_acts_are_those_of_one_actor_if_another_takes_its_slot_at_once(
    n_rollout_steps: int,
) -> None:
    expected: Found = {}
    for acts in Reference(TURNOVER, N_STEPS).collect():
        expected |= by_hand(acts, TURNOVER, 0.5)
    collector = script_collector(TURNOVER, n_rollout_steps)
    transitions, policy = transitions_of(TURNOVER), random_policy(collector)
    storage = ReplayStorage(collector.spec.steps[0], 100, n_step=3)
    for _ in range(N_STEPS // n_rollout_steps):
        storage.add(transitions.of(collector.collect(policy))[0])
    assert len(storage) == len([key for key, _ in expected if key == 0]) == 5 * 5
    drawn, _ = storage.sample(1, 500, torch.Generator().manual_seed(0))
    columns = drawn.observation["id"], drawn.reward, drawn.discount
    values = [column[0].ravel().tolist() for column in columns]
    by_act = {seen: (reward, discount) for seen, reward, discount in zip(*values, strict=True)}
    assert len(by_act) == len(storage)
    for seen, numbers in by_act.items():
        reward, discount, at = 0.0, 1.0, seen
        for _ in range(3):
            _, following, its_reward, its_discount, _ = expected[0, at]
            reward += discount * its_reward
            discount *= its_discount
            if not discount or (0, following) not in expected:
                break
            at = following
        assert numbers == (reward, discount), seen


def transitions_of(script: Script) -> Transitions:
    return Transitions(len(script.episodes), 0.5, script.n_slots)


def test_rewards_between_acts_of_an_actor_add_up_over_rollouts() -> None:
    found, transitions, parts = collected(HAND, 1, 0.5)
    first = {key: numbers for key, numbers in found.items() if key[1] < 1000}
    assert first == {
        # acts 0 and 3 are of the same actor: 1 + 2 at time 0 and 4 at time 1, each of which counts half of the former
        (0, 0.0): (0, 3.0, 1.0 + 2.0 + 0.5 * 4.0, 0.25, 1),
        (1, 1.0): (0, 4.0, 2.0 + 0.5 * 4.0 + 0.25 * 8.0, 0.25, 1),
        (1, 2.0): (1, 2.0, 4.0, 0.0, 1),  # done: ends with the environment step
        (1, 4.0): (0, 5.0, 16.0, 0.25, 0),  # cut off after two units of time, when it would have acted again
        # act 3 is dropped: somebody else saw how the episode was cut off
    }
    assert [len(columns["reward"]) for columns in parts[:3]] == [1, 1, 2], "each as soon as what follows is known"
    assert {key: len(columns["env"]) for key, columns in transitions.state_dict().items()} == {0: 1, 1: 1}


def test_open_acts_go_on_from_their_state() -> None:
    """Three environment steps, then six more that another object goes on with."""
    collector = script_collector(HAND, 1)
    policy, whole, begun = random_policy(collector), transitions_of(HAND), transitions_of(HAND)
    for step in range(9):
        rollout = collector.collect(policy)
        if step == 2:
            state, begun = begun.state_dict(), transitions_of(HAND)
            torch.save(state, buffer := io.BytesIO())
            buffer.seek(0)
            begun.load_state_dict(torch.load(buffer, weights_only=True))
        expected, found = whole.of(rollout), begun.of(rollout)
        assert expected.keys() == found.keys()
        for key, columns in expected.items():
            for name, part in flattened(columns).items():
                np.testing.assert_array_equal(part, flattened(found[key])[name])


def test_an_environment_that_starts_anew_without_an_end_leaves_no_transition_to_its_next_episode() -> None:
    collector, transitions = script_collector(HAND, 1), transitions_of(HAND)
    policy = random_policy(collector)
    transitions.of(collector.collect(policy))
    collector.slots.forget_episodes(np.array([0]))  # as when it cannot be brought to where it was
    collector.start([7])
    for _ in range(3):
        for key, columns in transitions.of(collector.collect(policy)).items():
            parts = flattened(columns)
            assert np.array_equal(parts["seen"] // 1000, parts["next"] // 1000), key


def test_what_is_open_when_an_episode_is_lost_does_not_end_with_the_next_one() -> None:
    lost = Episode((Act(0, 0, 1.0, 0.0, 0), Act(1, 0, 2.0, 0.0, 1), Act(0, 0, 4.0, 0.0, 1)), True, (1, 0))
    script = Script((1, 1), False, ((lost, Episode((Act(0, 0, 8.0, 0.0, 1),), False, (0, 0))),))
    collector, transitions = script_collector(script, 1), transitions_of(script)
    policy = random_policy(collector)
    assert list(transitions.of(collector.collect(policy))) == [0], "the act of sub-step 1 is open"
    collector.slots.forget_episodes(np.array([0]))
    collector.start([1])
    found = {key: flattened(columns) for key, columns in transitions.of(collector.collect(policy)).items()}
    assert list(found) == [0], "the act of sub-step 1 belongs to no episode that has ended"
    assert found[0]["seen"].tolist() == [[1000.0]] and found[0]["reward"].tolist() == [8.0]
    assert found[0]["discount"].tolist() == [0.0]
