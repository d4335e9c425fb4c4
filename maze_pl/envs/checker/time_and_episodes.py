"""Checks of environment time, ends of episodes, and masks."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from maze_pl.envs.checker.examination import Examination
from maze_pl.envs.checker.report import ERROR, OK, SKIPPED, WARNING, Finding


def check_env_time(examination: Examination) -> Iterator[Finding]:
    """Find environments whose time stands still, and count episodes that end within an environment step."""
    steps = [(before, act) for before, act in pairwise(examination.acts) if act.action is not None]
    if all(act.env_time == before.env_time for before, act in steps):
        remedy = "call self.context.increment_env_step() in the act that completes an environment step"
        yield ERROR, f"it did not advance in {len(steps)} acts: {remedy}"
        return
    ends = [(before, act) for before, act in steps if act.terminated or act.truncated]
    n_within = sum(act.env_time == before.env_time for before, act in ends)
    if n_within > 0:
        within = f"{n_within} of {len(ends)} episodes ended within one"
        yield OK, f"environment time advances; lengths count complete environment steps, and {within}"


def check_episodes(examination: Examination) -> Iterator[Finding]:
    """Find episodes that never end, or end in a suspicious way."""
    ends = [act for act in examination.acts if act.terminated or act.truncated]
    if not ends:
        yield (
            WARNING,
            f"none ended within {examination.n_steps} acts: add TimeLimitWrapper, or use more acts",
        )
        return
    lengths = sorted(act.env_time for act in ends)
    shortest, longest = lengths[0], lengths[-1]
    n_terminated = sum(act.terminated for act in ends)
    if any(act.terminated and act.truncated for act in ends):
        yield (
            WARNING,
            "terminated and truncated occur together: truncated is for episodes that only a limit ended",
        )
    if len(ends) > 2 and shortest == longest and n_terminated == len(ends):
        yield (
            WARNING,
            f"all terminated after {shortest} steps: if that is a time limit, return truncated instead",
        )
    n_truncated = len(ends) - n_terminated
    yield (
        OK,
        f"{n_terminated} terminated and {n_truncated} truncated after {shortest} to {longest} steps",
    )


def check_masks(examination: Examination) -> Iterator[Finding]:
    """Find masks without effect; masks that allow nothing have been refused while playing."""
    masks = [history for history in examination.observations if history.is_mask]
    for history in masks:
        if np.all(history.kept):
            yield WARNING, f"{history.what} never forbids anything"
    if not masks:
        yield SKIPPED, "none is declared"
