"""The simulation against schedules computed by hand and a slow reference."""

from __future__ import annotations

import copy
import pickle
import random
import re
from pathlib import Path

import numpy as np
import pytest

from maze_pl.envs.job_shop import JobShopInstance, JobShopSimulation, published_instance
from tests.envs.job_shop.reference import (
    FLEXIBLE,
    INSTANT,
    SMALL,
    TWO_BY_TWO,
    SlowSchedule,
    best_makespan,
    complete_schedules,
    drawn,
    jobs_of,
)


def started(instance: JobShopInstance, choices: str = "active", spare: int = 0) -> JobShopSimulation:
    simulation = JobShopSimulation(instance.n_jobs + spare, instance.max_alternatives + spare, choices)  # type: ignore[arg-type]
    simulation.reset(instance)
    return simulation


def allowed(simulation: JobShopSimulation) -> set[tuple[int, int]]:
    jobs, alternatives = np.nonzero(simulation.allowed)
    machines = simulation.option_machines[jobs, alternatives]
    return set(zip(jobs.tolist(), machines.tolist(), strict=True))


def test_a_schedule_computed_by_hand() -> None:
    simulation = started(JobShopInstance.of("pair", 2, TWO_BY_TWO))
    assert simulation.bound == 6  # the second job, and the work of machine 1
    assert simulation.starts[:, 0].tolist() == [0, 0]
    assert simulation.completions[:, 0].tolist() == [3, 2]
    assert simulation.schedule(1, 0) == (0, 0, 2)
    assert simulation.bound == 7  # the first job starts at 2 and takes 5
    assert simulation.schedule(0, 0) == (0, 2, 3)
    assert simulation.bound == 7
    assert simulation.remaining_work.tolist() == [2, 4]
    assert simulation.machine_load.tolist() == [0, 6]
    assert simulation.schedule(1, 0) == (1, 2, 4)
    assert simulation.bound == 8
    assert not simulation.is_complete
    assert simulation.schedule(0, 0) == (1, 6, 2)
    assert simulation.is_complete
    assert simulation.bound == simulation.makespan == 8
    assert simulation.operation_starts.tolist() == [[2, 6], [0, 2]]
    assert not simulation.allowed.any()


def test_what_may_be_chosen_by_hand() -> None:
    instance = JobShopInstance.of("waiting", 2, [[[(0, 4)], [(1, 1)]], [[(1, 9)]], [[(0, 2)]]])
    options = {"all": {0, 1, 2}, "active": {0, 1, 2}, "non_delay": {0, 1, 2}}
    for choices, expected in options.items():
        simulation = started(instance, choices)
        assert {job for job, _ in allowed(simulation)} == expected
        simulation.schedule(2, 0)  # machine 0 is ready at 2: job 0 would end at 6, job 1 at 9
        assert {job for job, _ in allowed(simulation)} == {"all": {0, 1}, "active": {0, 1}, "non_delay": {1}}[choices]
        simulation.schedule(0, 0)  # its second operation would end at 7, and could begin at 6
        assert {job for job, _ in allowed(simulation)} == {"all": {0, 1}, "active": {0, 1}, "non_delay": {1}}[choices]


def test_work_that_takes_no_time_may_be_done_at_the_earliest_completion() -> None:
    expected = {"all": {(0, 0), (1, 0)}, "active": {(0, 0), (1, 0)}, "non_delay": {(0, 0)}}
    for choices, options in expected.items():
        simulation = started(INSTANT, choices)
        simulation.schedule(1, 0)
        assert allowed(simulation) == options
    assert best_makespan(jobs_of(INSTANT)) == 15
    assert min(complete_schedules(SlowSchedule(jobs_of(INSTANT), 2), "active")) == 15
    simulation = started(INSTANT, "active")
    for job in (1, 1, 0, 1):
        assert simulation.allowed[job, 0]
        simulation.schedule(job, 0)
    assert simulation.makespan == 15
    assert not simulation.allowed.any()


@pytest.mark.parametrize("choices", ["all", "active", "non_delay"])
@pytest.mark.parametrize("text", ["random(4x3, times=1-9)", "random(4x3, times=1-9, alternatives=3)"])
def test_every_step_equals_the_slow_reference(choices: str, text: str) -> None:
    choose = random.Random(0)
    for seed in range(6):
        instance = drawn(text, seed)
        simulation = started(instance, choices, spare=seed % 3)
        slow = SlowSchedule(jobs_of(instance), instance.n_machines)
        while not simulation.is_complete:
            assert allowed(simulation) == slow.allowed(choices)
            assert simulation.bound == slow.bound()
            options = slow.options()
            assert simulation.earliest_start == min(start for _, _, start, _ in options)
            assert simulation.earliest_completion == min(end for *_, end in options)
            job, machine = choose.choice(sorted(slow.allowed(choices)))
            alternative = simulation.option_machines[job].tolist().index(machine)
            slow.place(job, machine)
            placed_machine, start, duration = simulation.schedule(job, alternative)
            assert (job, placed_machine, start, start + duration) == (job, *slow.placed[-1][2:])
            assert simulation.n_unfinished == len({option[0] for option in slow.options()})
            assert simulation.total_remaining_work == simulation.remaining_work.sum()
        assert simulation.makespan == slow.makespan == simulation.bound


