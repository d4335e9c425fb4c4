"""Checks of the magnitudes of observations and rewards."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.checker.attributed_sums import check_attributed_sums
from maze_pl.envs.checker.examination import Examination
from maze_pl.envs.checker.repeated_rewards import check_repeated_rewards
from maze_pl.envs.checker.report import ERROR, WARNING, Finding

_MOST_ENTRIES = 1000  # numbers of an observation that are checked
_LARGE = 100.0  # larger values are hard to learn from
_TINY = 1e-3  # smaller rewards are hard to learn from
_DRIFT = 3.0  # standard deviations; a value that grows all the time drifts by 3.5
_LEAST_VALUES = 20  # needed to find a drift


def check_observations(examination: Examination) -> Iterator[Finding]:
    """Find observations that are not finite, too large, constant, or drift."""
    for history in examination.observations:
        if not isinstance(history.space, spaces.Box) or history.is_mask:
            continue
        is_image = history.space.dtype == np.uint8 and len(history.space.shape) > 1
        values: Sequence[Any] = history.kept
        if is_image:  # scaled by networks
            values = [array / 255.0 for array in history.kept]
        yield from _check_values(history.what, values, "use ObservationNormalizationWrapper")


def check_rewards(examination: Examination) -> Iterator[Finding]:
    """Find rewards that are not finite, too large, too small, drift, count twice, or are not learned from."""
    if examination.env.unattributed is not None:
        yield ERROR, examination.env.unattributed
    rewards = [act.reward for act in examination.acts if act.action is not None]
    attributed = [reward for act in examination.acts for reward in act.actor_rewards]
    what = "the reward of an actor" if attributed else "the reward"
    yield from _check_values(what, attributed or rewards, "use RewardScalingWrapper", _TINY)
    yield from check_repeated_rewards(examination)
    yield from check_attributed_sums(examination)


def _check_values(what: str, values: Sequence[Any], remedy: str, least: float = 0.0) -> Iterator[Finding]:
    """Yield what is wrong with the magnitudes of numbers, in the order of time."""
    flat = np.array(values, np.float64).reshape(len(values), -1)
    flat = flat[:, :: max(1, flat.shape[1] // _MOST_ENTRIES)]
    largest = float(np.abs(flat).max(initial=0.0))
    if not np.isfinite(largest):
        yield ERROR, f"{what} is not finite: it holds {flat[~np.isfinite(flat)][0]}"
        return
    described = f"(mean {flat.mean():.3g}, standard deviation {flat.std():.3g}, largest {largest:.3g})"
    is_constant = least == 0 and np.ptp(flat, axis=0).max() == 0 and len(values) > 1
    if largest == 0 or is_constant:
        yield WARNING, f"{what} never changes {described}: nothing can be learned from it"
    elif not least <= largest <= _LARGE:
        yield WARNING, f"{what} has a size that is hard to learn from {described}: {remedy}"
    early, late = np.array_split(flat, 2)
    spread = np.maximum(early.std(axis=0), late.std(axis=0)) + 1e-6 * (1 + largest)
    change = np.abs(early.mean(axis=0) - late.mean(axis=0))
    if len(values) >= _LEAST_VALUES and (change > _DRIFT * spread).any():
        yield (
            WARNING,
            f"{what} drifts {described}: its mean changes by more than {_DRIFT:.0f} standard deviations",
        )
