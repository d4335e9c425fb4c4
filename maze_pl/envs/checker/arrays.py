"""Comparison of an array environment with single episodes of itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays.array_checks import slots_for_checks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_vector_env import ArrayVectorEnv
from maze_pl.envs.building import Env, make_wrapped
from maze_pl.envs.checker.examination import Examination, make_and_keep, plays_in_arrays
from maze_pl.envs.checker.report import ERROR, SKIPPED, WARNING, Finding
from maze_pl.envs.checker.same_as import compare_envs
from maze_pl.envs.reward_watch import UnattributedRewardWarning
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv

N_ARRAY_ENVS = 4
"""Environments of an array environment that are compared with as many single episodes."""
_N_SAMPLES = 1000  # for the statistics of wrappers

Comparable = SequentialVectorEnv | ArrayVectorEnv


def make_comparable(
    env: Callable[[], Env],
    wrappers: list[Callable[[Any], Env]],
    masks: dict[str, str] | None,
    n_envs: int,
    seed: int,
    *,
    as_singles: bool = False,
) -> Comparable:
    """Make several environments, in arrays if they are, whose wrappers have estimated their statistics.

    Args:
        env: Makes an environment.
        wrappers: Wrap the environment, the first one innermost.
        masks: Action head -> observation, in addition to the masks that the environment declares.
        n_envs: Number of environments.
        seed: Determines the episodes.
        as_singles: Whether an array environment is made several times, for one episode each.

    Raises:
        ValueError: A wrapper of an array environment has no array form.
    """
    make = partial(make_wrapped, env, wrappers, masks)
    first, made = make_and_keep(env, wrappers, masks)
    spec = Spec.of(first, slots_for_checks(first))
    is_single = as_singles or not (plays_in_arrays(first) and isinstance(made, ArrayEnv))
    first.close()
    sample = SequentialVectorEnv([make], seed=seed, spec=spec)  # its episodes are not those of the comparison
    statistics = sample.estimate(_N_SAMPLES, derive_seed(seed, "normalization"))
    sample.close()
    vector: Comparable
    if is_single:
        vector = SequentialVectorEnv([make] * n_envs, seed=seed, spec=spec)
    else:
        make_arrays = partial(make_wrapped_arrays, cast(Callable[[], ArrayEnv], env), wrappers, masks)
        vector = ArrayVectorEnv(make_arrays, n_envs, seed=seed, spec=spec)
    vector.load_shared_states(statistics)
    return vector


def check_arrays(examination: Examination) -> Iterator[Finding]:
    """Find array environments whose environments affect each other, or differ from single episodes."""
    form = examination.array_form
    if form is None:
        yield SKIPPED, "it needs a function that makes the array environment, or its class, instead of an episode of it"
        return
    if not examination.is_deterministic:
        yield SKIPPED, "the environment is not deterministic"
        return
    make = partial(make_comparable, form.env, form.wrappers, dict(examination.masks), N_ARRAY_ENVS, examination.seed)
    try:
        make().close()
    except ValueError as error:  # of a wrapper without an array form
        yield WARNING, f"it cannot be played in arrays: {error}"
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnattributedRewardWarning)
        comparison = compare_envs(
            make,
            partial(make, as_singles=True),
            n_steps=examination.n_steps,
            seed=examination.seed,
            step_timeout=examination.step_timeout,
        )
    for warning in caught:
        if not issubclass(warning.category, UnattributedRewardWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif str(warning.message) != examination.env.unattributed:  # which the check of rewards has reported
            yield ERROR, str(warning.message)
    if comparison.difference is not None:
        both = f"{N_ARRAY_ENVS} environments in arrays and {N_ARRAY_ENVS} single ones of the same seeds differ"
        remedy = "compute each environment from its entries alone, and change only those of `which`"
        yield ERROR, f"{both}: {comparison.difference}; {remedy}"
