"""What the collector does beyond the row model: lockstep, replay, dynamic agents, checks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.collect.collector import Collector
from maze_pl.core.actor_id import ActorID
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spec import Spec
from maze_pl.envs import Wrapper, make_gym_maze_env
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.vector import env_time
from tests.collect.collectors import DynamicCoreEnv, collector_of, dynamic, random_policy
from tests.collect.scripted import Act, Choose, Episode, Observe, Script, ScriptedCoreEnv, make_env
from tests.equality import assert_equal
from tests.structured import agreement, hierarchy, team

CARTPOLE = partial(make_gym_maze_env, "CartPole-v1")


class Slow(Wrapper):
    """Environment time advances only with every second act."""

    def get_env_time(self) -> int:
        return self.env.get_env_time() // 2


def test_flat_environments_are_collected_alike_in_lockstep_and_act_by_act(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = collector_of([CARTPOLE] * 3, 50)
    rollouts = [fast.collect(random_policy(fast)).clone() for _ in range(2)]
    assert rollouts[0].flat
    general = collector_of([CARTPOLE] * 3, 50)
    monkeypatch.setattr(general, "_collect_in_lockstep", lambda *arguments: None)
    for rollout in rollouts:
        other = general.collect(random_policy(general)).clone()
        other.flat = rollout.flat
        other.segments[0].position.zero_()
        assert_equal(rollout.rows, other.rows)
        assert_equal(rollout.segments, other.segments)
        assert_equal(rollout.finals, other.finals)


def test_a_flat_environment_whose_time_does_not_always_advance_is_collected_to_the_end() -> None:
    collector = collector_of([lambda: Slow.wrap(CARTPOLE())] * 2, 8)
    rollout = collector.collect(random_policy(collector))
    assert not rollout.flat
    ends = rollout.rows.terminated | rollout.rows.truncated
    completed = ((rollout.rows.env_steps > 0) | ends) & rollout.rows.filled
    assert completed.sum(0).tolist() == [8, 8]
    assert rollout.rows.filled.sum(0).min() > 8


@pytest.mark.parametrize("make", [CARTPOLE, agreement.make_env, team.make_env, hierarchy.make_env])
def test_a_restored_collector_continues_exactly(make: Any) -> None:
    one = collector_of([make] * 3, 17, seed=4)
    for _ in range(3):
        one.collect(random_policy(one))
    state = one.state_dict()
    expected = [one.collect(random_policy(one)).clone() for _ in range(2)]
    other = collector_of([make] * 3, 17, seed=4)
    assert other.load_state_dict(state) == []
    found = [other.collect(random_policy(other)).clone() for _ in range(2)]
    for x, y in zip(expected, found, strict=True):
        assert_equal(x.rows, y.rows)
        assert_equal(x.segments, y.segments)
        assert_equal(x.finals, y.finals)
        assert_equal(x.summaries, y.summaries)


class Moody(Wrapper):
    """Observations depend on something that no seed decides."""

    mood = 0

    def step(self, action: Any) -> Any:
        Moody.mood += 1
        observation, *rest = self.env.step(action)
        return {"observation": observation["observation"] + np.float32(Moody.mood)}, *rest


def test_an_environment_that_is_not_deterministic_is_found_out_and_restarted() -> None:
    one = collector_of([lambda: Moody.wrap(CARTPOLE()), CARTPOLE], 5)
    one.collect(random_policy(one))
    state = one.state_dict()
    other = collector_of([lambda: Moody.wrap(CARTPOLE()), CARTPOLE], 5)
    assert other.load_state_dict(state) == [0]
    assert other.vector.episodes()[0] == one.vector.episodes()[0] + 1
    rollout = other.collect(random_policy(other))
    assert rollout.segments[0].is_first[0].tolist() == [True, False]


def test_the_slot_of_a_finished_agent_is_used_again() -> None:
    acts = [Act(0, 7, 1.0, 0.0, 0), Act(0, 8, 1.0, 0.0, 1), Act(0, 7, 1.0, 0.0, 0, True), Act(0, 8, 1.0, 0.0, 1)]
    acts += [Act(0, 9, 1.0, 0.0, 0), Act(0, 8, 1.0, 0.0, 1), Act(0, 9, 1.0, 0.0, 0), Act(0, 8, 1.0, 0.0, 1)]
    collector = dynamic(acts, 2)
    segment = collector.collect(random_policy(collector)).segments[0]
    assert segment.agent_id.tolist() == [[7, 8], [7, 8], [9, 8], [9, 8]]
    assert segment.is_first.tolist() == [[True, True], [False, False], [True, False], [False, False]]


def test_agents_that_follow_each_other_in_a_slot_act_in_one_row() -> None:
    acts = [Act(0, agent, 1.0, 0.0, int(agent % 3 == 2), actor_done=agent != 1) for agent in range(6)]
    collector = dynamic(acts, 1)
    with pytest.raises(ValueError, match="agent 2 of sub-step 0 would be number 2 alive at once; max_agents allows 1"):
        collector.collect(random_policy(collector))
    acts = [Act(0, agent, 1.0, 0.0, int(agent % 3 == 2), actor_done=True) for agent in range(6)]
    collector = dynamic(acts, 1)
    rollout = collector.collect(random_policy(collector))
    assert not rollout.flat
    segment = rollout.segments[0]
    n_slots = rollout.n_slots(0)
    assert n_slots >= 3
    assert segment.agent_id[:, :3].tolist() == [[0, 1, 2], [3, 4, 5]] * 2
    assert segment.position[:, :3].tolist() == [[0, 1, 2]] * 4
    assert segment.active.sum(1).tolist() == [3] * 4
    assert rollout.rows.env_steps.flatten().tolist() == [1] * 4
    assert rollout.rows.reward.flatten().tolist() == [3.0] * 4


def test_a_restored_collector_knows_the_slots_that_were_added() -> None:
    acts = [Act(0, 2 * time + place, 1.0, 0.0, place, actor_done=True) for time in range(4) for place in range(2)]
    one, other = dynamic(acts, 1), dynamic(acts, 1)
    one.collect(ConstantPolicy())
    other.load_state_dict(one.state_dict())
    expected, found = one.collect(ConstantPolicy()), other.collect(ConstantPolicy())
    assert_equal(expected.rows, found.rows)
    assert_equal(expected.segments, found.segments)


def test_too_many_agents_and_returning_agents_are_refused() -> None:
    collector = dynamic([Act(0, agent, 0.0, 0.0, 0) for agent in range(3)], 2)
    with pytest.raises(ValueError, match=r"number 3 alive at once; max_agents allows 2, or is_actor_done\(\)"):
        collector.collect(random_policy(collector))
    collector = dynamic([Act(0, 0, 0.0, 0.0, 1, True), Act(0, 1, 0.0, 0.0, 1), Act(0, 0, 0.0, 0.0, 1)], 2)
    with pytest.raises(ValueError, match="agent 0 of sub-step 0 acts after it was done"):
        collector.collect(random_policy(collector))


FIRST_IS_DONE = (Act(0, 0, 0.0, 0.0, 1, actor_done=True), Act(0, 1, 0.0, 0.0, 1))


def _pair(*acts: Act) -> Collector:
    """Two declared agents; the episode ends after the acts, and is repeated."""
    script = Script((2,), False, ((Episode(acts, True, (0, 1)),),))
    return collector_of([partial(make_env, script, 0)], 2)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_declared_agent_acts_after_it_was_done_in_the_next_episode_only(is_resumed: bool) -> None:
    allowed = _pair(*FIRST_IS_DONE)
    assert [int(allowed.collect(ConstantPolicy()).segments[0].actor_done.sum()) for _ in range(2)] == [1, 1]
    collector = _pair(*FIRST_IS_DONE, *FIRST_IS_DONE)
    if is_resumed:
        state = _pair(Act(0, 1, 0.0, 0.0, 1), *FIRST_IS_DONE, *FIRST_IS_DONE)
        state.collect(ConstantPolicy())
        collector = _pair(Act(0, 1, 0.0, 0.0, 1), *FIRST_IS_DONE, *FIRST_IS_DONE)
        collector.load_state_dict(state.state_dict())
    with pytest.raises(ValueError, match="agent 0 of sub-step 0 acts after it was done; is_actor_done or"):
        collector.collect(ConstantPolicy())


def test_messages_of_wrong_agents_have_the_number_of_the_environment() -> None:
    acts = (Act(0, 1, 0.0, 0.0, 1), *FIRST_IS_DONE), (*FIRST_IS_DONE, *FIRST_IS_DONE)
    script = Script((2,), False, tuple((Episode(episode, True, (0, 1)),) for episode in acts))
    collector = collector_of([partial(make_env, script, env) for env in range(2)], 3)
    with pytest.raises(ValueError, match="environment 1: agent 0 of sub-step 0 acts after it was done"):
        collector.collect(ConstantPolicy())


def test_dynamic_agents_need_a_limit() -> None:
    script = Script((1,), False, ((Episode((Act(0, 0, 0.0, 0.0, 1),), False, (0, 0)),),))
    env = MazeEnv(DynamicCoreEnv(script, 0), {0: Choose()}, {0: Observe()})
    with pytest.raises(ValueError, match="max_agents"):
        Spec.of(env)


class ConstantPolicy:
    """Always the same action, whatever it sees."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"choice": np.zeros(len(batch.agent_id), np.int64)})


