"""Names for the parts of gymnasium spaces, on which conversions are based."""

import copy
import warnings
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from typing import Any

from gymnasium import spaces

from maze_pl.core.spaces import LEAF_SPACES, is_text

SEPARATOR = "/"
_COMPOSED = (spaces.Dict, spaces.Tuple)
_SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary or a Dict or Tuple of these"


class NamedParts:
    """Leaves of a gymnasium space by name.

    The names are the keys of a Dict and the places in a Tuple, joined by slashes if nested. The
    first part of the name of a leaf in an outermost Tuple is `<name>_<place>`; a space that is
    neither Dict nor Tuple is a single leaf with the given name.

    Args:
        space: The space.
        name: Name of the only leaf of a space that is not composed of others.
        omits_text: Whether leaves of text are left out, with a warning.

    Raises:
        TypeError: A leaf is not a Box, Discrete, MultiDiscrete or MultiBinary, or all leaves are text.
        ValueError: Two leaves have the same name.
    """

    def __init__(self, space: spaces.Space[Any], name: str, omits_text: bool = False) -> None:
        self._original = space
        self._is_composed = isinstance(space, _COMPOSED)
        self._name = name
        leaves = _leaves(space, ())
        omitted = [path for path, leaf in leaves.items() if omits_text and is_text(leaf)]
        if 0 < len(omitted) < len(leaves):
            names = [self._name_of(path) for path in omitted]
            message = f"the {name} space has text at {names}, which is left out"
            warnings.warn(f"{message}: networks take numbers only", UserWarning, stacklevel=2)
            leaves = {path: leaf for path, leaf in leaves.items() if path not in omitted}
        for path, leaf in leaves.items():
            if not isinstance(leaf, LEAF_SPACES):
                where = f"has at {self._name_of(path)!r}" if path else "is"
                fault = f"the {name} space {where} {leaf}, which is not supported"
                wrapper = f"gymnasium.wrappers.Transform{name.capitalize()}"
                remedy = f"convert it to {_SUPPORTED} with {wrapper} and a function, for example one that pads it"
                raise TypeError(f"{fault}; {remedy}")
        self._paths = {self._name_of(path): path for path in leaves}
        if len(self._paths) != len(leaves):
            names = sorted(self._name_of(path) for path in leaves)
            raise ValueError(f"the {name} space has parts with the same name: {names}")
        self._space = spaces.Dict(dict(zip(self._paths, copy.deepcopy(list(leaves.values())), strict=True)))

    def space(self) -> spaces.Dict:
        """Return the flat Dict of the leaves."""
        return self._space

    def divided(self, whole: Any) -> dict[str, Any]:
        """Return the parts of a value of the environment's space, by name."""
        return {name: reduce(getitem, path, whole) for name, path in self._paths.items()}

    def joined(self, parts: Mapping[str, Any]) -> Any:
        """Join parts to a value of the environment's space; text that was left out is empty."""
        return self._tree(self._original, (), parts) if self._is_composed else parts[self._name]

    def _name_of(self, path: tuple[Any, ...]) -> str:
        """Return the name of the leaf at a path of keys and places."""
        joined = SEPARATOR.join(map(str, path))
        if isinstance(self._original, spaces.Tuple):
            return f"{self._name}_{joined}"
        return joined or self._name

    def _tree(self, space: spaces.Space[Any], path: tuple[Any, ...], parts: Mapping[str, Any]) -> Any:
        """Build a value of the space at a path from its leaves."""
        if isinstance(space, spaces.Dict):
            return {key: self._tree(child, (*path, key), parts) for key, child in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            children = enumerate(space.spaces)
            return tuple(self._tree(child, (*path, place), parts) for place, child in children)
        name = self._name_of(path)
        return parts[name] if name in self._paths else ""


def _leaves(space: spaces.Space[Any], path: tuple[Any, ...]) -> dict[tuple[Any, ...], spaces.Space[Any]]:
    """Return the leaves of a space by their path of keys, which need not be strings, and places."""
    children: list[tuple[Any, spaces.Space[Any]]]
    if isinstance(space, spaces.Dict):
        children = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        children = list(enumerate(space.spaces))
    else:
        return {path: space}
    leaves: dict[tuple[Any, ...], spaces.Space[Any]] = {}
    for key, child in children:
        leaves |= _leaves(child, (*path, key))
    return leaves
