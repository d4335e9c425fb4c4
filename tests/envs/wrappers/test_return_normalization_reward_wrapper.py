from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import LogStatsWrapper, ReturnNormalizationRewardWrapper
from maze_pl.envs.wrappers.return_normalization_reward_wrapper import Moments
from tests.envs.cancelling import PAID, Cancelling
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env

NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20)


def moments(values: list[float]) -> Moments:
    result = Moments()
    for value in values:
        result = result.add(value)
    return result


def play(env: ReturnNormalizationRewardWrapper | LogStatsWrapper) -> list[float]:
    env.reset()
    rewards = []
    while True:
        _, reward, terminated, truncated, _ = env.step(NOTHING)
        rewards.append(reward)
        if terminated or truncated:
            return rewards


def test_rewards_are_divided_by_the_standard_deviation_of_the_return() -> None:
    env = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 4.0])), gamma=0.5, epsilon=0.0)
    # returns 1, 2.5, 5.25 after the first one of 0
    expected = [1.0 / np.std([0, 1]), 2.0 / np.std([0, 1, 2.5]), 4.0 / np.std([0, 1, 2.5, 5.25])]
    np.testing.assert_allclose(play(env), expected, rtol=1e-12)


def test_the_return_starts_anew_in_each_episode_but_the_statistics_go_on() -> None:
    for truncate_at in (None, 2):
        script = Scripted([1.0, 2.0] if truncate_at is None else [1.0, 2.0, 3.0], truncate_at)
        env = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(script), gamma=0.5, epsilon=0.0)
        play(env)
        returns = [0, 1, 2.5, 1, 2.5]
        expected = [1.0 / np.std(returns[:4]), 2.0 / np.std(returns)]
        np.testing.assert_allclose(play(env), expected, rtol=1e-12)


def test_rewards_stay_as_they_are_while_all_returns_are_0() -> None:
    env = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted([0.0, 0.0, 8.0])), gamma=0.0, epsilon=0.0)
    assert play(env) == [0.0, 0.0, pytest.approx(8.0 / np.std([0, 0, 0, 8]))]


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e9])
def test_no_reward_depends_on_the_unit(unit: float) -> None:
    rewards = [-1464.0, -2.0, 5.0, 0.0, 3.0]
    env = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted([unit * one for one in rewards])), epsilon=0.0)
    other = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted(rewards)), epsilon=0.0)
    normalised = play(env)
    np.testing.assert_allclose(normalised, play(other), rtol=1e-12)
    assert normalised[0] == pytest.approx(-2.0), "the first one is divided by half of its size"


def test_sub_steps_of_an_environment_step_are_added_up_without_discount() -> None:
    env = ReturnNormalizationRewardWrapper.wrap(make_heap_env(), gamma=0.5, epsilon=0.0)
    env.reset(seed=0)
    for amount in (3, 2, 1, 0, 1, 1, 0, 2):  # rewards 0 -1 -2 -3, 0 0 -1 -1
        env.step({"amount": amount})
    returns = [0.0, -6.0, -2.0 + 0.5 * -6.0]
    merged = env.merge_shared_states([env.shared_state()])["base"]
    np.testing.assert_allclose(merged, [3, np.mean(returns), np.var(returns) * 3], rtol=1e-12)
    np.testing.assert_allclose(env.get_actor_rewards(), np.array([0, 0, -1, -1]) / np.std(returns), rtol=1e-12)


def test_rewards_of_agents_that_cancel_out_are_normalised_by_the_returns_of_their_acts() -> None:
    env = ReturnNormalizationRewardWrapper.wrap(Cancelling.wrap(make_heap_env()), gamma=0.5, epsilon=0.0)
    env.reset(seed=0)
    returns = [0.0]
    for amounts, factor in (((3, 2, 1, 0), 1.0), ((1, 1, 0, 2), 1.5)):
        for amount in amounts:
            env.step({"amount": amount})
        returns += list(PAID * factor)
        np.testing.assert_allclose(env.get_actor_rewards(), PAID / np.std(returns), rtol=1e-12)
    merged = env.merge_shared_states([env.shared_state()])["acts"]["base"]
    np.testing.assert_allclose(merged, [9, np.mean(returns), np.var(returns) * 9], rtol=1e-12, atol=1e-15)
    other = ReturnNormalizationRewardWrapper.wrap(Cancelling.wrap(make_heap_env()), gamma=0.5, epsilon=0.0)
    other.load_state_dict(env.state_dict())
    assert other.state_dict() == env.state_dict()
    assert other.reward(1.0) == env.reward(1.0)


