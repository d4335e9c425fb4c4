"""Gymnasium spaces as YAML types, so that checkpoints hold no pickles; and trees of values."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from gymnasium import spaces

LEAF_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def is_text(space: spaces.Space[Any]) -> bool:
    """True for a space of strings: `Text`, or any other whose dtype is text."""
    return space.dtype is not None and np.dtype(space.dtype).kind in "US"


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to matching leaves of trees of dicts and dataclasses; None stays None."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        if not others:
            return {name: mapped(function, child) for name, child in tree.items()}
        pairs = {}
        for name, child in tree.items():
            pairs[name] = mapped(function, child, *[other[name] for other in others])
        return pairs
    kind = type(tree)
    if hasattr(kind, "__dataclass_fields__"):
        copy = object.__new__(kind)  # `dataclasses.replace` takes several times as long
        vars(copy).update(mapped(function, vars(tree), *map(vars, others)))
        return copy
    return function(tree, *others)


def leaves(tree: Any) -> list[Any]:
    """List the leaves of a tree of dicts and dataclasses, without leaves that are None."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def _bound(values: np.ndarray) -> Any:
    """Describe bounds by one number if all are equal, by nested lists otherwise."""
    if values.size and np.all(values == values.flat[0]):
        return values.flat[0].item()
    return values.tolist() if values.size else 0.0


def _integer_type(space: spaces.Space[Any]) -> dict[str, str]:
    """Describe the integers of a discrete space; empty if they are the usual int64."""
    return {} if space.dtype == np.int64 else {"dtype": str(space.dtype)}


def without_integer_types(description: Any) -> Any:
    """Return a description of spaces, or of a `Spec`, without the integer types of discrete spaces.

    Networks do not depend on these types, and earlier versions did not describe them.

    Args:
        description: Result of `space_to_dict` or `Spec.to_dict`, or a part of it.
    """
    if isinstance(description, list):
        return [without_integer_types(part) for part in description]
    if not isinstance(description, dict):
        return description
    is_discrete = description.get("type") in ("discrete", "multi_discrete")
    kept = {}
    for name, part in description.items():
        if not (is_discrete and name == "dtype"):
            kept[name] = without_integer_types(part)
    return kept


def space_to_dict(space: spaces.Space[Any]) -> dict[str, Any]:
    """Describe a space with strings, numbers and lists.

    Raises:
        TypeError: The space is not a Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these.

    Example:
        >>> space_to_dict(spaces.Discrete(3))
        {'type': 'discrete', 'n': 3, 'start': 0}
    """
    if isinstance(space, spaces.Dict):
        return {
            "type": "dict",
            "spaces": {name: space_to_dict(child) for name, child in space.spaces.items()},
        }
    if isinstance(space, spaces.Discrete):
        sizes = {"n": int(space.n), "start": int(space.start)}
        return {"type": "discrete", **sizes, **_integer_type(space)}
    if isinstance(space, spaces.MultiDiscrete):
        start = {"start": space.start.tolist()} if np.any(space.start) else {}
        rest = start | _integer_type(space)
        return {"type": "multi_discrete", "nvec": space.nvec.tolist(), **rest}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "multi_binary", "shape": [int(size) for size in space.shape]}
    if isinstance(space, spaces.Box):
        description: dict[str, Any] = {
            "type": "box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
        }
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
            kind: Any = np.dtype(description.get("dtype", "int64")).type
            return spaces.Discrete(description["n"], start=description["start"], dtype=kind)
        case "multi_discrete":
            kind = np.dtype(description.get("dtype", "int64")).type
            sizes = np.asarray(description["nvec"], dtype=kind)
            start = np.asarray(description["start"], dtype=kind) if "start" in description else None
            return spaces.MultiDiscrete(sizes, dtype=kind, start=start)
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
    """Check that a space is a Dict of leaf spaces, as all users of an environment expect.

    Args:
        space: The space to check.
        what: Description of the space for the message, such as "the observation space of sub-step
            0".

    Raises:
        TypeError: The space is not a Dict, or an entry is nested, of an unsupported type, or not
            named by text.
    """
    if not isinstance(space, spaces.Dict):
        makers = "GymMazeEnv, DictObservationWrapper and DictActionWrapper make one of it"
        note = "the NoDict wrappers are for other libraries, around everything else"
        raise TypeError(f"{what} must be a Dict space, not {type(space).__name__}; {makers} ({note})")
    for name, child in space.spaces.items():
        if not isinstance(name, str):
            came = f"the entry {name!r} of type {type(name).__name__}"
            raise TypeError(f"{what} has {came}; entries are named by text, such as '{name}'")
        if not isinstance(child, LEAF_SPACES):
            kinds = "Box, Discrete, MultiDiscrete or MultiBinary (flatten nested spaces in the conversion or a wrapper)"
            raise TypeError(f"{what} has the entry {name!r} of type {type(child).__name__}; entries must be {kinds}")
    return space


