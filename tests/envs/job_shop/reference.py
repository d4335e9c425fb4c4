"""Slow references for the job shop that share no code with the package."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np

from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.job_shop import JobShopInstance, RandomInstances, job_shop_factory, structured_job_shop_factory

Jobs = list[list[dict[int, int]]]
"""Machine -> duration, for each operation of each job."""

TWO_BY_TWO = [[[(0, 3)], [(1, 2)]], [[(0, 2)], [(1, 4)]]]
FACTORIES = {"flat": job_shop_factory, "structured": structured_job_shop_factory}
SMALL = "random(3x3, times=1-9)"
FLEXIBLE = "random(3x3, times=1-9, alternatives=2)"
INSTANT = JobShopInstance.of("instant", 2, [[[(0, 10)]], [[(1, 5)], [(0, 0)], [(1, 10)]]])
"""The best schedule, with a makespan of 15, does work that takes no time at 5, before longer work on its machine."""


def jobs_of(instance: JobShopInstance) -> Jobs:
    jobs: Jobs = []
    for job in range(instance.n_jobs):
        n = int(instance.n_operations[job])
        jobs.append([dict(instance.alternatives(job, operation)) for operation in range(n)])
    return jobs


def drawn(text: str, seed: int) -> JobShopInstance:
    return RandomInstances.parse(text).draw(np.random.default_rng(seed))


class SlowSchedule:
    """A schedule as lists of intervals; everything is computed again whenever it is asked for."""

    def __init__(self, jobs: Jobs, n_machines: int) -> None:
        self.jobs = jobs
        self.n_machines = n_machines
        self.placed: list[tuple[int, int, int, int, int]] = []  # job, operation, machine, start, end

    def copy(self) -> SlowSchedule:
        other = SlowSchedule(self.jobs, self.n_machines)
        other.placed = list(self.placed)
        return other

    def options(self) -> list[tuple[int, int, int, int]]:
        """Job, machine, start and end of everything that could come next."""
        found = []
        for job, operations in enumerate(self.jobs):
            done = [entry for entry in self.placed if entry[0] == job]
            if len(done) == len(operations):
                continue
            for machine, duration in operations[len(done)].items():
                ends = [entry[4] for entry in self.placed if entry[0] == job or entry[2] == machine]
                start = max(ends, default=0)
                found.append((job, machine, start, start + duration))
        return found

    def allowed(self, choices: str) -> set[tuple[int, int]]:
        options = self.options()
        first = min((start for _, _, start, _ in options), default=0)
        soonest = min((end for *_, end in options), default=0)
        kept = {
            "all": options,
            "active": [
                option for option in options if option[2] < soonest or option[3] == soonest or option[2] == first
            ],
            "non_delay": [option for option in options if option[2] == first],
        }
        return {(job, machine) for job, machine, _, _ in kept[choices]}

    def place(self, job: int, machine: int) -> None:
        operation = sum(entry[0] == job for entry in self.placed)
        ((start, end),) = [(s, e) for j, m, s, e in self.options() if (j, m) == (job, machine)]
        self.placed.append((job, operation, machine, start, end))

    def bound(self) -> int:
        best = 0
        waiting = {option[0] for option in self.options()}
        for job, operations in enumerate(self.jobs):
            done = [entry for entry in self.placed if entry[0] == job]
            best = max([best, *[entry[4] for entry in done]])
            if job in waiting:
                start = min(s for j, _, s, _ in self.options() if j == job)
                best = max(best, start + sum(min(operation.values()) for operation in operations[len(done) :]))
        for machine in range(self.n_machines):
            work = max([entry[4] for entry in self.placed if entry[2] == machine], default=0)
            for job, operations in enumerate(self.jobs):
                done = sum(entry[0] == job for entry in self.placed)
                work += sum(operation[machine] for operation in operations[done:] if list(operation) == [machine])
            best = max(best, work)
        return best

    @property
    def makespan(self) -> int:
        return max(entry[4] for entry in self.placed)


def complete_schedules(schedule: SlowSchedule, choices: str) -> Iterator[int]:
    """Makespans of all schedules that can be reached."""
    options = schedule.allowed(choices)
    if not options:
        yield schedule.makespan
    for job, machine in sorted(options):
        following = schedule.copy()
        following.place(job, machine)
        yield from complete_schedules(following, choices)


def best_makespan(jobs: Jobs) -> int:
    """Smallest makespan over all orders of operations, of a job shop without alternatives."""
    sequence = [job for job, operations in enumerate(jobs) for _ in operations]
    best = 10**9
    for order in set(permutations(sequence)):
        job_ends = dict.fromkeys(range(len(jobs)), 0)
        machine_ends: dict[int, int] = {}
        done = dict.fromkeys(range(len(jobs)), 0)
        for job in order:
            ((machine, duration),) = jobs[job][done[job]].items()
            end = max(job_ends[job], machine_ends.get(machine, 0)) + duration
            job_ends[job] = machine_ends[machine] = end
            done[job] += 1
        best = min(best, max(job_ends.values()))
    return best


def play(env: Any, policy: Any, seed: int = 0) -> list[float]:
    """Rewards of an episode in which a policy chooses from states, in both forms of the environment."""
    env.reset(seed=seed)
    rewards = []
    terminated = False
    while not terminated:
        job, alternative = policy.choose(env.get_maze_state())
        if env.action_space.spaces.keys() == {"option"}:
            action: dict[str, int] = {"option": job * env.core_env.max_alternatives + alternative}
        elif env.actor_id().step_key == 0:
            action = {"job": job}
        else:
            action = {"alternative": alternative}
        _, reward, terminated, truncated, _ = env.step(action)
        assert not truncated
        rewards.append(reward)
    return rewards


def step_arrays(arrays: Any, policy: Any) -> bool:
    """Let a policy choose from the states of a flat array environment; True if an episode is over."""
    states = [arrays.maze_state(n) for n in range(arrays.n_envs)]
    action = policy.act(PolicyBatch(0, {}, np.zeros(arrays.n_envs, np.int64), maze_state=states)).action
    return bool(np.any(arrays.step({0: action}, slice(None)).terminated))
