"""The flat and the structured job shop: observations, masks, rewards, events, KPIs and copies."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from maze_pl.core.spec import Spec
from maze_pl.envs import CoreEnv, GymMazeEnv, WeightedRewardAggregator
from maze_pl.envs.checker import check_env
from maze_pl.envs.job_shop import (
    IdleTimeRewardAggregator,
    JobShopCoreEnvironment,
    JobShopInstance,
    JobShopMazeAction,
    LowerBoundRewardAggregator,
    MakespanRewardAggregator,
    ScheduleEvents,
    StructuredJobShopEnvironment,
    job_shop_factory,
    structured_job_shop_factory,
)
from maze_pl.envs.job_shop.dispatching_rule_policy import DispatchingRulePolicy
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from maze_pl.runs.rollout import rollout
from tests.envs.job_shop.reference import FACTORIES, TWO_BY_TWO, play

PAIR = JobShopInstance.of("pair", 2, TWO_BY_TWO, lower_bound=8, best_known=8)
MIXED = ["random(2-4x2-3, times=1-9, alternatives=2)"]
BY_HAND = [1, 0, 1, 0]
every_form = pytest.mark.parametrize("form", list(FACTORIES))


def random_acts(env: Any, n_episodes: int = 2, seed: int = 0) -> list[tuple[Any, ...]]:
    """Sub-step, observation, action, next observation and reward of each act."""
    generator = np.random.default_rng(seed)
    log: list[tuple[Any, ...]] = []
    for episode in range(n_episodes):
        observation, _ = env.reset(seed=seed + episode)
        terminated = False
        while not terminated:
            key = env.actor_id().step_key
            ((head, mask),) = env.action_masks_dict[key].items()
            action = {head: int(generator.choice(np.flatnonzero(observation[mask])))}
            following, reward, terminated, *_ = env.step(action)
            log.append((key, observation, action, following, reward))
            observation = following
    return log


# -------------------------------------------------------------------------------------------------------- observations


def test_observations_of_the_empty_schedule_by_hand() -> None:
    env = job_shop_factory([PAIR], max_jobs=3)
    observation, _ = env.reset(seed=0)
    mean, bound, work = 11 / 4, 6, 11
    first = [5 / (work / 2), 5 / bound, 2 / (4 / 2), 0, 2 / mean, 6 / (work / 2), 0]
    first += [3 / mean, 0, 1 / mean, 0, 0, (6 - 5) / bound, (6 - 5) / bound, 5 / (work / 2)]
    np.testing.assert_allclose(observation["options"][0], first, rtol=1e-6)
    assert not observation["options"][2].any()
    assert observation["option_mask"].tolist() == observation["exists"].tolist() == [1, 1, 0]
    np.testing.assert_allclose(
        observation["summary"], [0, 0, 0, 1, 1, np.log(2) / 5, np.log(2) / 5], rtol=1e-6, atol=1e-7
    )


def test_observations_of_a_begun_schedule_by_hand() -> None:
    env = job_shop_factory([PAIR])
    env.reset(seed=0)
    observation, *_ = env.step({"option": 1})
    mean, bound, work = 11 / 4, 6, 9  # both jobs may start at 2, the first completion is 5
    first = [5 / (work / 2), 5 / bound, 2 / (3 / 2), -2 / mean, 2 / mean, 6 / (work / 2), -2 / mean]
    first += [3 / mean, 0, 0, 0, 2 / mean, (7 - 2 - 5) / bound, (7 - 2 - 3) / bound, 3 / (work / 2)]
    second = [4 / (work / 2), 4 / bound, 1 / (3 / 2), 0, 0, 0, 0]
    second += [4 / mean, 0, 1 / mean, 2 / mean, 0, (7 - 2 - 4) / bound, (7 - 0 - 6) / bound, 6 / (work / 2)]
    np.testing.assert_allclose(observation["options"], [first, second], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(observation["summary"][:5], [1 / 6, 2 / 7, 0.25, 1, 1], rtol=1e-6)


@every_form
def test_observations_do_not_depend_on_the_unit_of_time(form: str) -> None:
    jobs = [[[(0, 3), (1, 4)], [(1, 2)]], [[(0, 2)], [(1, 4)]]]
    longer = [[[(machine, 7 * time) for machine, time in operation] for operation in job] for job in jobs]
    logs = []
    for jobs_ in (jobs, longer):
        env = FACTORIES[form]([JobShopInstance.of("unit", 2, jobs_)])
        logs.append(random_acts(env, 1))
    for (_, seen, *_), (_, other, *_) in zip(*logs, strict=True):
        for name, values in seen.items():
            np.testing.assert_allclose(values, other[name], rtol=1e-5, atol=1e-6)


@every_form
def test_observations_are_in_their_spaces_and_share_no_memory(form: str) -> None:
    env = FACTORIES[form](MIXED, max_jobs=5)
    log = random_acts(env, 4)
    for key, observation, *_ in log:
        assert env.observation_spaces_dict[key].contains(observation), observation
    copies = copy.deepcopy(log)
    for (_, earlier, *_), (_, later, *_) in pairwise(log):
        assert not any(np.shares_memory(a, b) for a in earlier.values() for b in later.values())
    random_acts(env, 1, seed=9)
    for (_, seen, *_), (_, kept, *_) in zip(log, copies, strict=True):
        np.testing.assert_equal(seen, kept)


@every_form
def test_the_specification_survives_being_written(form: str) -> None:
    spec = Spec.of(FACTORIES[form](MIXED))
    assert Spec.from_dict(spec.to_dict()) == spec
    assert spec.is_flat == (form == "flat")


def test_sub_steps_show_the_best_option_of_each_job_and_the_options_of_one() -> None:
    flat, structured = job_shop_factory(MIXED), structured_job_shop_factory(MIXED)
    seen, _ = flat.reset(seed=3)
    first, _ = structured.reset(seed=3)
    options = seen["options"].reshape(4, 2, 15)
    allowed = seen["option_mask"].reshape(4, 2) > 0
    assert first["job_mask"].tolist() == allowed.any(axis=1).astype(float).tolist()
    for job in np.flatnonzero(allowed.any(axis=1)):
        best = min(np.flatnonzero(allowed[job]), key=lambda k: options[job, k, 9])
        assert first["jobs"][job].tolist() == options[job, best].tolist()
        structured.reset(seed=3)
        second, reward, *_ = structured.step({"job": int(job)})
        assert second["alternatives"].tolist() == options[job].tolist()
        assert second["alternative_mask"].tolist() == allowed[job].astype(float).tolist()
        assert reward == 0


def test_the_structured_environment_does_what_the_flat_one_does() -> None:
    structured, flat = structured_job_shop_factory(MIXED), job_shop_factory(MIXED)
    for seed in range(4):
        log = random_acts(structured, 1, seed)
        flat.reset(seed=seed)
        for (_, _, job, *_), (_, _, alternative, following, reward) in zip(log[::2], log[1::2], strict=True):
            option = job["job"] * 2 + alternative["alternative"]
            seen, received, *_ = flat.step({"option": option})
            assert received == reward
            assert following["summary"].tolist() == seen["summary"].tolist()
        assert flat.get_maze_state().operation_starts.tolist() == structured.get_maze_state().operation_starts.tolist()


# ---------------------------------------------------------------------------------------- rewards, events, ends, KPIs


def rewards_of(aggregator: Any, actions: list[int] = BY_HAND) -> list[float]:
    env = job_shop_factory([PAIR], reward_aggregator=aggregator)
    env.reset(seed=0)
    return [env.step({"option": action})[1] for action in actions]


def test_rewards_by_hand() -> None:
    assert rewards_of(None) == [-1, 0, -1, 0]  # the bounds are 6, 7, 7, 8, 8
    assert rewards_of(LowerBoundRewardAggregator(relative=True)) == [-1 / 6, 0, -1 / 6, 0]
    assert rewards_of(MakespanRewardAggregator()) == [0, 0, 0, -8]
    assert rewards_of(MakespanRewardAggregator(relative=True)) == [0, 0, 0, -8 / 6]
    assert rewards_of(IdleTimeRewardAggregator()) == [0, 0, -2, 0]  # machine 1 waits for its first operation
    assert rewards_of(IdleTimeRewardAggregator(relative=True)) == [0, 0, -2 / 6, 0]
    parts = {"bound": LowerBoundRewardAggregator(), "idle": IdleTimeRewardAggregator()}
    assert rewards_of(WeightedRewardAggregator(parts, {"idle": 0.5})) == [-1, 0, -2, 0]


@every_form
@pytest.mark.parametrize("choices", ["all", "active", "non_delay"])
def test_rewards_add_up_to_the_start_bound_minus_the_makespan(form: str, choices: Any) -> None:
    env = FACTORIES[form](MIXED, choices=choices)
    for seed in range(3):
        rewards = [act[4] for act in random_acts(env, 1, seed)]
        state = env.get_maze_state()
        assert sum(rewards) == state.instance.start_bound - state.makespan
        assert max(rewards) <= 0


@every_form
def test_kpis_and_statistics_of_an_episode_by_hand(form: str) -> None:
    env = LogStatsWrapper(FACTORIES[form]([PAIR]))
    play(env, DispatchingRulePolicy(env.action_spaces_dict, "lpt"))
    (summary,) = env.drain_episode_summaries()
    assert summary.env_steps == 4
    assert summary.reward == 6 - 9
    assert summary.kpis == {
        "makespan": 9,
        "gap_percent": pytest.approx(12.5),
        "bound_gap_percent": pytest.approx(50),
        "machine_utilisation": pytest.approx(11 / 18),
    }


def test_an_instance_without_a_published_makespan_has_no_gap_to_it() -> None:
    env = LogStatsWrapper(job_shop_factory(["random(2x2)"]))
    play(env, DispatchingRulePolicy(env.action_spaces_dict))
    (summary,) = env.drain_episode_summaries()
    assert set(summary.kpis) == {"makespan", "bound_gap_percent", "machine_utilisation"}


def test_an_episode_that_is_cut_off_has_no_kpis() -> None:
    env = LogStatsWrapper(TimeLimitWrapper(job_shop_factory([PAIR]), max_episode_steps=2))
    env.reset(seed=0)
    env.step({"option": 0})
    *_, terminated, truncated, _ = env.step({"option": 0})
    assert (terminated, truncated) == (False, True)
    (summary,) = env.drain_episode_summaries()
    assert not summary.kpis


def test_events_of_a_step_and_of_the_end() -> None:
    env = job_shop_factory([PAIR])
    env.reset(seed=0)
    assert env.get_step_events() == []
    for action in BY_HAND:
        env.step({"option": action})
    names = [record.event.__name__ for record in env.get_step_events()]
    assert names == ["operation_scheduled", "schedule_completed", "reward"]
    (record,) = [r for r in env.get_step_events() if r.event is ScheduleEvents.operation_scheduled]
    expected = {"job": 0, "operation": 1, "machine": 1, "start": 6, "duration": 2, "idle_time": 0, "bound_increase": 0}
    assert record.attributes == expected


@pytest.mark.parametrize("option", [2, 1, -1, 6])
def test_a_choice_that_is_not_allowed_is_replaced_and_reported(option: int) -> None:
    env = job_shop_factory([PAIR], max_jobs=3, choices="non_delay")
    env.reset(seed=0)
    for first in (0, 0):
        env.step({"option": first})  # job 1 may start at 3, job 0 is done at 5
    env = job_shop_factory([JobShopInstance.of("waiting", 2, [[[(0, 4)]], [[(0, 9)]]])], max_jobs=3)
    env.reset(seed=0)
    if option == 1:
        env.step({"option": 1})
    _, _, _, _, info = env.step({"option": option})
    assert info == {"error": "option_not_allowed"}
    names = [record.event.__name__ for record in env.get_step_events()]
    assert names[:2] == ["invalid_choice", "operation_scheduled"]
    assert env.get_maze_state().operation_starts[0, 0] == (9 if option == 1 else 0)


def test_a_structured_choice_of_a_job_that_does_not_exist_is_replaced() -> None:
    env = structured_job_shop_factory([PAIR], max_jobs=3)
    env.reset(seed=0)
    observation, *_ = env.step({"job": 2})
    assert not observation["alternatives"].any()
    assert not observation["alternative_mask"].any()
    *_, info = env.step({"alternative": 0})
    assert info == {"error": "option_not_allowed"}


def test_time_moves_and_both_actors_are_credited_when_the_operation_is_scheduled() -> None:
    env = structured_job_shop_factory([PAIR])
    env.reset(seed=0)
    for time, (job, reward) in enumerate(zip(BY_HAND, [-1, 0, -1, 0], strict=True)):
        env.step({"job": job})
        assert (env.get_env_time(), env.actor_id(), env.is_actor_done()) == (time, (1, 0), False)
        _, received, *_ = env.step({"alternative": 0})
        assert (env.get_env_time(), env.actor_id(), received) == (time + 1, (0, 0), reward)
        assert env.get_actor_rewards().tolist() == [reward / 2, reward / 2]


def test_a_complete_schedule_must_be_reset() -> None:
    core_env = JobShopCoreEnvironment([PAIR])
    for job in BY_HAND:
        core_env.step(JobShopMazeAction(job))
    with pytest.raises(ValueError, match="the schedule of pair is complete; call reset first"):
        core_env.step(JobShopMazeAction(0))
    assert core_env.get_env_time() == 3
    core_env.reset()
    assert core_env.get_env_time() == 0


def test_a_step_without_an_episode_is_refused() -> None:
    with pytest.raises(ResetNeeded, match="called before reset"):
        structured_job_shop_factory([PAIR]).step({"job": 0})


# ---------------------------------------------------------------------------------------- seeds, copies, conversions


@every_form
def test_the_same_seed_gives_the_same_episode_and_another_one_another(form: str) -> None:
    first, second = FACTORIES[form](MIXED), FACTORIES[form](MIXED)
    random_acts(second, seed=7)
    np.testing.assert_equal(random_acts(first, seed=3), random_acts(second, seed=3))
    assert str(random_acts(first, seed=3)) != str(random_acts(first, seed=4))


def test_each_instance_is_drawn_about_equally_often() -> None:
    env = job_shop_factory(["la01-la04"])
    names = []
    for seed in range(80):
        env.reset(seed=seed)
        names.append(env.get_maze_state().instance.name)
    assert min(names.count(name) for name in ("la01", "la02", "la03", "la04")) > 9


@every_form
def test_an_environment_takes_over_the_state_of_another(form: str) -> None:
    env, other = FACTORIES[form](MIXED), FACTORIES[form](MIXED)
    for n_acts in (0, 3, 4):
        observation, _ = env.reset(seed=1)
        for _ in range(n_acts):
            observation, *_ = _first_allowed(env, observation)
        other.reset(seed=2)
        other.clone_from(env)
        assert other.core_env.simulation is not env.core_env.simulation
        copied = copy.deepcopy(observation)
        terminated = False
        while not terminated:
            observation, reward, terminated, *_ = _first_allowed(env, observation)
            copied, received, *_ = _first_allowed(other, copied)
            np.testing.assert_equal(observation, copied)
            assert reward == received
        np.testing.assert_equal(env.reset()[0], other.reset()[0])  # also the generator


def _first_allowed(env: Any, observation: dict[str, np.ndarray]) -> tuple[Any, ...]:
    ((head, mask),) = env.action_masks_dict[env.actor_id().step_key].items()
    result: tuple[Any, ...] = env.step({head: int(observation[mask].argmax())})
    return result


@every_form
def test_recorded_states_and_actions_are_converted_back(form: str) -> None:
    env = FACTORIES[form](MIXED)
    observation, _ = env.reset(seed=0)
    state = env.get_maze_state()
    taken = {}
    seen = {}
    for _ in range(1 if form == "flat" else 2):
        key = env.actor_id().step_key
        ((head, mask),) = env.action_masks_dict[key].items()
        taken[key] = {head: int(observation[mask].argmax())}
        seen[key] = observation
        observation, *_ = env.step(taken[key])
    observations, actions = env.get_observation_and_action_dicts(state, env.get_maze_action(), True)
    np.testing.assert_equal(observations, seen)
    assert actions == taken
    assert env.get_observation_and_action_dicts(None, None, False) == (None, None)


@every_form
def test_states_are_pickled_and_do_not_change(form: str) -> None:
    env = FACTORIES[form](MIXED)
    env.reset(seed=0)
    state = env.get_maze_state()
    before = pickle.dumps(state)
    random_acts(env, 1)
    assert pickle.dumps(state) == before
    assert pickle.loads(before).starts.tolist() == state.starts.tolist()


@every_form
def test_results_do_not_depend_on_the_number_of_environments(form: str) -> None:
    def summaries(n_envs: int) -> list[float]:
        made = partial(FACTORIES[form], MIXED)
        return [one.summary.reward for one in rollout(made, "heuristic", episodes=4, n_envs=n_envs, seed=2)]

    assert summaries(1) == summaries(3)


@every_form
def test_the_doctor_finds_nothing_wrong(form: str) -> None:
    env = FACTORIES[form](MIXED, max_jobs=5, reward_aggregator=LowerBoundRewardAggregator(relative=True))
    report = check_env(env, n_steps=200)
    assert [line for line in report.lines if line.verdict not in ("ok", "skipped") and line.name != "events"] == []
    warnings = {line.explanation for line in report.lines if line.verdict == "warning"}
    without_value = "declared in kpi_names, but without a value in all episodes: gap_percent"  # if no optimum is known
    assert warnings - {without_value} == {"never fired: ScheduleEvents.invalid_choice"}  # masks exclude it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"choices": "late"}, "choices='late' must be one of active, non_delay, all"),
        ({"max_jobs": 1}, "max_jobs=1 is less than the 4 of the largest instance"),
        ({"max_alternatives": 1}, "max_alternatives=1 is less than the 2 of the largest instance"),
    ],
)
def test_wrong_options_get_one_message(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        job_shop_factory(MIXED, **options)


def test_other_environments_are_not_wrapped() -> None:
    with pytest.raises(ValueError, match="wraps the flat job shop"):
        StructuredJobShopEnvironment(GymMazeEnv("CartPole-v1"))


def test_the_simulation_is_a_core_environment_without_torch() -> None:
    assert issubclass(JobShopCoreEnvironment, CoreEnv)
    code = "import sys, maze_pl.envs.job_shop; assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
