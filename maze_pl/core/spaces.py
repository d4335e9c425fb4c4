"""Gymnasium spaces as plain YAML types and back, so that checkpoints hold no pickled objects; and trees of values."""

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, cast

import numpy as np
from gymnasium import spaces

LEAF_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """What a function makes of the leaves of a tree of dicts and dataclasses, and those of others; None stays."""
    if isinstance(tree, dict):
        return {name: mapped(function, child, *(other[name] for other in others)) for name, child in tree.items()}
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **mapped(function, vars(tree), *map(vars, others)))
    return None if tree is None else function(tree, *others)


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree of dicts and dataclasses, without those that are None."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def _bound(values: np.ndarray) -> Any:
    """One number where all bounds are equal, nested lists otherwise."""
    if values.size and np.all(values == values.flat[0]):
        return values.flat[0].item()
    return values.tolist() if values.size else 0.0


def space_to_dict(space: spaces.Space[Any]) -> dict[str, Any]:
    """Describe a space with strings, numbers and lists.

    Raises:
        TypeError: The space is none of Box, Discrete, MultiDiscrete, MultiBinary or a Dict of them.

    Example:
        >>> space_to_dict(spaces.Discrete(3))
        {'type': 'discrete', 'n': 3, 'start': 0}
    """
    if isinstance(space, spaces.Dict):
        return {"type": "dict", "spaces": {name: space_to_dict(child) for name, child in space.spaces.items()}}
    if isinstance(space, spaces.Discrete):
        return {"type": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        if np.any(space.start):
            raise TypeError(f"MultiDiscrete with start={space.start} is not supported; subtract the start in a wrapper")
        return {"type": "multi_discrete", "nvec": space.nvec.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "multi_binary", "shape": [int(size) for size in space.shape]}
    if isinstance(space, spaces.Box):
        description: dict[str, Any] = {"type": "box", "shape": list(space.shape), "dtype": str(space.dtype)}
        return description | {"low": _bound(space.low), "high": _bound(space.high)}
    remedy = "use Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these"
    raise TypeError(f"cannot describe a space of type {type(space).__name__}; {remedy}")


def space_from_dict(description: Mapping[str, Any]) -> spaces.Space[Any]:
    """Build the space that `space_to_dict` described.

    Raises:
        ValueError: The description names no known type.
    """
    match description["type"]:
        case "dict":
            # Pairs keep their order; gymnasium sorts a dict by its keys, and networks concatenate in this order.
            return spaces.Dict([(name, space_from_dict(child)) for name, child in description["spaces"].items()])
        case "discrete":
            return spaces.Discrete(description["n"], start=description["start"])
        case "multi_discrete":
            return spaces.MultiDiscrete(np.asarray(description["nvec"], dtype=np.int64))
        case "multi_binary":
            shape = description["shape"]
            return spaces.MultiBinary(shape if len(shape) != 1 else shape[0])
        case "box":
            shape, dtype = tuple(description["shape"]), np.dtype(description["dtype"])
            low, high = (np.full(shape, description[key], dtype) for key in ("low", "high"))
            return spaces.Box(low, high, shape, dtype.type)
        case other:
            raise ValueError(f"unknown space type {other!r}")


def dict_space(space: spaces.Space[Any], what: str) -> spaces.Dict:
    """Check that a space is a Dict of leaf spaces, as everything above an environment expects.

    Args:
        space: The space to check.
        what: What it is, for the message, such as "the observation space of sub-step 0".

    Raises:
        TypeError: It is not a Dict, or one of its entries is nested or of an unsupported type.
    """
    if not isinstance(space, spaces.Dict):
        makers = "GymMazeEnv, DictObservationWrapper and DictActionWrapper make one of it"
        note = "the NoDict wrappers are for other libraries, around everything else"
        raise TypeError(f"{what} must be a Dict space, not {type(space).__name__}; {makers} ({note})")
    for name, child in space.spaces.items():
        if not isinstance(child, LEAF_SPACES):
            kinds = "Box, Discrete, MultiDiscrete or MultiBinary (flatten nested spaces in the conversion or a wrapper)"
            raise TypeError(f"{what} has the entry {name!r} of type {type(child).__name__}; entries must be {kinds}")
    return space


def conversion_space(space: spaces.Space[Any], what: str) -> spaces.Dict:
    """Check the space of a conversion: what `dict_space` accepts, or what has yet to be given names by a wrapper.

    `DictObservationWrapper` and `DictActionWrapper` turn a single space, or a Tuple of actions, into a Dict.

    Raises:
        TypeError: It is neither.
    """
    parts = space.spaces if isinstance(space, spaces.Tuple) else [space]
    is_plain = all(isinstance(part, LEAF_SPACES) for part in parts)
    return cast(spaces.Dict, space) if is_plain else dict_space(space, what)


def no_value(space: spaces.Space[Any], values: Any, n: int) -> bool:
    """Whether these are not n values of a space; boxes may be exceeded, as unbounded distributions do.

    Args:
        space: A leaf space.
        values: [n, *space.shape] numbers.
        n: How many they should be.

    Example:
        >>> no_value(spaces.Discrete(3), np.array([2, 0]), 2), no_value(spaces.Discrete(3), np.array([2, 3]), 2)
        (False, True)
    """
    if values.shape != (n, *(space.shape or ())):
        return True
    if isinstance(space, spaces.Box | spaces.Discrete) and values.size:
        low, high = values.min(), values.max()  # NaN if there is any
        if isinstance(space, spaces.Box):
            return not (np.isfinite(low) and np.isfinite(high))
        return not space.start <= low <= high < space.start + space.n
    from_start = values - getattr(space, "start", 0)
    return bool(((from_start < 0) | (from_start >= getattr(space, "nvec", 2))).any())


def environment_action(space: spaces.Space[Any], value: Any) -> Any:
    """One action as environments expect it: integers as Python's own, boxes within their bounds.

    Args:
        space: The head's space.
        value: [*space.shape] what a policy chose.
    """
    if isinstance(space, spaces.Discrete):
        return int(value)
    return np.clip(value, space.low, space.high) if isinstance(space, spaces.Box) else np.asarray(value)
