"""Wrappers that normalise the observations of an episode, so that the view can name their units."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.config.factories import Factory
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    RunningObservationNormalizationWrapper,
)
from maze_pl.envs.wrappers.observation_normalization_wrapper import are_alike
from maze_pl.runs.recorders import class_made_by


class Normalizer(NamedTuple):
    """A wrapper that normalises observations.

    Attributes:
        name: Name of its class.
        exclude: Observations that it leaves unchanged.
        is_running: Whether it is a `RunningObservationNormalizationWrapper`, which leaves further
            observations unchanged.
        clip_range: Given bounds of what it normalises; None if there are none, or not two.
    """

    name: str
    exclude: frozenset[str] = frozenset()
    is_running: bool = False
    clip_range: tuple[float, float] | None = None


def normalizers_in(wrappers: Sequence[Callable[..., Any]] | None) -> list[Normalizer]:
    """Return the wrappers that normalise observations, the innermost first.

    Args:
        wrappers: Callables that wrap an environment; functions, which do not tell what they make,
            are left out.

    Example:
        >>> from maze_pl.envs.wrappers import ObservationNormalizationWrapper, TimeLimitWrapper
        >>> (found,) = normalizers_in([TimeLimitWrapper, ObservationNormalizationWrapper])
        >>> found.name
        'ObservationNormalizationWrapper'
    """
    found = []
    for wrapper in wrappers or ():
        kind = class_made_by(wrapper)
        if kind is not None and issubclass(kind, ObservationNormalizationWrapper):
            is_running = issubclass(kind, RunningObservationNormalizationWrapper)
            exclude = frozenset(_argument(wrapper, "exclude") or ())
            clip_range = _two_numbers(_argument(wrapper, "clip_range"))
            found.append(Normalizer(kind.__name__, exclude, is_running, clip_range))
    return found


def _argument(wrapper: Any, name: str) -> Any:
    """Return an argument that a callable passes to its wrapper; None if there is none."""
    while isinstance(wrapper, partial):
        if name in wrapper.keywords:
            return wrapper.keywords[name]
        wrapper = wrapper.func
    return wrapper.init_args.get(name) if isinstance(wrapper, Factory) else None


def _two_numbers(value: Any) -> tuple[float, float] | None:
    """Return a value that is a pair of numbers; None for any other."""
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    if not is_pair or not all(isinstance(end, int | float) for end in value):
        return None
    return value[0], value[1]


def normalizers_of(config: Any, trust: bool = False) -> list[Normalizer]:
    """Return the wrappers in the configuration of a rollout that normalise observations.

    Args:
        config: The configuration, as in the file of the rollout.
        trust: Whether classes of other packages may be imported; otherwise they are left out.

    Example:
        >>> path = "maze_pl.envs.wrappers.ObservationNormalizationWrapper"
        >>> wrapper = {"class_path": path, "init_args": {"exclude": ["goal"]}}
        >>> normalizers_of({"wrappers": [wrapper]})[0].exclude
        frozenset({'goal'})
    """
    wrappers = config.get("wrappers") if isinstance(config, Mapping) else None
    if not isinstance(wrappers, list):
        return []
    found: list[Normalizer] = []
    for wrapper in wrappers:
        node = wrapper if isinstance(wrapper, Mapping) else {"class_path": wrapper}
        name = node.get("class_path")
        if isinstance(name, str) and (trust or name.startswith("maze_pl.")):
            with suppress(ImportError):
                found += normalizers_in([Factory.of(node)])
    return found


def unit_of(name: str, parts: Sequence[Any], normalizers: Sequence[Normalizer]) -> str | None:
    """Return the unit of an observation, such as "after ObservationNormalizationWrapper".

    It is None for that of its space.

    Args:
        name: Name of the observation, which is not a mask.
        parts: Its recorded spaces in all sub-steps that have it.
        normalizers: The wrappers that normalise observations.
    """
    if not all(isinstance(part, spaces.Box) for part in parts):
        return None
    names = []
    for normalizer in normalizers:
        is_left = normalizer.is_running and _is_left_by_running(parts, normalizer.clip_range)
        if name not in normalizer.exclude and not is_left:
            names.append(normalizer.name)
    return f"after {' and '.join(names)}" if names else None


def _is_left_by_running(parts: Sequence[Any], clip_range: tuple[float, float] | None) -> bool:
    """True for Boxes of an observation that running statistics leave unchanged.

    Bounds within [0, 1] tell so, unless they are those that normalised values are clipped to.
    """
    if any(part.dtype == np.uint8 or len(part.shape) > 2 for part in parts):
        return True
    if not all(are_alike(parts[0], part) for part in parts):
        return True
    if clip_range is not None:
        low, high = np.asarray(clip_range, np.float32)
        if all(np.all(part.low == low) and np.all(part.high == high) for part in parts):
            return False
    return all(np.all(part.low >= 0) and np.all(part.high <= 1) for part in parts)
