from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect import Collector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.gym_action_conversion import GymActionConversion
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.wrappers import (
    DiscretizeActionsWrapper,
    LogStatsWrapper,
    RandomResetWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
)
from tests.collect.scripted import Act, Episode, Script, make_env
from tests.envs.late_ends import LateEnds
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.split_steps import BidFirstWrapper, make_auction_env
from tests.envs.structured_example import HeapCoreEnv, make_heap_env
from tests.envs.wrappers.environments import make_resting_heap_env, make_vector_heap_env

REWARDS = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]


class Remembering(Scripted):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.taken: list[Any] = []

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(float(action[0]))
        return super().step(action)


class WithNoop(GymActionConversion):
    def noop_action(self) -> Any:
        return {"action": np.zeros(1, np.float32)}


def remembering(truncate_at: int | None = None) -> GymMazeEnv:
    env = GymMazeEnv(Remembering(REWARDS, truncate_at))
    env.action_conversion_dict[0] = WithNoop(env.core_env.env.action_space)
    return env


def act(value: float) -> dict[str, Any]:
    return {"action": np.array([value], np.float32)}


@pytest.mark.parametrize(("mode", "taken"), [("sticky", [0.5, 0.5, 0.5, 1, 1, 1]), ("noop", [0.5, 0, 0, 1, 0, 0])])
def test_each_decision_takes_several_steps(mode: Any, taken: list[float]) -> None:
    env = StepSkipWrapper.wrap(remembering(), n_steps=3, skip_mode=mode)
    env.reset(seed=0)
    observation, reward, terminated, truncated, _ = env.step(act(0.5))
    assert (observation["observation"][0], reward, terminated, truncated, env.get_env_time()) == (3, 7, False, False, 3)
    assert env.step(act(1.0))[1] == 56
    assert env.unwrapped.core_env.env.taken == taken  # type: ignore[attr-defined]


def test_n_steps_of_1_changes_nothing() -> None:
    env, bare = StepSkipWrapper.wrap(GymMazeEnv("Pendulum-v1"), n_steps=1), GymMazeEnv("Pendulum-v1")
    np.testing.assert_equal(env.reset(seed=1), bare.reset(seed=1))
    np.testing.assert_equal(env.step(act(1.0)), bare.step(act(1.0)))


@pytest.mark.parametrize(("truncate_at", "end"), [(None, (True, False)), (5, (False, True))])
def test_nothing_is_done_after_the_end(truncate_at: int | None, end: tuple[bool, bool]) -> None:
    env = StepSkipWrapper.wrap(remembering(truncate_at), n_steps=4)
    env.reset(seed=0)
    assert env.step(act(1.0))[1:4] == (15.0, False, False)
    n_steps = truncate_at or 7
    assert env.step(act(1.0))[1:4] == (sum(REWARDS[4:n_steps]), *end)
    assert env.get_env_time() == n_steps


def test_two_of_them_multiply() -> None:
    env = StepSkipWrapper.wrap(StepSkipWrapper.wrap(remembering(), n_steps=2), n_steps=3)
    env.reset(seed=0)
    assert env.step(act(1.0))[1] == 63.0
    assert env.get_env_time() == 6


def test_statistics_and_time_limits_count_all_steps() -> None:
    env = LogStatsWrapper.wrap(
        TimeLimitWrapper.wrap(StepSkipWrapper.wrap(remembering(), n_steps=2), max_episode_steps=3)
    )
    env.reset(seed=0)
    assert [env.step(NOTHING)[3] for _ in range(2)] == [False, True]
    (summary,) = env.drain_episode_summaries()
    assert (summary.reward, summary.env_steps) == (15.0, 4)


def test_event_logs_for_key_figures_have_all_steps() -> None:
    env = LogStatsWrapper.wrap(StepSkipWrapper.wrap(RandomResetWrapper(make_heap_env(), 1, 1), n_steps=2))
    for seed in range(2):
        env.reset(seed=seed)
        while not any(env.step({"amount": 1})[2:4]):
            continue
        (summary,) = env.drain_episode_summaries()
        assert (summary.env_steps, summary.kpis["acts_per_step"]) == (4, 2.5)  # a worker retires after two steps


def test_a_time_limit_inside_ends_the_skipping() -> None:
    env = StepSkipWrapper.wrap(TimeLimitWrapper.wrap(remembering(), max_episode_steps=3), n_steps=2)
    env.reset(seed=0)
    assert [env.step(NOTHING)[1:4] for _ in range(2)] == [(3.0, False, False), (4.0, False, True)]