class Wrong(ScriptedCoreEnv):
    """Breaks the contract in the way that `fault` names."""

    fault = ""

    def get_actor_rewards(self) -> np.ndarray | None:
        return np.zeros(5) if self.fault == "rewards" else super().get_actor_rewards()

    def actor_id(self) -> ActorID:
        if self.fault == "agent":
            return ActorID(0, 4)
        return ActorID("x", 0) if self.fault == "key" else super().actor_id()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("rewards", r"shape \(5,\) for 1 acts"),
        ("agent", "agent 4 of sub-step 0 acts, but agent_counts_dict declares 2"),
        ("time", "100 acts without environment time advancing"),
    ],
)
def test_broken_contracts_are_named(fault: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_time, "MAX_ACTS_PER_ENV_STEP", 100)
    acts = tuple(Act(0, t % 2, 0.0, 0.0, int(fault != "time")) for t in range(200 if fault == "time" else 4))
    script = Script((2,), False, ((Episode(acts, False, (0, 0)),),))

    class Faulty(Wrong):
        pass

    Faulty.fault = fault
    collector = collector_of([lambda: MazeEnv(Faulty(script, 0), {0: Choose()}, {0: Observe()})], 4)
    with pytest.raises(ValueError, match=message):
        collector.collect(ConstantPolicy())


