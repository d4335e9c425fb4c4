"""State of Python objects as arrays and primitives, to restore into objects made the same way.

Nothing is pickled, and nothing that a state names is imported or called. A function, method or
class is accepted only where the receiving object already has the same one, so a state from an
untrusted source can change data and nothing else.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from maze_pl.core.state_giving import StateGiver
from maze_pl.core.state_rules import Rules, StateError
from maze_pl.core.state_taking import StateTaker

_NO_RULES: Final = Rules()


def take_state(value: Any, rules: Rules = _NO_RULES, name: str = "it") -> Any:
    """Capture the state of an object and of everything it refers to.

    Args:
        value: The object.
        rules: Rules for certain classes.
        name: Name of the object in messages.

    Returns:
        Primitives, arrays, and lists of them.

    Raises:
        StateError: Something is not made of Python and NumPy values, and does not implement
            `SavesEpisode`.
    """
    try:
        return StateTaker(rules).take(value, name)
    except RecursionError:
        raise StateError(f"{name} is nested too deeply") from None


def give_state(value: Any, state: Any, rules: Rules = _NO_RULES, name: str = "it") -> None:
    """Restore a state into an object made like the original, and into everything it refers to.

    Args:
        value: The object.
        state: Result of `take_state`.
        rules: The rules with which the state was taken.
        name: Name of the object in messages.

    Raises:
        StateError: The object is of another kind, or lacks something that the state refers to.
    """
    taker = StateTaker(rules)
    taker.take(value, name)
    if StateGiver(rules, taker).give(state, value, name) is not value:
        raise StateError(f"this is not the state of a {type(value).__name__}")


def arrays_of(state: Any) -> Iterator[np.ndarray]:
    """Yield the arrays of a state, which make up nearly all of its size."""
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, list):
        for part in state:
            yield from arrays_of(part)


def is_same_state(state: Any, other: Any) -> bool:
    """True if two states are equal, bit for bit."""
    if isinstance(state, list):
        same_length = isinstance(other, list) and len(state) == len(other)
        return same_length and all(is_same_state(a, b) for a, b in zip(state, other, strict=True))
    if isinstance(state, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(state, other)
    return type(state) is type(other) and (state == other or (state != state and other != other))