def play_heap(amounts: list[int], **options: Any) -> tuple[Any, list[Any]]:
    env: Any = make_resting_heap_env()
    for conversion in env.action_conversion_dict.values():
        conversion.noop_action = lambda: {"amount": 0}
    env = StepSkipWrapper.wrap(env, **options)
    env.reset(seed=0)
    return env, [env.step({"amount": amount})[1:4] for amount in amounts]


def test_all_actors_repeat_their_own_actions_and_get_their_own_rewards() -> None:
    env, results = play_heap([2, 1, 3, 2], n_steps=2)
    # target 2 and amounts 1, 3, 2, twice; worker 1 rests after the second environment step
    assert results == [(0, False, False), (-1, False, False), (-1, False, False), (-2, False, False)]
    np.testing.assert_array_equal(env.get_actor_rewards(), [0, -2, -2, 0])
    assert env.get_env_time() == 2
    assert env.actor_id() == ("plan", 0)
    results = [env.step({"amount": amount})[1:4] for amount in (1, 1, 3)]  # worker 1 rests
    assert results == [(0, False, False), (0, False, False), (-4, True, False)]
    np.testing.assert_array_equal(env.get_actor_rewards(), [0, 0, -4])


def test_all_actors_do_nothing_in_skipped_steps() -> None:
    env, results = play_heap([2, 1, 3, 2], n_steps=2, skip_mode="noop")
    assert [reward for reward, _, _ in results] == [0, -1, -1, 0]  # nothing for nothing, from target 0
    np.testing.assert_array_equal(env.get_actor_rewards(), [0, -1, -1, 0])


@pytest.mark.parametrize("skip_mode", ["sticky", "noop"])
@pytest.mark.parametrize("make", [make_heap_env, lambda: LateEnds(make_heap_env())])
def test_the_end_of_an_actor_in_a_skipped_step_is_told_with_the_decision(skip_mode: Any, make: Any) -> None:
    noops = {"plan": {"amount": 0}, "work": {"amount": 0}}
    env = StepSkipWrapper.wrap(make(), n_steps=2, skip_mode=skip_mode, noop_actions=noops)
    env.reset(seed=0)
    for amount in (2, 1, 3, 2):  # worker 1 retires with its second act, which is a skipped one
        env.step({"amount": amount})
    assert not env.is_actor_done() and env.get_done_actors() == [("work", 1)]
    assert env.get_env_time() == 2
    for _ in range(3):
        env.step({"amount": 1})
    assert env.get_done_actors() == []


def test_an_actor_that_ends_in_a_skipped_step_without_a_decision_is_refused() -> None:
    acts = Act(0, 0, 0.0, 0.0, 1), Act(0, 1, 0.0, 0.0, 1, actor_done=True), Act(0, 0, 0.0, 0.0, 1)
    script = Script((2,), False, ((Episode(acts, False, (0, 0)),),))
    env = StepSkipWrapper.wrap(make_env(script, 0), n_steps=2, noop_actions={0: {"choice": 0}})
    env.reset(seed=0)
    fault = "agent 1 of sub-step 0 of ScriptedCoreEnv ended in a skipped step, but it had not acted in the decided one"
    with pytest.raises(EnvContractError, match=f"{fault}.*leave StepSkipWrapper out, or let agents stay"):
        env.step({"choice": 1})


def test_the_end_of_an_actor_in_the_decided_step_is_passed_on() -> None:
    class OddRetirement(HeapCoreEnv):
        def is_actor_done(self) -> bool:
            return self.context.env_time == 2 and self.actor == ("work", 2)  # worker 1 has just acted in the third step

    env: Any = make_heap_env()
    env.core_env.__class__ = OddRetirement
    env = StepSkipWrapper.wrap(env, n_steps=2)
    env.reset(seed=0)
    ends = []
    over = False
    while not over:
        actor = env.actor_id()
        _, _, terminated, truncated, _ = env.step({"amount": 1})
        over = terminated or truncated
        ends.append((actor.step_key, actor.agent_id, env.is_actor_done()))
    assert ends == [
        ("plan", 0, False),
        ("work", 0, False),
        ("work", 1, False),
        ("work", 2, False),
        ("plan", 0, False),
        ("work", 0, True),  # the next one is worker 2, as worker 1 rests
        ("work", 2, False),
    ]


@pytest.mark.parametrize("terminated", [True, False])
def test_an_actor_may_end_in_the_skipped_step_in_which_the_episode_ends(terminated: bool) -> None:
    class EndTogether(HeapCoreEnv):
        def step(self, maze_action: Any) -> Any:
            state, reward, is_over, _, info = super().step(maze_action)
            return state, reward, is_over and terminated, is_over and not terminated, info

        def is_actor_done(self) -> bool:
            return self.context.env_time == 3 and self.actor == ("work", 2)  # worker 0, in the last step

    env: Any = make_heap_env()
    env.core_env.__class__ = EndTogether
    env = StepSkipWrapper.wrap(env, n_steps=2)
    env.reset(seed=0)
    for _ in range(6):
        assert env.step({"amount": 1})[2:4] == (False, False)
    assert env.step({"amount": 1})[2:4] == (terminated, not terminated)
    assert not env.is_actor_done() and env.get_done_actors() == [("work", 0)]


