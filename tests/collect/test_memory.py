"""What a policy carries from act to act: it advances with each act of its actor, and with nothing else."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.collect.collector import Collector
from maze_pl.collect.episodes import play_episodes
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.vector import SequentialVectorEnv
from tests.collect.collectors import DynamicCoreEnv, collector_of, dynamic
from tests.collect.counting_policy import CountingPolicy
from tests.collect.random_scripts import scripts
from tests.collect.scripted import Act, Choose, Episode, Observe, Script, make_env, spec_of
from tests.structured import agreement, hierarchy, team

CARTPOLE = partial(make_gym_maze_env, "CartPole-v1")


class Expected:
    """Follows the acts of rollouts one by one, and says what each actor must have carried."""

    def __init__(self) -> None:
        self.count: dict[Any, float] = defaultdict(float)
        self.sum: dict[Any, float] = defaultdict(float)

    def check(self, rollout: Rollout) -> int:
        rows, n_checked = rollout.rows, 0
        ends = rows.terminated | rows.truncated
        finals = {
            (key, int(final.row[i]), int(final.env[i])): (int(final.slot[i]), final, i)
            for key, final in rollout.finals.items()
            for i in range(len(final.row))
        }
        for t in range(len(rows.filled)):
            for n in range(rollout.n_envs):
                for key, segment in rollout.segments.items():
                    n_slots = rollout.n_slots(key)
                    for slot in range(n_slots):
                        b, actor = n * n_slots + slot, (key, n, slot)
                        if not segment.active[t, b]:
                            assert not any(tensor[t, b].any() for tensor in segment.policy_state.values())
                            continue
                        if segment.is_first[t, b]:
                            self.count[actor] = self.sum[actor] = 0.0
                        assert segment.policy_state["count"][t, b].item() == self.count[actor]
                        carried = segment.policy_state["sum"][t, b].flatten().tolist()
                        assert carried == pytest.approx([self.sum[actor]] * 2, rel=1e-5, abs=1e-4)
                        self.count[actor] += 1
                        self.sum[actor] += sum(float(tensor[t, b].sum()) for tensor in segment.observation.values())
                        n_checked += 1
                        if segment.actor_done[t, b]:  # who takes its place begins with nothing
                            self.count[actor] = self.sum[actor] = 0.0
                for key in rollout.segments:
                    if (key, t, n) in finals:
                        slot, final, i = finals.pop((key, t, n))
                        count = self.count[key, n, slot] if slot >= 0 else 0.0
                        assert (final.policy_state["count"][i].item() if final.policy_state else 0.0) == count
                if rows.filled[t, n] and ends[t, n]:
                    for key in rollout.segments:
                        for slot in range(rollout.n_slots(key)):
                            self.count[key, n, slot] = self.sum[key, n, slot] = 0.0
        assert not finals
        return n_checked


def follow(collector: Collector, n_rollouts: int) -> None:
    policy, expected = CountingPolicy(collector.spec), Expected()
    for _ in range(n_rollouts):
        assert expected.check(collector.collect(policy)) > 0


@pytest.mark.parametrize("make", [CARTPOLE, agreement.make_env, team.make_env, hierarchy.make_env])
def test_the_state_advances_with_each_act_of_its_actor(make: Any) -> None:
    follow(collector_of([make] * 3, 17), 3)


def follow_script(script: Script, n_rollout_steps: int) -> None:
    factories = [partial(make_env, script, index) for index in range(len(script.episodes))]
    follow(collector_of(factories, n_rollout_steps, spec=spec_of(script)), 3)


@given(script=scripts(), n_rollout_steps=st.integers(1, 7))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_state_advances_in_any_order_of_actors(script: Script, n_rollout_steps: int) -> None:
    follow_script(script, n_rollout_steps)


@pytest.mark.slow
@pytest.mark.long
@given(script=scripts(), n_rollout_steps=st.integers(1, 7))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_state_advances_in_many_orders_of_actors(script: Script, n_rollout_steps: int) -> None:
    follow_script(script, n_rollout_steps)


def test_an_agent_that_takes_the_slot_of_another_begins_with_an_empty_state() -> None:
    acts = [Act(0, 7, 1.0, 0.0, 0), Act(0, 8, 1.0, 0.0, 1), Act(0, 7, 1.0, 0.0, 0, True), Act(0, 8, 1.0, 0.0, 1)]
    acts += [Act(0, 9, 1.0, 0.0, 0), Act(0, 8, 1.0, 0.0, 1), Act(0, 9, 1.0, 0.0, 0), Act(0, 8, 1.0, 0.0, 1)]
    collector = dynamic(acts, 2)
    segment = collector.collect(CountingPolicy(collector.spec)).segments[0]
    assert segment.policy_state["count"].squeeze(-1).tolist() == [[0, 0], [1, 1], [0, 2], [1, 3]]


def test_storage_that_grows_keeps_states() -> None:
    acts = tuple(Act(0, 0, 0.0, 0.0, int(t % 6 == 5)) for t in range(60))
    collector = collector_of([partial(make_env, Script((2,), False, ((Episode(acts, False, (0, 0)),),)), 0)], 4)
    segment = collector.collect(CountingPolicy(collector.spec)).segments[0]
    assert segment.policy_state["count"][:, 0].flatten().tolist() == list(range(24))


@pytest.mark.parametrize("make", [CARTPOLE, team.make_env, hierarchy.make_env])
def test_a_restored_collector_goes_on_with_what_was_carried(make: Any) -> None:
    one = collector_of([make] * 3, 17, seed=4)
    policy = CountingPolicy(one.spec)
    for _ in range(3):
        one.collect(policy)
    other = collector_of([make] * 3, 17, seed=4)
    assert other.load_state_dict(one.state_dict()) == []
    for _ in range(2):
        expected, found = one.collect(policy).clone(), other.collect(policy)
        for key, segment in expected.segments.items():
            for name, tensor in segment.policy_state.items():
                assert tensor.any() and torch.equal(tensor, found.segments[key].policy_state[name])
            for name, tensor in expected.finals[key].policy_state.items():
                assert torch.equal(tensor, found.finals[key].policy_state[name])


def test_policies_without_a_state_leave_none() -> None:
    collector = collector_of([CARTPOLE], 5)
    policy = CountingPolicy(collector.spec)
    without = type("Forgetful", (), {"act": lambda self, batch, **how: PolicyStep(policy.act(batch, **how).action)})()
    rollout = collector.collect(without)
    assert rollout.segments[0].policy_state == rollout.finals[0].policy_state == {}


@pytest.mark.parametrize("n_envs", [1, 2, 4])
@pytest.mark.parametrize("make", [CARTPOLE, team.make_env, hierarchy.make_env])
def test_evaluation_carries_it_for_each_actor_of_each_episode(make: Any, n_envs: int) -> None:
    vector = SequentialVectorEnv([make] * n_envs, autoreset=False, seed_by_env=False)
    policy = CountingPolicy(vector.spec)
    groups = [range(first, first + n_envs) for first in range(0, 4, n_envs)]
    summaries = [one for group in groups for one in play_episodes(vector, policy, group, deterministic=True)]
    vector.close()
    found = sorted(float(count) for batch in policy.batches for count in batch.policy_state["count"].flatten())
    n_acts = len(found)
    assert len(summaries) == 4 and found.count(0.0) == len({*_actors(policy)}) * 4
    if make is CARTPOLE:
        lengths = [summary.env_steps for summary in summaries]
        assert n_acts == sum(lengths)
        assert found == sorted(float(count) for length in lengths for count in range(length))


def _actors(policy: CountingPolicy) -> list[tuple[Any, int]]:
    return [(batch.step_key, int(agent)) for batch in policy.batches for agent in batch.agent_id]


def test_evaluation_knows_agents_that_come_and_go() -> None:
    acts = (Act(0, 7, 0.0, 0.0, 0), Act(0, 8, 0.0, 0.0, 1), Act(0, 7, 0.0, 0.0, 0, True), Act(0, 9, 0.0, 0.0, 1))
    script = Script((1,), False, ((Episode((*acts, Act(0, 8, 0.0, 0.0, 1)), False, (0, 0)),),))
    make = lambda: MazeEnv(DynamicCoreEnv(script, 0), {0: Choose()}, {0: Observe()})  # noqa: E731
    vector = SequentialVectorEnv([make], spec=Spec.of(make(), max_agents={0: 2}), autoreset=False, seed_by_env=False)
    policy = CountingPolicy(vector.spec)
    for episode in range(2):
        play_episodes(vector, policy, [episode], deterministic=True)
    vector.close()
    assert [batch.policy_state["count"].item() for batch in policy.batches] == [0, 0, 1, 0, 1] * 2