@pytest.mark.parametrize("seed", range(3))
def test_an_optimal_schedule_is_always_reached_by_active_choices(seed: int) -> None:
    instance = drawn(SMALL if seed else "random(2x3, times=1-9)", seed)
    jobs = jobs_of(instance)
    reached = min(complete_schedules(SlowSchedule(jobs, instance.n_machines), "active"))
    assert reached == best_makespan(jobs)


def test_an_optimal_flexible_schedule_is_reached_by_active_choices() -> None:
    for seed in range(4):
        instance = drawn("random(2x2, times=1-9, alternatives=2)", seed)
        slow = SlowSchedule(jobs_of(instance), instance.n_machines)
        assert min(complete_schedules(slow, "active")) == min(complete_schedules(slow, "all"))


def test_nothing_fits_before_an_operation_of_an_active_schedule() -> None:
    choose = random.Random(1)
    for seed in range(8):
        instance = drawn(FLEXIBLE, seed)
        simulation = started(instance)
        while not simulation.is_complete:
            jobs, alternatives = np.nonzero(simulation.allowed)
            place = choose.randrange(len(jobs))
            simulation.schedule(int(jobs[place]), int(alternatives[place]))
        for job in range(instance.n_jobs):
            ready = 0
            for operation in range(instance.max_operations):
                start = int(simulation.operation_starts[job, operation])
                machine = int(simulation.operation_machines[job, operation])
                duration = dict(instance.alternatives(job, operation))[machine]
                busy = _intervals(simulation, machine, without=(job, operation))
                for earlier in range(ready, start):
                    overlaps = [s < earlier + duration and earlier < e for s, e in busy]
                    assert any(overlaps), (job, operation)
                ready = start + duration


def _intervals(simulation: JobShopSimulation, machine: int, without: tuple[int, int]) -> list[tuple[int, int]]:
    found = []
    for job, operation in zip(*np.nonzero(simulation.operation_machines == machine), strict=True):
        if (job, operation) != without:
            start = int(simulation.operation_starts[job, operation])
            found.append((start, start + dict(simulation.instance.alternatives(job, operation))[machine]))
    return found


def test_durations_of_zero_do_not_block_the_schedule() -> None:
    instance = JobShopInstance.of("zeros", 2, [[[(0, 0)], [(1, 0)]], [[(1, 0)], [(0, 3)]]])
    for choices in ("all", "active", "non_delay"):
        simulation = started(instance, choices)
        while not simulation.is_complete:
            assert simulation.allowed.any()
            simulation.schedule(int(simulation.allowed[:, 0].argmax()), 0)
        assert simulation.makespan == 3


def test_jobs_of_different_lengths_end_one_after_the_other() -> None:
    instance = JobShopInstance.of("lengths", 2, [[[(0, 1)]], [[(1, 2)], [(0, 2)], [(1, 1)]]])
    simulation = started(instance)
    simulation.schedule(0, 0)
    assert simulation.exists[:, 0].tolist() == [False, True]
    for _ in range(3):
        simulation.schedule(1, 0)
    assert simulation.makespan == 5
    simulation.reset(instance)
    assert (simulation.n_scheduled, simulation.bound, simulation.last) == (0, 5, (-1, -1))


def test_a_copy_continues_like_the_original() -> None:
    simulation = started(drawn(FLEXIBLE, 0))
    simulation.schedule(0, 0)
    for other in (copy.deepcopy(simulation), pickle.loads(pickle.dumps(simulation))):
        other.schedule(1, 0)
        expected = copy.deepcopy(simulation)
        expected.schedule(1, 0)
        assert other.bound == expected.bound
        assert other.starts.tolist() == expected.starts.tolist()
        assert other.allowed.tolist() == expected.allowed.tolist()


def test_an_instance_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="3 jobs and at most 2 alternatives, more than max_jobs=2"):
        JobShopSimulation(2, 2).reset(drawn(FLEXIBLE, 0))


@pytest.mark.parametrize("choices", ["active", "non_delay", "all"])
def test_gaps_of_random_choices_are_those_of_the_page(choices: str) -> None:
    page = " ".join((Path(__file__).parents[3] / "docs" / "job_shop.md").read_text(encoding="utf-8").split())
    found = re.search(rf"random choices have a mean gap .*? (\d+)% with `{choices}`", page)
    assert found is not None
    generator = np.random.default_rng(3)
    gaps = []
    for number in range(1, 11):
        instance = published_instance(f"ta{number:02d}")
        assert instance.best_known is not None
        for _ in range(20):
            simulation = started(instance, choices)
            while not simulation.is_complete:
                simulation.schedule(int(generator.choice(np.flatnonzero(simulation.allowed[:, 0]))), 0)
            gaps.append(100 * (simulation.makespan / instance.best_known - 1))
    deviation = np.std(gaps) / len(gaps) ** 0.5
    assert np.mean(gaps) == pytest.approx(float(found[1]), abs=3 * deviation + 0.5)
