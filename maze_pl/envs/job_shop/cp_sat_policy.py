"""CP-SAT as a policy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.job_shop.cp_sat import solve_with_cp_sat
from maze_pl.envs.job_shop.instance import Array, JobShopInstance
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.option_policy import OptionPolicy
from maze_pl.envs.job_shop.schedule import order_of

_N_KEPT = 1024
"""Number of instances whose solutions are kept, above that of episodes at the same time."""


class CpSatPolicy(OptionPolicy):
    """Solves the instance of each episode with CP-SAT, then follows the schedule.

    Operations are scheduled in the order in which the solution starts them. If the environment does
    not allow the next one because something else could be completed before it starts, that is
    scheduled first; no operation then starts later than in the solution, so the makespan is never
    worse. This holds with `choices` "active" and "all"; with "non_delay", some orders cannot be
    followed. As the second actor after another policy, it chooses the machine of the solution. Each
    instance is solved once. Needs the extra `problems`.

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
        self._solved: dict[bytes, tuple[Array, Array]] = {}

    def choose(self, state: JobShopMazeState) -> tuple[int, int]:
        """Return the job and the alternative that come next in the solution.

        Args:
            state: A state in which something may be chosen.

        Raises:
            ImportError: OR-tools is not installed.
        """
        places, machines = self._solution_of(state.instance)
        jobs = np.flatnonzero(state.exists.any(axis=1))
        jobs = jobs[places[jobs, state.next_operation[jobs]].argsort()]
        planned = machines[jobs, state.next_operation[jobs]]
        is_planned = (state.option_machines[jobs] == planned[:, np.newaxis]) & state.allowed[jobs]
        completions = np.where(state.allowed, state.completions, np.iinfo(np.int64).max)
        completes_first = completions.min() == state.earliest_completion
        if is_planned[0].any() or (is_planned.any() and not completes_first):
            place, alternative = divmod(int(is_planned.argmax()), is_planned.shape[1])
            return int(jobs[place]), alternative
        job, alternative = divmod(int(completions.argmin()), completions.shape[1])
        return job, alternative

    def _solution_of(self, instance: JobShopInstance) -> tuple[Array, Array]:
        """Place [J, O] of each operation in the order of the solution, and its machine [J, O]."""
        if instance.content not in self._solved:
            schedule = solve_with_cp_sat(instance, self.time_limit, self.n_workers, self.seed)
            if len(self._solved) == _N_KEPT:
                del self._solved[next(iter(self._solved))]
            self._solved[instance.content] = order_of(instance, schedule), schedule.machines
        return self._solved[instance.content]
