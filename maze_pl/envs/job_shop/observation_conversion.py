"""Observations of the flat job shop."""

from __future__ import annotations

import math

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.job_shop.instance import Array
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.option_features import (
    LARGEST,
    N_FEATURES,
    N_SUMMARY,
    offsets_and_scales,
    option_numbers,
    scaled_features,
    summary_numbers,
)
from maze_pl.envs.structured_env import Observation


class ObservationConversion(ObservationConversionInterface):
    """Observations: numbers of each option, which options may be chosen, and a summary.

    All numbers are ratios, so that instances of different sizes and units look alike: short times
    are divided by the mean duration d, long ones by the lower bound b_0 of the empty schedule. With
    the earliest start s* and completion c* of all options, the current lower bound b, and w the
    remaining work of all jobs:

        0  remaining work of the job / mean of all unfinished jobs
        1  remaining work of the job / b_0
        2  remaining operations of the job / mean of all unfinished jobs
        3  (job ready - s*) / d
        4  shortest duration of the operation after the next one / d
        5  expected load of the first machine of that operation / (w / M)
        6  (the time when that machine is ready - s*) / d
        7  duration / d
        8  (start - s*) / d
        9  (completion - c*) / d
        10 (start - machine ready) / d, the idle time of the machine
        11 (start - job ready) / d, the waiting time of the job
        12 (b - start - remaining work) / b_0, slack of the job
        13 (b - machine ready - expected load) / b_0, slack of the machine
        14 expected load of the machine / (w / M)

    Numbers 4 to 6 are 0 without such an operation. Summary: b / b_0 - 1; s* / b; scheduled share of
    operations; allowed options per job; unfinished share of jobs; log(jobs) / 5; log(machines) / 5.

    Args:
        max_jobs: Maximum number of jobs, N.
        max_alternatives: Maximum number of alternatives of an operation, K.
    """

    def __init__(self, max_jobs: int, max_alternatives: int) -> None:
        self.max_jobs = max_jobs
        self.max_alternatives = max_alternatives

    def space(self) -> spaces.Dict:
        """Return the space of all observations, float32.

        `options` [N * K, 15], `option_mask` [N * K], 1 for options that may be chosen, `exists`
        [N * K], 1 for options of unfinished jobs, and `summary` [7].
        """
        n = self.max_jobs * self.max_alternatives
        return spaces.Dict(
            options=spaces.Box(-LARGEST, LARGEST, (n, N_FEATURES)),
            option_mask=spaces.Box(0, 1, (n,)),
            exists=spaces.Box(0, 1, (n,)),
            summary=spaces.Box(-LARGEST, LARGEST, (N_SUMMARY,)),
        )

    def maze_to_space(self, maze_state: JobShopMazeState) -> Observation:
        """Observation of a state."""
        exists = maze_state.exists.ravel().astype(np.float32)
        if maze_state.n_unfinished:
            options = self._features(maze_state, exists)
        else:
            options = np.zeros((len(exists), N_FEATURES), np.float32)
        return {
            "options": options,
            "option_mask": maze_state.allowed.ravel().astype(np.float32),
            "exists": exists,
            "summary": _summary(maze_state),
        }

    def _features(self, state: JobShopMazeState, exists: Array) -> Array:
        """Features of all options [N * K, 15], zeros where there is none.

        Args:
            state: A state with unfinished jobs.
            exists: [N * K] 1 for options that exist.
        """
        n_machines = state.instance.n_machines
        by_machine = np.empty((2, n_machines + 1))  # ready and load; nothing for the machine M
        by_machine[0, :n_machines] = state.machine_ready
        by_machine[1, :n_machines] = state.machine_load
        by_machine[0, n_machines] = state.earliest_start
        by_machine[1, n_machines] = 0.0
        rows = option_numbers(
            starts=state.starts.ravel(),
            completions=state.completions.ravel(),
            work=self._spread(state.remaining_work),
            operations=self._spread(state.remaining_operations),
            job_ready=self._spread(state.job_ready),
            successor_durations=self._spread(state.successor_durations),
            of_machine=by_machine.take(state.option_machines.ravel(), axis=1),
            of_successor=by_machine.take(self._spread(state.successor_machines), axis=1),
        )
        offsets_scales = offsets_and_scales(
            mean_duration=state.instance.mean_duration,
            start_bound=max(state.instance.start_bound, 1),
            bound=state.bound,
            earliest_start=state.earliest_start,
            earliest_completion=state.earliest_completion,
            total_work=max(state.total_remaining_work, 1),
            n_operations=state.instance.total_operations - state.n_scheduled,
            n_unfinished=state.n_unfinished,
            n_machines=n_machines,
        )
        table = np.array(offsets_scales, np.float64)[..., np.newaxis]
        return scaled_features(rows, table[0], table[1], exists)

    def _spread(self, values: Array) -> Array:
        """Give each option the number of its job: [N] to [N * K]."""
        return values if self.max_alternatives == 1 else values.repeat(self.max_alternatives)


def _summary(state: JobShopMazeState) -> Array:
    """Numbers of the whole state [7]."""
    instance = state.instance
    numbers = summary_numbers(
        start_bound=max(instance.start_bound, 1),
        bound=state.bound,
        earliest_start=min(state.earliest_start, state.bound),
        n_scheduled=state.n_scheduled,
        n_operations=instance.total_operations,
        n_allowed=np.count_nonzero(state.allowed),
        n_unfinished=state.n_unfinished,
        n_jobs=instance.n_jobs,
        log_jobs=math.log(instance.n_jobs),
        log_machines=math.log(instance.n_machines),
    )
    return np.array(numbers, np.float32)