def conversion_space(space: spaces.Space[Any], what: str) -> spaces.Dict:
    """Check the space of a conversion: accepted by `dict_space`, or to be named by a wrapper.

    `DictObservationWrapper` and `DictActionWrapper` turn a single space, or a Tuple of actions, into a Dict.

    Raises:
        TypeError: The space is neither.
    """
    parts = space.spaces if isinstance(space, spaces.Tuple) else [space]
    is_plain = all(isinstance(part, LEAF_SPACES) for part in parts)
    return cast(spaces.Dict, space) if is_plain else dict_space(space, what)


class MaskError(ValueError):
    """An observation is not a valid action mask; the message names it and shows its content."""


def allowed_entries(mask: Any, shape: tuple[int, ...], name: str, head: str) -> Any:
    """Convert a mask to booleans, True for each entry of an action head that is allowed.

    Args:
        mask: [n, number of entries] the observation: 1 where an entry is allowed and 0 where it is not.
        shape: Required shape.
        name: Name of the observation.
        head: Name of the head that it masks.

    Raises:
        MaskError: The mask has another shape, even one that could be broadcast, or holds other
            values.
    """
    mask = np.asarray(mask)
    allowed = mask == 1
    if mask.shape != shape:
        raise MaskError(f"the mask {name!r} of action head {head!r} has shape {mask.shape}, expected {shape}")
    if np.count_nonzero(allowed) + np.count_nonzero(mask == 0) != mask.size:  # counting booleans costs next to nothing
        wrong = np.unique(mask[(mask != 0) & ~allowed])[:3].tolist()
        remedy = "1 allows an action and 0 forbids it, and no wrapper may change that"
        raise MaskError(f"the mask {name!r} of action head {head!r} holds {wrong}; {remedy}")
    return allowed


def no_value(space: spaces.Space[Any], values: Any, n: int) -> bool:
    """True if these are not n values of a space; unbounded samples may exceed the bounds of boxes.

    Args:
        space: A leaf space.
        values: [n, *space.shape] numbers.
        n: Expected number of values.

    Example:
        >>> no_value(spaces.Discrete(3), np.array([2, 0]), 2), no_value(spaces.Discrete(3), np.array([2, 3]), 2)
        (False, True)
    """
    if values.shape != (n, *(space.shape or ())):
        return True
    numbers = np.asarray(values)
    is_choice = not isinstance(space, spaces.Box)
    if is_choice and numbers.dtype.kind == "f" and (numbers != np.floor(numbers)).any():
        return True
    if isinstance(space, spaces.Box | spaces.Discrete) and numbers.size:
        low, high = numbers.min(), numbers.max()  # NaN if there is any
        if isinstance(space, spaces.Box):
            return not (np.isfinite(low) and np.isfinite(high))
        return not space.start <= low <= high < space.start + space.n
    from_start = numbers - getattr(space, "start", 0)
    return bool(((from_start < 0) | (from_start >= getattr(space, "nvec", 2))).any())


def environment_action(space: spaces.Space[Any], value: Any) -> Any:
    """Convert one action for the environment, so that the space contains it.

    The action of a `Discrete` space becomes a Python int, others as in `environment_actions`.

    Args:
        space: The head's space.
        value: [*space.shape] action chosen by a policy.
    """
    return int(value) if isinstance(space, spaces.Discrete) else environment_actions(space, value)


def rollout_action(space: spaces.Space[Any], value: Any) -> Any:
    """Convert one action for the environment to the type that it gets in rollouts.

    As `environment_action`, but the action of a Box of shape () becomes a NumPy number instead of an array.

    Args:
        space: The head's space.
        value: [*space.shape] action chosen by a policy.
    """
    action = environment_action(space, value)
    return action[()] if isinstance(action, np.ndarray) else action


def environment_actions(space: spaces.Space[Any], values: Any) -> Any:
    """Convert actions for the environment: boxes clipped to their bounds, all in the type of the space.

    Args:
        space: The head's space.
        values: [..., *space.shape] actions chosen by a policy.
    """
    within = np.clip(values, space.low, space.high) if isinstance(space, spaces.Box) else values
    return np.asarray(within, space.dtype)