class Spoiled(Observe):
    """Gives an observation that is not a number after a while."""

    def maze_to_space(self, maze_state: float) -> dict[str, np.ndarray]:
        return {"id": np.array([np.nan if maze_state > 2 else maze_state])}


def test_an_observation_that_is_not_a_number_is_refused_by_name() -> None:
    acts = tuple(Act(0, 0, 0.0, 0.0, 1) for _ in range(8))
    script = Script((1,), False, ((Episode(acts, False, (0, 0)),),))
    collector = collector_of([lambda: MazeEnv(ScriptedCoreEnv(script, 0), {0: Choose()}, {0: Spoiled()})], 6)
    with pytest.raises(ValueError, match=r"observation 'id' of environment 0, sub-step 0, is not finite .step 3 of"):
        collector.collect(ConstantPolicy())


class MaskedChoose(Choose):
    """Forbids what the observation says."""

    @property
    def action_masks(self) -> Mapping[str, str]:
        return {"choice": "mask"}


class ObserveMask(Observe):
    """Allows one choice, later none."""

    def space(self) -> spaces.Dict:
        return spaces.Dict({**super().space().spaces, "mask": spaces.MultiBinary(3)})

    def maze_to_space(self, maze_state: float) -> dict[str, np.ndarray]:
        allowed = [0, 1, 0] if maze_state < 6 else [0, 0, 0]
        return {**super().maze_to_space(maze_state), "mask": np.array(allowed, np.int8)}


def test_masks_hold_and_an_empty_mask_is_refused() -> None:
    acts = tuple(Act(0, 0, 0.0, 0.0, 1) for _ in range(12))
    script = Script((1,), False, ((Episode(acts, False, (0, 0)),),))
    collector = collector_of([lambda: MazeEnv(ScriptedCoreEnv(script, 0), {0: MaskedChoose()}, {0: ObserveMask()})], 6)
    rollout = collector.collect(random_policy(collector))
    assert rollout.segments[0].action["choice"].unique().tolist() == [1]
    with pytest.raises(
        ValueError, match="mask 'mask' of environment 0, sub-step 0, allows no action for head 'choice'"
    ):
        collector.collect(random_policy(collector))


def test_no_graph_is_built_and_statistics_arrive_once() -> None:
    script = Script((1, 2), False, ((Episode((Act(1, 0, 1.0, 0.0, 0), Act(0, 0, 2.0, 0.0, 1)), False, (0, 0)),),))
    collector = collector_of([partial(make_env, script, 0)], 3)
    rollout = collector.collect(random_policy(collector))
    assert not any(tensor.requires_grad for tensor in rollout.segments[0].observation.values())
    assert [(summary.reward, summary.env_steps) for summary in rollout.summaries] == [(3.0, 1)] * 3
    assert [summary.episode_index for summary in rollout.summaries] == [0, 1, 2]
    assert collector.collect(random_policy(collector)).summaries[0].episode_index == 3
