"""CP-SAT, and the verification of schedules."""

from __future__ import annotations

import copy
import importlib.util
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maze_pl.envs.job_shop import (
    JobShopArrayEnvironment,
    JobShopInstance,
    Schedule,
    check_schedule,
    cp_sat_policy,
    job_shop_factory,
    published_instance,
    replay_schedule,
    solve_with_cp_sat,
    structured_job_shop_factory,
)
from maze_pl.envs.job_shop.cp_sat_policy import CpSatPolicy
from tests.envs.job_shop.reference import (
    FACTORIES,
    FLEXIBLE,
    INSTANT,
    SMALL,
    TWO_BY_TWO,
    best_makespan,
    drawn,
    jobs_of,
    play,
    step_arrays,
)

needs_ortools = pytest.mark.skipif(importlib.util.find_spec("ortools") is None, reason="OR-tools is not installed")
PAIR = JobShopInstance.of("pair", 2, TWO_BY_TWO)
BY_HAND = Schedule(np.array([[2, 6], [0, 2]]), np.array([[0, 1], [0, 1]]), 8)


def test_a_schedule_by_hand_is_accepted_and_replayed() -> None:
    check_schedule(PAIR, BY_HAND)
    assert replay_schedule(PAIR, BY_HAND) == 8
    late = Schedule(np.array([[12, 16], [0, 2]]), BY_HAND.machines, 18)
    check_schedule(PAIR, late)
    assert replay_schedule(PAIR, late) == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machines": np.array([[1, 1], [0, 1]])}, "operation 0 of job 0 is on machine 1; its machines are [0]"),
        ({"starts": np.array([[2, 4], [0, 2]])}, "operation 1 of job 0 starts at 4, before 5"),
        ({"starts": np.array([[1, 6], [0, 2]])}, "operations (1, 0) and (0, 0) (job, operation) overlap on machine 0"),
        ({"starts": np.array([[-1, 6], [2, 4]])}, "operation 0 of job 0 starts at -1, before 0"),
        ({"makespan": 7}, "the makespan is 8, not 7 as stated"),
    ],
)
def test_a_wrong_schedule_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_schedule(PAIR, replace(BY_HAND, **changes))


@needs_ortools
def test_solutions_of_small_instances_are_optimal() -> None:
    for seed in range(3):
        instance = drawn("random(2x3, times=1-9)" if seed else SMALL, seed)
        schedule = solve_with_cp_sat(instance, time_limit=20.0)
        assert schedule.is_optimal
        assert schedule.makespan == schedule.lower_bound == best_makespan(jobs_of(instance))


@needs_ortools
@pytest.mark.parametrize("form", [job_shop_factory, structured_job_shop_factory])
def test_the_policy_reaches_the_makespan_of_the_solution(form: Any) -> None:
    for seed in range(3):
        instance = drawn(FLEXIBLE, seed)
        expected = solve_with_cp_sat(instance, time_limit=20.0).makespan
        for choices in ("active", "all"):
            env = form([instance], choices=choices)
            play(env, CpSatPolicy(env.action_spaces_dict, time_limit=20.0))
            assert env.get_maze_state().makespan == expected


@needs_ortools
def test_work_that_takes_no_time_is_done_before_longer_work_that_starts_then() -> None:
    random = np.random.default_rng(0)
    instances = [JobShopInstance.of("zero", 2, [[[(0, 3)]], [[(0, 0)], [(1, 10)]]]), INSTANT]
    for _ in range(10):
        jobs = [[[(int(m), int(random.integers(0, 4)))] for m in random.permutation(2)] for _ in range(3)]
        instances.append(JobShopInstance.of("some take no time", 2, jobs))
    for instance in instances:
        schedule = solve_with_cp_sat(instance, time_limit=20.0)
        assert schedule.makespan == best_makespan(jobs_of(instance))
        assert replay_schedule(instance, schedule) == schedule.makespan
        for form, choices in (("flat", "active"), ("structured", "active"), ("flat", "all")):
            env = FACTORIES[form]([instance], choices=choices)
            play(env, CpSatPolicy(env.action_spaces_dict, time_limit=20.0))
            assert env.get_maze_state().makespan == schedule.makespan


