"""CP-SAT as a policy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.job_shop.cp_sat import solve_with_cp_sat
from maze_pl.envs.job_shop.instance import JobShopInstance
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.option_policy import OptionPolicy
from maze_pl.envs.job_shop.schedule import Schedule


class CpSatPolicy(OptionPolicy):
    """Solves the instance of each episode with CP-SAT, then follows the schedule.

    Operations are scheduled in the order in which the solution starts them. If the environment does
    not allow the next one because something else could be completed before it starts, that is
    scheduled first; no operation then starts later than in the solution, so the makespan is never
    worse. This holds with `choices` "active" and "all"; with "non_delay", some orders cannot be
    followed. Needs the extra `problems`.

    Args:
        action_spaces_dict: Action space of each sub-step.
        time_limit: Seconds for each instance.
        n_workers: Number of threads of the solver.
        seed: Seed of the solver.
    """

    def __init__(
        self,
        action_spaces_dict: Mapping[StepKey, spaces.Dict],
        time_limit: float = 10.0,
        n_workers: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(action_spaces_dict)
        self.time_limit = time_limit
        self.n_workers = n_workers
        self.seed = seed
        self._solved: list[tuple[JobShopInstance, Schedule]] = []

    def choose(self, state: JobShopMazeState) -> tuple[int, int]:
        """Return the job and the alternative that come next in the solution.

        Args:
            state: A state in which something may be chosen.

        Raises:
            ImportError: OR-tools is not installed.
        """
        schedule = self._schedule_of(state.instance)
        jobs = np.flatnonzero(state.exists.any(axis=1))
        operations = state.next_operation[jobs]
        first = int(np.argmin(schedule.starts[jobs, operations]))
        job = int(jobs[first])
        machine = schedule.machines[job, operations[first]]
        alternative = int(np.argmax((state.option_machines[job] == machine) & state.exists[job]))
        if state.allowed[job, alternative]:
            return job, alternative
        completions = np.where(state.allowed, state.completions, np.iinfo(np.int64).max)
        job, alternative = divmod(int(completions.argmin()), completions.shape[1])
        return job, alternative

    def _schedule_of(self, instance: JobShopInstance) -> Schedule:
        """Solution of an instance; those of the last 64 instances are kept."""
        for known, schedule in self._solved:
            if known is instance:
                return schedule
        schedule = solve_with_cp_sat(instance, self.time_limit, self.n_workers, self.seed)
        self._solved = [*self._solved[-63:], (instance, schedule)]
        return schedule