def test_returns_of_acts_are_merged_like_those_of_sums() -> None:
    envs = [ReturnNormalizationRewardWrapper.wrap(make_heap_env(), gamma=0.0) for _ in range(2)]
    rewards = [0.0]
    current = ReturnNormalizationRewardWrapper.merge_shared_states([env.shared_state() for env in envs])
    assert "acts" not in current
    for amount in (1, 0):  # the second round is merged as if it were late
        for env in envs:
            env.load_shared_state(current)
            env.reset(seed=0)
            for _ in range(4):
                env.step({"amount": amount})
            rewards += list(env.env.get_actor_rewards())
        states = [env.shared_state() for env in envs]
        late = [ReturnNormalizationRewardWrapper.rebase_shared_state(state, current) for state in states]
        assert late == states
        current = ReturnNormalizationRewardWrapper.merge_shared_states(states)
    n, mean, m2 = current["acts"]["base"]
    np.testing.assert_allclose([n, mean, m2 / n], [len(rewards), np.mean(rewards), np.var(rewards)])


def test_statistics_without_returns_of_acts_are_continued() -> None:
    env = ReturnNormalizationRewardWrapper.wrap(make_heap_env(), gamma=0.5, epsilon=0.0)
    env.load_state_dict({"base": [4, 0.0, 16.0], "delta": [0, 0.0, 0.0], "return": 0.0, "step_reward": 0.0})
    assert env.reward(4.0) == 2.0


def test_what_is_logged_is_not_normalised() -> None:
    env = LogStatsWrapper.wrap(ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 4.0]))))
    play(env)
    assert env.drain_episode_summaries()[0].reward == 7.0


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws numbers slowly
@given(NUMBERS, NUMBERS)
def test_merged_moments_are_those_of_all_numbers(first: list[float], second: list[float]) -> None:
    merged, both = moments(first).merge(moments(second)), first + second
    assert merged.n == len(both)
    assert merged.mean == pytest.approx(np.mean(both), abs=1e-6)
    assert merged.m2 == pytest.approx(np.var(both) * len(both), rel=1e-6, abs=1e-6)


def test_merging_with_nothing_changes_nothing() -> None:
    some = moments([1.0, 5.0])
    assert some.merge(Moments()) == Moments().merge(some) == some


def test_several_rounds_of_merging_count_every_return_once() -> None:
    scripts = [[1.0, 2.0], [5.0], [0.0, -3.0, 4.0]]
    envs = [ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted(script)), gamma=0.0) for script in scripts]
    everything = [0.0]
    for _ in range(3):
        for env, script in zip(envs, scripts, strict=True):
            play(env)
            everything += script
        merged = envs[0].merge_shared_states([env.shared_state() for env in envs])
        for env in envs:
            env.load_shared_state(merged)
        n, mean, m2 = merged["base"]
        np.testing.assert_allclose([n, mean, m2 / n], [len(everything), np.mean(everything), np.var(everything)])


def test_statistics_of_late_copies_count_every_return_once() -> None:
    scripts = [[1.0, 2.0], [5.0], [0.0, -3.0, 4.0]]
    envs = [ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted(script)), gamma=0.0) for script in scripts]
    kind = ReturnNormalizationRewardWrapper
    current = kind.merge_shared_states([envs[0].shared_state()])
    everything = [0.0]
    for _ in range(3):
        began_with = current
        for env, script in zip(envs, scripts, strict=True):  # all begin with the same, and are merged in turn
            env.load_shared_state(began_with)
            play(env)
            everything += script
            current = kind.merge_shared_states([kind.rebase_shared_state(env.shared_state(), current)])
        n, mean, m2 = current["base"]
        np.testing.assert_allclose([n, mean, m2 / n], [len(everything), np.mean(everything), np.var(everything)])


def test_copies_that_start_from_different_statistics_are_not_merged() -> None:
    envs = [ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0]))) for _ in range(2)]
    play(envs[0])
    envs[0].load_shared_state(envs[0].merge_shared_states([envs[0].shared_state()]))
    with pytest.raises(ValueError, match="different statistics"):
        envs[0].merge_shared_states([env.shared_state() for env in envs])


def test_state_holds_the_running_return() -> None:
    env, other = (
        ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 4.0])), gamma=0.5) for _ in range(2)
    )
    env.reset(seed=0)
    other.reset(seed=0)
    env.step(NOTHING)
    other.step(NOTHING)
    other.step(NOTHING)
    env.step(NOTHING)
    state = env.state_dict()
    assert state["return"] == 2.5
    other.load_state_dict(state)
    assert other.step(NOTHING)[1] == env.step(NOTHING)[1]


@pytest.mark.parametrize("arguments", [{"gamma": 1.5}, {"epsilon": -1.0}, {"epsilon": float("nan")}])
def test_impossible_arguments_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        ReturnNormalizationRewardWrapper.wrap(GymMazeEnv("CartPole-v1"), **arguments)
