"""Differences between decisions of a bundle and expected ones, within the tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.head_outputs import magnitude_of
from maze_pl.bundle.step_graph import StepGraph
from maze_pl.core.policy import Array
from maze_pl_runtime import Decision

TOLERANCE: Final = 1e-5
"""Largest difference of a number, relative to its size, or that of its bounds, where this is above 1."""


class Difference(NamedTuple):
    """Difference of two decisions or actions."""

    largest: float
    """Largest difference of a number, relative as in `TOLERANCE`."""
    has_near_tie: bool
    """Whether a choice in a near tie differs."""


def difference_of_decisions(
    graph: StepGraph,
    found: Decision,
    expected: Mapping[str, Array],
    action: Mapping[str, Any],
    where: str,
    uniforms: Array | None = None,
) -> Difference:
    """Compare a decision of the bundle with an expected one.

    Args:
        graph: Module that the graph of the bundle was made from.
        found: The decision.
        expected: `parameters/<head>` and `next_state/<name>` -> expected numbers. Entries of the
            policy state that are missing are not compared.
        action: Head -> expected action.
        where: Beginning of messages.
        uniforms: [n_uniforms] numbers that determine a sampled action; None for the most likely one.

    Raises:
        ExportError: A number or an action differs.
    """
    parameters = {head: expected[f"parameters/{head}"] for head in graph.heads}
    largest = [0.0]
    for head, outputs in graph.heads.items():
        numbers = parameters[head]
        if outputs.choices:  # the runtime returns minus infinity for impossible options
            numbers = np.where(numbers <= np.finfo(np.float32).min, -np.inf, numbers)
        what = f"{where}: parameters of {head!r}"
        largest.append(difference_of_numbers(found.parameters[head], numbers, what, outputs.magnitude))
    for name, array in found.state.items():
        if f"next_state/{name}" in expected:
            what = f"{where}: policy state {name!r}"
            largest.append(difference_of_numbers(array, expected[f"next_state/{name}"], what))
    ties = graph.near_ties(parameters, TOLERANCE, uniforms)
    has_near_tie = False
    for head, space in graph.actions.items():
        what = f"{where}: action {head!r}"
        difference = difference_of_actions(found.action[head], action[head], what, space, ties[head])
        largest.append(difference.largest)
        has_near_tie = has_near_tie or difference.has_near_tie
    return Difference(max(largest), has_near_tie)


def difference_of_numbers(found: Any, expected: Any, what: str, magnitude: Any = 1.0) -> float:
    """Return the largest difference of numbers.

    Args:
        found: Numbers of the bundle.
        expected: Expected ones.
        what: Description of them.
        magnitude: Their sizes, to which differences are relative if the numbers are smaller.

    Raises:
        ExportError: A number differs by more than the tolerance.
    """
    found = np.asarray(found, np.float64)
    expected = np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):  # differences of equal infinite numbers
        relative = np.abs(found - expected) / np.maximum(magnitude, np.abs(expected))
    difference = float(np.max(np.where(found == expected, 0.0, relative), initial=0.0))
    if not difference <= TOLERANCE:
        fault = f"{what} differs by {difference:.2g}, more than {TOLERANCE:g}"
        raise ExportError(f"{fault}: {found} instead of {expected}")
    return difference


def difference_of_actions(
    found: Any,
    expected: Any,
    what: str,
    space: Mapping[str, Any],
    ties: Any = False,
) -> Difference:
    """Compare numbers up to the tolerance, and integers exactly; entries in near ties may differ.

    In a type that is coarser than the tolerance, such as float16, numbers may be rounded to neighbours.

    Args:
        found: [*shape] action of the bundle.
        expected: [*shape] expected action.
        what: Description of it.
        space: Its space, as plain values.
        ties: [*shape] which entries are near ties.

    Raises:
        ExportError: Another entry differs.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype.kind != "f":
        differs = found != expected
        if (differs & ~np.asarray(ties)).any():
            raise ExportError(f"{what} is {found} instead of {expected}")
        return Difference(0.0, bool(differs.any()))
    magnitude = magnitude_of(space["low"], space["high"])
    step = np.spacing(np.maximum(np.abs(found), np.abs(expected))).astype(np.float64)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    difference = np.abs(found - expected)
    differs = difference > TOLERANCE * np.maximum(magnitude, np.abs(expected))
    is_rounded = differs & (difference <= step)
    excused = differs & ~is_rounded & ties
    found = np.where(excused | is_rounded, expected, found)
    return Difference(difference_of_numbers(found, expected, what, magnitude), bool(excused.any()))
