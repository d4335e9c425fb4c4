"""Numbers of options and of whole schedules: the formulas of one episode and of many in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs.job_shop.instance import Array

N_FEATURES = 15
N_SUMMARY = 7

LARGEST = 1000.0
"""Bound of all features."""


def option_numbers(
    starts: Array,
    completions: Array,
    work: Array,
    operations: Array,
    job_ready: Array,
    successor_durations: Array,
    of_machine: Array,
    of_successor: Array,
) -> Array:
    """Numbers of options before they are shifted and scaled; see `ObservationConversion`.

    Args:
        starts: [..., L] start of each of L options.
        completions: [..., L] completion of each option.
        work: [..., L] remaining work of its job.
        operations: [..., L] remaining operations of its job.
        job_ready: [..., L] time when its job is ready.
        successor_durations: [..., L] shortest duration of the operation after the next one, or 0.
        of_machine: [2, ..., L] time when its machine is ready, and the expected load of the machine.
        of_successor: [2, ..., L] the same of the first machine of the operation after the next one.

    Returns:
        [15, ..., L] float64.
    """
    rows = np.empty((N_FEATURES, *starts.shape))
    rows[0] = work
    rows[1] = work
    rows[2] = operations
    rows[3] = job_ready
    rows[4] = successor_durations
    rows[5] = of_successor[1]
    rows[6] = of_successor[0]
    np.subtract(completions, starts, out=rows[7])
    rows[8] = starts
    rows[9] = completions
    np.subtract(starts, of_machine[0], out=rows[10])
    np.subtract(starts, job_ready, out=rows[11])
    np.add(starts, work, out=rows[12])
    np.add(of_machine[0], of_machine[1], out=rows[13])
    rows[14] = of_machine[1]
    return rows


def offsets_and_scales(
    mean_duration: Any,
    start_bound: Any,
    bound: Any,
    earliest_start: Any,
    earliest_completion: Any,
    total_work: Any,
    n_operations: Any,
    n_unfinished: Any,
    n_machines: Any,
) -> tuple[list[Any], list[Any]]:
    """Return what is subtracted from each of the 15 numbers, and what they are then multiplied by.

    Each argument is a number of one episode, or an array [n] of the numbers of n episodes.

    Args:
        mean_duration: d.
        start_bound: b_0, at least 1.
        bound: b.
        earliest_start: s*.
        earliest_completion: c*.
        total_work: w, at least 1.
        n_operations: Number of unscheduled operations, at least 1.
        n_unfinished: Number of unfinished jobs.
        n_machines: M.
    """
    unit = 1.0 / mean_duration
    whole = 1.0 / start_bound
    of_work = n_unfinished / total_work
    of_load = n_machines / total_work
    offsets = [0, 0, 0, earliest_start, 0, 0, earliest_start, 0, earliest_start, earliest_completion]
    offsets += [0, 0, bound, bound, 0]
    scales = [of_work, whole, n_unfinished / n_operations, unit, unit, of_load]
    scales += [unit] * 6
    scales += [-whole, -whole, of_load]
    return offsets, scales


def scaled_features(rows: Array, offsets: Array, scales: Array, exists: Array) -> Array:
    """Return features [..., L, 15] float32, zeros where there is no option.

    Args:
        rows: [15, ..., L] numbers of options, which are overwritten.
        offsets: What is subtracted from them, broadcast.
        scales: What they are then multiplied by, broadcast.
        exists: [..., L] 1 for options that exist.
    """
    rows -= offsets
    rows *= scales
    rows *= exists
    np.minimum(rows, LARGEST, out=rows)
    np.maximum(rows, -LARGEST, out=rows)
    features = rows.reshape(N_FEATURES, -1).T.astype(np.float32, order="C")
    return features.reshape(*exists.shape, N_FEATURES)


def summary_numbers(
    start_bound: Any,
    bound: Any,
    earliest_start: Any,
    n_scheduled: Any,
    n_operations: Any,
    n_allowed: Any,
    n_unfinished: Any,
    n_jobs: Any,
    log_jobs: Any,
    log_machines: Any,
) -> list[Any]:
    """Return the 7 numbers of the summary; see `ObservationConversion`.

    Each argument is a number of one episode, or an array [n] of the numbers of n episodes.

    Args:
        start_bound: b_0, at least 1.
        bound: b.
        earliest_start: s*, at most b.
        n_scheduled: Number of scheduled operations.
        n_operations: Number of all operations.
        n_allowed: Number of options that may be chosen.
        n_unfinished: Number of unfinished jobs.
        n_jobs: Number of jobs.
        log_jobs: Logarithm of the number of jobs.
        log_machines: Logarithm of the number of machines.
    """
    return [
        bound / start_bound - 1.0,
        earliest_start / (bound + (bound == 0)),  # without any duration, both are 0
        n_scheduled / n_operations,
        n_allowed / n_jobs,
        n_unfinished / n_jobs,
        log_jobs / 5,
        log_machines / 5,
    ]