def test_collected_rows_know_how_long_they_took() -> None:
    vector = SequentialVectorEnv([lambda: StepSkipWrapper.wrap(make_resting_heap_env(), n_steps=2)] * 2, seed=1)
    policy = RandomPolicy(vector.envs[0].action_spaces_dict, vector.envs[0].action_masks_dict)
    rollout = Collector(vector, 6, torch.Generator().manual_seed(0)).collect(policy)
    filled = rollout.rows.filled
    assert rollout.rows.env_steps[filled].tolist() == [2] * int(filled.sum())
    torch.testing.assert_close(
        rollout.segments["work"].actor_reward.sum() + rollout.segments["plan"].actor_reward.sum(),
        rollout.rows.reward[filled].sum().to(torch.float32),
        check_dtype=False,
    )


def test_noop_actions_pass_through_inner_action_wrappers() -> None:
    inner = DiscretizeActionsWrapper.wrap(remembering(), discretization_config={"action": {"num_bins": 5}})
    env = StepSkipWrapper.wrap(inner, n_steps=2, skip_mode="noop")
    env.reset(seed=0)
    env.step({"action": 4})
    assert env.unwrapped.core_env.env.taken == [1.0, 0.0]  # type: ignore[attr-defined]


def test_noop_without_a_known_noop_action_is_refused_at_once() -> None:
    with pytest.raises(
        TypeError, match=r"GymActionConversion knows no action .*, or give StepSkipWrapper noop_actions="
    ):
        StepSkipWrapper.wrap(GymMazeEnv("CartPole-v1"), n_steps=2, skip_mode="noop")


def test_the_action_that_does_nothing_can_be_named_for_gymnasium_environments() -> None:
    env = GymMazeEnv(Remembering(REWARDS))
    env = StepSkipWrapper.wrap(env, n_steps=3, skip_mode="noop", noop_actions={0: {"action": [-0.25]}})
    env.reset(seed=0)
    env.step(act(1.0))
    assert env.unwrapped.core_env.env.taken == [1.0, -0.25, -0.25]  # type: ignore[attr-defined]
    env = StepSkipWrapper.wrap(GymMazeEnv("CartPole-v1"), n_steps=2, skip_mode="noop", noop_actions={0: {"action": 1}})
    env.reset(seed=0)
    env.step({"action": 0})
    assert env.get_maze_action() == 1


def test_sub_steps_that_a_wrapper_makes_do_nothing_as_they_are_told() -> None:
    split = BidFirstWrapper.wrap(make_auction_env())
    with pytest.raises(TypeError, match=r"sub-step 'bid' is made by a wrapper.*; give StepSkipWrapper noop_actions="):
        StepSkipWrapper.wrap(split, n_steps=3, skip_mode="noop")
    noop_actions: Any = {"bid": {"price": 0}, "sell": {"amount": 0}}
    env = StepSkipWrapper.wrap(split, n_steps=3, skip_mode="noop", noop_actions=noop_actions)
    env.reset(seed=0)
    rewards = [env.step(action)[1] for action in ({"price": 2}, {"amount": 3})]
    assert rewards == [0.0, 23.0]
    assert env.get_env_time() == 3
    assert env.actor_id() == ("bid", 0)


@pytest.mark.parametrize("wrong", [{1: {"action": 0}}, {0: {"action": 2}}, {0: {"move": 0}}, {0: {}}])
def test_noop_actions_outside_of_the_spaces_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"noop_actions=.* do not fit the action spaces"):
        StepSkipWrapper.wrap(GymMazeEnv("CartPole-v1"), n_steps=2, skip_mode="noop", noop_actions=wrong)


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="n_steps=0 must be at least 1"):
        StepSkipWrapper.wrap(remembering(), n_steps=0)
    with pytest.raises(ValueError, match="skip_mode='freeze'"):
        StepSkipWrapper.wrap(remembering(), n_steps=2, skip_mode="freeze")  # type: ignore[arg-type]


def test_changing_numbers_of_agents_are_refused() -> None:
    env: Any = make_vector_heap_env()

    class Dynamic(HeapCoreEnv):
        @property
        def agent_counts_dict(self) -> dict[int | str, int]:
            return {"plan": 1, "work": -1}

    env.core_env.__class__ = Dynamic
    with pytest.raises(ValueError, match="needs a fixed number of agents"):
        StepSkipWrapper.wrap(env, n_steps=2)
