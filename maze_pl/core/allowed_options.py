"""Masks that forbid all options of a choice, and actions that masks forbid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.policy import Array
from maze_pl.core.spec import StepSpec


def choices_with_options(step: StepSpec, head: str, mask: Array) -> Iterator[Array]:
    """Yield, for each choice of an action head that needs an option, whether masks allow one, [...].

    Args:
        step: The sub-step.
        head: The head.
        mask: [..., options] masks of it.
    """
    space = step.action_space.spaces[head]
    if isinstance(space, spaces.MultiBinary):
        return  # all of its bits may be 0
    choices = [mask != 0]
    if isinstance(space, spaces.MultiDiscrete):
        choices = np.split(choices[0], np.cumsum(space.nvec)[:-1].tolist(), axis=-1)
    for choice in choices:
        yield np.any(choice, axis=-1)


def forbidden_choice(step: StepSpec, observation: Mapping[str, Array], is_batch: bool = False) -> str:
    """Describe a choice without an allowed option; return an empty text if each has one.

    Args:
        step: The sub-step.
        observation: Name -> [n, ...], which contains the masks.
        is_batch: Whether the description names the row.
    """
    for head, name in step.masks.items():
        of_choices = list(choices_with_options(step, head, observation[name]))
        for number, has_option in enumerate(of_choices):
            if has_option.all():
                continue
            choice = f"choice {number} of {head!r}" if len(of_choices) > 1 else repr(head)
            row = f" in row {int(np.argmin(has_option))}" if is_batch else ""
            return f"observation {name!r} allows no option of {choice}{row}"
    return ""


def forbidden_actions(actions: Array, mask: Array, space: Any) -> Array:
    """Return [n] whether a mask forbids each action, as the distribution of its head sees it.

    Args:
        actions: [n, *space.shape] valid actions.
        mask: [n, number of entries] 1 where an entry is allowed and 0 where it is not.
        space: Discrete, MultiDiscrete or MultiBinary. A choice of which all options are masked
            allows all of them.
    """
    n = len(actions)
    if isinstance(space, spaces.MultiBinary):
        masked_bits: Array = np.any((actions.reshape(n, -1) == 1) & (mask == 0), axis=1)
        return masked_bits
    sizes = np.array([space.n] if isinstance(space, spaces.Discrete) else space.nvec.ravel()).astype(np.int64)
    start = np.asarray(space.start).astype(np.int64)
    chosen = (actions.astype(np.int64) - start).reshape(n, len(sizes))
    begins = np.cumsum(sizes) - sizes
    is_allowed = np.take_along_axis(mask, chosen + begins, axis=1) == 1
    has_options = np.maximum.reduceat(mask, begins, axis=1) == 1
    forbidden: Array = np.any(~is_allowed & has_options, axis=1)
    return forbidden
