"""Measurement of an environment's speed, and the vectorization that follows from it."""

import os
from collections.abc import Iterator

from maze_pl.envs.checker.examination import Examination
from maze_pl.envs.checker.report import OK, SKIPPED, Finding

_SECONDS_TO_EXCHANGE = 1e-4  # a step with another process


def check_speed(examination: Examination) -> Iterator[Finding]:
    """Report acts per second."""
    names = ", ".join(examination.wrapper_names)
    within = f"{1 / examination.env.seconds():,.0f} acts per second within {names}"
    alone = examination.seconds_alone
    yield OK, within if alone is None else f"{1 / alone:,.0f} alone, {within}"


def check_vectorization(examination: Examination) -> Iterator[Finding]:
    """Recommend a way to step several environments, unless these are arrays."""
    if examination.plays_arrays:
        yield SKIPPED, "an array environment steps all its environments together"
        return
    seconds, n_cores = examination.env.seconds(), len(os.sched_getaffinity(0))
    where = "subprocess" if seconds > 2 * _SECONDS_TO_EXCHANGE and n_cores > 1 else "sequential"
    exchange = f"sending it to another process about {1e6 * _SECONDS_TO_EXCHANGE:.0f} us"
    yield (
        OK,
        f"{where}: an act takes {1e6 * seconds:,.0f} us, {exchange}, and there are {n_cores} cores",
    )