@needs_ortools
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ft06", "la01", "la06", "la16", "la31"])
def test_the_optimum_of_published_instances_is_proved(name: str) -> None:
    instance = published_instance(name)
    schedule = solve_with_cp_sat(instance, time_limit=120.0)
    assert schedule.is_optimal
    assert schedule.makespan == schedule.lower_bound == instance.best_known
    assert replay_schedule(instance, schedule) == instance.best_known


def one_after_the_other(instance: JobShopInstance, *options: Any) -> Schedule:
    """The schedule in which each job waits until the previous one is completed, with the last alternatives."""
    last = np.maximum(instance.n_alternatives - 1, 0)[..., np.newaxis]
    durations = np.take_along_axis(instance.durations, last, axis=2)[..., 0]
    machines = np.take_along_axis(instance.machines, last, axis=2)[..., 0]
    ends = np.cumsum(durations.ravel()).reshape(durations.shape)
    schedule = Schedule(ends - durations, machines, int(ends.max()))
    check_schedule(instance, schedule)
    return schedule


def test_in_arrays_each_instance_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []

    def solve(instance: JobShopInstance, *options: Any) -> Schedule:
        solved.append(instance)
        return one_after_the_other(instance)

    monkeypatch.setattr(cp_sat_policy, "solve_with_cp_sat", solve)
    n_envs = 70
    arrays = JobShopArrayEnvironment(["random(2x3)"], choices="all")
    arrays.allocate(n_envs)
    arrays.reset(np.arange(n_envs), np.arange(n_envs))
    policy = CpSatPolicy(arrays.action_spaces_dict)
    for _ in range(3):
        assert not step_arrays(arrays, policy)
    assert len(solved) == n_envs
    resumed = JobShopArrayEnvironment(["random(2x3)"], choices="all")
    resumed.allocate(n_envs)
    resumed.reset(np.arange(n_envs), np.arange(n_envs) + 1000)
    assert resumed.maze_state(0).instance.content != arrays.maze_state(0).instance.content
    resumed.load_state_dict(copy.deepcopy(arrays.state_dict()))
    while not step_arrays(resumed, policy):
        pass
    assert len(solved) == n_envs
    for n, instance in enumerate(solved):
        assert resumed.maze_state(n).makespan <= one_after_the_other(instance).makespan
    resumed.reset(np.array([4, 9]), np.array([2000, 2001]))
    for n in (4, 9):
        policy.choose(resumed.maze_state(n))
    assert len(solved) == n_envs + 2


def test_as_second_actor_the_policy_chooses_the_machine_of_the_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_sat_policy, "solve_with_cp_sat", one_after_the_other)
    env = structured_job_shop_factory(["random(4x3, alternatives=3)"], choices="all")
    policy = CpSatPolicy(env.action_spaces_dict)
    random = np.random.default_rng(0)
    n_slower = 0
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        terminated = False
        while not terminated:
            job = int(random.choice(np.flatnonzero(observation["job_mask"])))
            env.step({"job": job})
            state = env.get_simulation_state()
            operation = int(state.next_operation[job])
            machine = state.instance.alternatives(job, operation)[-1][0]
            alternative = policy.choose(state)[1]
            if state.option_machines[job, alternative] != machine:
                assert state.completions[job, alternative] == state.earliest_completion
            else:
                n_slower += state.completions[job].min() < state.completions[job, alternative]
            observation, _, terminated, _, info = env.step({"alternative": alternative})
            assert not info
    assert n_slower


@needs_ortools
def test_a_limit_that_is_too_short_gets_one_message() -> None:
    with pytest.raises(TimeoutError, match=r"found no schedule of ta80 in 0\.001 s; allow more time"):
        solve_with_cp_sat(published_instance("ta80"), time_limit=0.001)
    with pytest.raises(ValueError, match="must be above 0"):
        solve_with_cp_sat(PAIR, time_limit=0.0)


def test_a_missing_solver_gets_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=re.escape("pip install 'maze-pl[problems]'")):
        solve_with_cp_sat(PAIR)
