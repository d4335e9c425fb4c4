"""Taking over the state of another environment, for those who try actions out before they act."""

import copy
from collections.abc import Iterator
from typing import Any

from maze_pl.envs.core_env import CoreEnv
from maze_pl.envs.structured_env import StructuredEnv


def take_over(own: Any, other: Any, *counterparts: tuple[Any, Any]) -> None:
    """Replace all attributes of an object by copies of another one's.

    Where the other one refers to its environment (a wrapper, the simulation, the context, the pubsub or one of its
    subscribers), the copies refer to the counterpart in the own one.

    Args:
        own: A part of an environment: one of its wrappers, its simulation, or what belongs to these.
        other: The same part of another environment that was made in the same way.
        counterparts: Further pairs that stand for each other, such as the two environments.

    Raises:
        TypeError: An attribute cannot be copied.
    """
    pairs = [pair for given in ((own, other), *counterparts) for pair in _parts(*given)]
    try:
        state = copy.deepcopy(vars(other), {id(theirs): ours for ours, theirs in pairs})
    except Exception as error:  # whatever the attributes' own classes make of it
        raise TypeError(f"{type(own).__name__} cannot be copied ({error}); define its clone_from") from error
    vars(own).clear()
    vars(own).update(state)


def _parts(own: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """Two objects and, if they are environments, their parts in pairs."""
    yield own, other
    if not isinstance(own, StructuredEnv | CoreEnv):
        return
    for inner in ("env", "core_env"):  # of wrappers, and of what they wrap
        if isinstance(vars(own).get(inner), StructuredEnv | CoreEnv):
            yield from _parts(vars(own)[inner], vars(other)[inner])
            return
    yield own.context, other.context
    yield own.pubsub, other.pubsub
    yield from zip(own.pubsub.subscribers, other.pubsub.subscribers, strict=True)
