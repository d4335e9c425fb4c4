"""Check of rewards that are attributed to actors: their sum is the reward."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from maze_pl.envs.checker.examination import Examination
from maze_pl.envs.checker.recorder import Act
from maze_pl.envs.checker.report import WARNING, Finding

_TOLERANCE = 1e-4
_REASON = "critics of single actors learn from them, while statistics show the reward"
_REMEDY = "correct get_actor_rewards, unless that is intended"


def check_attributed_sums(examination: Examination) -> Iterator[Finding]:
    """Find environments in which attributed rewards add up to something else in most environment steps.

    Some steps may differ, such as those in which agents are rewarded that have not acted.
    """
    acts = examination.acts
    if not any(act.actor_rewards for act in acts) or not _has_original_rewards(acts):
        return
    sums = [(total, attributed) for total, attributed in _sums(acts) if total or attributed]
    different = [pair for pair in sums if not np.isclose(*pair, _TOLERANCE, _TOLERANCE)]
    if len(different) > len(sums) / 2:
        total, attributed = different[0]
        fault = (
            f"the rewards of actors do not add up to the reward in {len(different)} of {len(sums)} environment steps"
        )
        yield WARNING, f"{fault}, such as {attributed:.4g} and {total:.4g}; {_REASON}: {_REMEDY}"


def _has_original_rewards(acts: Sequence[Act]) -> bool:
    """True if episodes have ended, and no wrapper has changed rewards, which need not be linear."""
    total = 0.0
    pairs = []
    for act in acts:
        total = total + act.reward if act.action is not None else 0.0
        if act.summary is not None:
            pairs.append((total, act.summary.reward))
    return bool(pairs) and all(np.isclose(*pair, _TOLERANCE, _TOLERANCE) for pair in pairs)


def _sums(acts: Sequence[Act]) -> Iterator[tuple[float, float]]:
    """Yield the reward of each environment step with attributed rewards, and the sum of these."""
    total = 0.0
    for before, act in pairwise(acts):
        total = total + act.reward if act.action is not None else 0.0
        if act.actor_rewards:
            yield total, float(sum(act.actor_rewards))
        if act.env_time > before.env_time:
            total = 0.0
