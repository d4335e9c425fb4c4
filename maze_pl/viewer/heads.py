"""Action heads of an episode document: options or densities, and the actions taken."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.distributions.probability_distribution import choice_sizes
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.viewer.arrays import Array, encoded, finite
from maze_pl.viewer.episode import Decisions, HeadDecisions

_KINDS = {
    spaces.Discrete: "categorical",
    spaces.MultiDiscrete: "multi_categorical",
    spaces.MultiBinary: "bernoulli",
    spaces.Box: "continuous",
}


def heads_of(record: SpacesTrajectoryRecord, key: StepKey, decisions: Decisions | None) -> dict[str, dict[str, Any]]:
    """Return the heads of a sub-step.

    Args:
        record: The episode.
        key: The step key.
        decisions: Distributions of the policy, if they are known.
    """
    step = record.spec.steps[key]
    known = {} if decisions is None else decisions.heads.get(key, {})
    heads = {}
    for head, space in step.action_space.spaces.items():
        mask = record.observation[key].get(step.masks.get(head, ""))
        heads[head] = _head(space, record.action[key][head], mask, known.get(head))
    return heads


def _head(
    space: spaces.Space[Any], action: Array, mask: Array | None, decisions: HeadDecisions | None
) -> dict[str, Any]:
    """Return a head.

    Args:
        space: Its space.
        action: [rows, *shape] actions.
        mask: [rows, entries] 1 where an entry is allowed.
        decisions: Distributions, if they are known.
    """
    kind = next(name for kind, name in _KINDS.items() if isinstance(space, kind))
    content: dict[str, Any] = {
        "kind": kind,
        "labels": _labels(space),
        "sizes": choice_sizes(space),
        "probabilities": None,
        "allowed": None if mask is None else encoded(_allowed(space, mask)),
        "action": encoded(_flat(space, action)),
        "most_likely": None,
        "family": None,
        "low": None,
        "high": None,
        "density_x": None,
        "density": None,
    }
    if isinstance(space, spaces.Box):
        content["low"] = [finite(float(bound)) for bound in space.low.ravel()]
        content["high"] = [finite(float(bound)) for bound in space.high.ravel()]
    if decisions is not None:
        content["family"] = decisions.family
        content["most_likely"] = encoded(_flat(space, decisions.most_likely))
        for name in ("probabilities", "density_x", "density"):
            values = getattr(decisions, name)
            content[name] = None if values is None else encoded(values)
    return content


def _flat(space: spaces.Space[Any], action: Array) -> Array:
    """[rows, components] chosen options, counted from 0, or components of a continuous action."""
    components = action.reshape(len(action), math.prod(space.shape or ()))
    if isinstance(space, spaces.Box):
        return np.asarray(components, np.float32)
    start = np.ravel(getattr(space, "start", 0))
    options: Array = np.rint(components).astype(np.int64) - start
    return options


def _allowed(space: spaces.Space[Any], mask: Array) -> Array:
    """[rows, options of all choices] 1 where an option is allowed; a bit that is masked may be 0 only."""
    allowed: Array = (mask != 0).astype(np.uint8)
    if isinstance(space, spaces.MultiBinary):
        allowed = np.stack((np.ones_like(allowed), allowed), axis=-1).reshape(len(allowed), -1)
    return allowed


def _labels(space: spaces.Space[Any]) -> list[str] | None:
    """Return the names of the options of all choices where they are not their numbers from 0 on."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete) or not np.any(space.start):
        return None
    labels: list[str] = []
    for start, size in zip(np.ravel(space.start).tolist(), choice_sizes(space), strict=True):
        labels += [str(start + option) for option in range(size)]
    return labels
