"""Spaces of evaluators: those of training, apart from bounds that change nothing for networks."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.spaces import space_to_dict
from maze_pl.core.spec import Spec

_MISSING: tuple[Any, str] = (None, "missing")


def require_same_spaces(name: str, training: Spec, own: Spec, has_bounds: bool) -> None:
    """Refuse an environment whose spaces, agents or masks are not those of training.

    Networks read observations by shape, and bytes otherwise than other integers. Blocks for integers, such as
    one-hot codes, are made for the bounds of training, so that integers must not leave them.

    Args:
        name: Name of the evaluator.
        training: Spaces of training.
        own: Spaces of the evaluator.
        has_bounds: Whether observations must have the same bounds, too, as in the environment of training, where
            only wrappers could have changed them.

    Raises:
        ValueError: Something differs.
    """
    expected_parts = _parts(training)
    own_parts = _parts(own)
    for part in {**expected_parts, **own_parts}:
        found, shown = own_parts.get(part, _MISSING)
        expected, shown_there = expected_parts.get(part, _MISSING)
        is_action = part.startswith("action")
        if _is_same(found, expected, has_bounds or is_action):
            continue
        fault = f"{part} is {shown} in evaluators[{name!r}], but {shown_there} in training"
        remedy = "give the evaluator an env and wrappers with those of training"
        example = "for instances of other sizes, the same largest number of items in both"
        raise ValueError(f"{fault}: {remedy} ({example})")


def _parts(spec: Spec) -> dict[str, tuple[Any, str]]:
    """Return each part of a specification that must be the same: a space or a value, and a short text."""
    parts: dict[str, tuple[Any, str]] = {}
    for key, step in spec.steps.items():
        place = f"of sub-step {key!r}"
        agents = (step.n_agents, step.n_slots)
        parts[f"the number of agents {place}"] = (agents, str(step.n_agents))
        for observation, space in step.observation_space.spaces.items():
            parts[f"observation {observation!r} {place}"] = (space, str(space))
        for head, space in step.action_space.spaces.items():
            parts[f"action {head!r} {place}"] = (space, str(space))
            mask = step.masks.get(head)
            parts[f"the mask of action {head!r} {place}"] = (mask, "missing" if mask is None else repr(mask))
    return parts


def _is_same(found: Any, expected: Any, has_bounds: bool) -> bool:
    """True if a part of a specification fits that of training."""
    if not isinstance(found, spaces.Space) or not isinstance(expected, spaces.Space):
        return bool(found == expected)
    if _described(found, has_bounds) != _described(expected, has_bounds):
        return False
    is_whole = isinstance(found, spaces.Box) and np.issubdtype(found.dtype, np.integer)
    return not is_whole or bool((found.low >= expected.low).all() and (found.high <= expected.high).all())  # type: ignore[attr-defined]


def _described(space: spaces.Space[Any], has_bounds: bool) -> dict[str, Any]:
    """Describe a space with the kind of its numbers instead of their type, and with or without bounds."""
    left_out = {"dtype"} if has_bounds else {"dtype", "low", "high"}
    description = {name: value for name, value in space_to_dict(space).items() if name not in left_out}
    return {**description, "kind": _kind(space.dtype)}


def _kind(dtype: Any) -> str:
    """Return the kind of numbers: floats, integers and flags of any size, or bytes, which networks scale."""
    if np.dtype(dtype) == np.uint8:
        return "bytes"
    return "integer" if np.issubdtype(dtype, np.integer) else np.dtype(dtype).kind
