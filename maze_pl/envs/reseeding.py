"""New random numbers for environments of other libraries, of which search makes copies."""

import random
from collections.abc import Iterable
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.seeding import derive_seed

_KINDS: Final = (np.random.Generator, np.random.RandomState, random.Random, spaces.Space)


def reseed_layers(layers: Iterable[Any], seed: int) -> None:
    """Make the rest of a running episode depend on a seed, as far as it is random.

    An environment or a wrapper that has a method `reseed(seed)` does so itself. In the others, the
    generators of NumPy and of the module `random` start again, and so do those of spaces, from
    which some environments sample. They are found as attributes, and in lists, tuples and dicts
    that are attributes. They are changed in place, since other objects may hold them, too.

    Args:
        layers: The environment and its wrappers, in any order.
        seed: The seed.
    """
    for place, layer in enumerate(layers):
        if callable(getattr(type(layer), "reseed", None)):  # not that of an environment inside
            layer.reseed(seed)
            continue
        attributes = vars(layer)
        for name, value in list(attributes.items()):
            for member, generator in enumerate(_members(value)):
                if isinstance(generator, _KINDS):
                    _restart(generator, derive_seed(seed, place, name, member))
        is_gymnasium = isinstance(layer, gymnasium.Env)  # makes its generator on first access
        main = layer.np_random if is_gymnasium else attributes.get("np_random")
        if isinstance(main, _KINDS):
            _restart(main, seed)


def _members(value: Any) -> Iterable[Any]:
    """Return the values that an attribute holds: the attribute, or the members of a collection."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list | tuple) else [value]


def _restart(generator: Any, seed: int) -> None:
    """Start a generator, or that of a space, again."""
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state
    elif isinstance(generator, np.random.RandomState):
        kind = generator.get_state(legacy=False)["bit_generator"]
        generator.set_state(getattr(np.random, kind)(seed).state)
    else:
        generator.seed(seed)
