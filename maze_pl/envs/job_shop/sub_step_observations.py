"""Spaces and observations of the structured form, from those of the flat one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.job_shop.instance import Array

MASKS: dict[StepKey, dict[str, str]] = {0: {"job": "job_mask"}, 1: {"alternative": "alternative_mask"}}
"""Head -> mask of each sub-step."""

_COMPLETION = 9
"""Feature of an option by which the best one of a job is found."""


def sub_step_spaces(
    flat: spaces.Dict, max_jobs: int, max_alternatives: int
) -> tuple[dict[StepKey, spaces.Dict], dict[StepKey, spaces.Dict]]:
    """Return the observation and the action space of each sub-step.

    Args:
        flat: Observation space of the flat form.
        max_jobs: Maximum number of jobs, J.
        max_alternatives: Maximum number of alternatives of an operation, K.
    """
    options: spaces.Box = flat["options"]  # type: ignore[assignment]
    low = options.low[:1]
    high = options.high[:1]
    jobs = spaces.Box(low.repeat(max_jobs, axis=0), high.repeat(max_jobs, axis=0))
    alternatives = spaces.Box(low.repeat(max_alternatives, axis=0), high.repeat(max_alternatives, axis=0))
    of_jobs = {"jobs": jobs, "job_mask": spaces.Box(0, 1, (max_jobs,)), "exists": spaces.Box(0, 1, (max_jobs,))}
    of_alternatives = {"alternatives": alternatives, "alternative_mask": spaces.Box(0, 1, (max_alternatives,))}
    observations: dict[StepKey, spaces.Dict] = {
        0: spaces.Dict({**of_jobs, "summary": flat["summary"]}),
        1: spaces.Dict({**of_alternatives, "summary": flat["summary"]}),
    }
    actions: dict[StepKey, spaces.Dict] = {
        0: spaces.Dict(job=spaces.Discrete(max_jobs)),
        1: spaces.Dict(alternative=spaces.Discrete(max_alternatives)),
    }
    return observations, actions


def jobs_observation(flat: Mapping[str, Array], max_jobs: int, max_alternatives: int) -> dict[str, Array]:
    """Return the observation of sub-step 0: each job with its best option, of one episode or of many.

    Args:
        flat: Name -> [..., *shape], the observations of the flat form.
        max_jobs: Maximum number of jobs, J.
        max_alternatives: Maximum number of alternatives of an operation, K.

    Returns:
        `jobs` [..., J, 15], `job_mask` [..., J], `exists` [..., J] and `summary` [..., 7].
    """
    exists = flat["exists"]
    shape = (*exists.shape[:-1], max_jobs, max_alternatives)
    exists = exists.reshape(shape)
    allowed = flat["option_mask"].reshape(shape)
    options = flat["options"].reshape(-1, flat["options"].shape[-1])
    completion = options[:, _COMPLETION].astype(np.float64).reshape(shape)
    best = (completion - 1e6 * allowed - 1e6 * exists).argmin(axis=-1)
    places = best.ravel() + np.arange(best.size) * max_alternatives
    return {
        "jobs": options[places].reshape(*best.shape, -1),
        "job_mask": allowed.max(axis=-1),
        "exists": exists.max(axis=-1),
        "summary": flat["summary"].copy(),
    }
