"""Gymnasium spaces as plain YAML types and back, so that checkpoints hold no pickled objects."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from gymnasium import spaces

LEAF_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def _bound(values: np.ndarray) -> Any:
    """One number where all bounds are equal, nested lists otherwise."""
    if values.size == 0:
        return 0.0
    first = values.flat[0]
    return first.item() if np.all(values == first) else values.tolist()


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
    raise TypeError(
        f"cannot describe a space of type {type(space).__name__}; "
        "use Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these"
    )


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
        raise TypeError(
            f"{what} must be a Dict space, not {type(space).__name__}; GymMazeEnv, DictObservationWrapper and "
            "DictActionWrapper make one of it (the NoDict wrappers are for other libraries, around everything else)"
        )
    for name, child in space.spaces.items():
        if not isinstance(child, LEAF_SPACES):
            raise TypeError(
                f"{what} has the entry {name!r} of type {type(child).__name__}; entries must be Box, Discrete, "
                "MultiDiscrete or MultiBinary (flatten nested spaces in the conversion or a wrapper)"
            )
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


def environment_action(space: spaces.Space[Any], value: Any) -> Any:
    """One action as environments expect it: integers as Python's own, boxes within their bounds.

    Args:
        space: The head's space.
        value: [*space.shape] what a policy chose.
    """
    if isinstance(space, spaces.Discrete):
        return int(value)
    return np.clip(value, space.low, space.high) if isinstance(space, spaces.Box) else np.asarray(value)


def mask_length(space: spaces.Space[Any], head: str) -> int:
    """Number of entries that a mask for this action head has.

    Raises:
        TypeError: The head is continuous, where masking has no meaning.
    """
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return int(np.prod(space.shape))
    raise TypeError(f"the action head {head!r} is a {type(space).__name__}, which cannot be masked")
