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
    """

    name: str
    exclude: frozenset[str] = frozenset()
    is_running: bool = False


def normalizers_in(wrappers: Sequence[Callable[..., Any]] | None) -> list[Normalizer]:
    """Return the wrappers that normalise observations, the innermost first.

    Args:
        wrappers: Callables that wrap an environment; functions, which do not tell what they make,
            are left out.

    Example:
        >>> from maze_pl.envs.wrappers import ObservationNormalizationWrapper, TimeLimitWrapper
        >>> normalizers_in([TimeLimitWrapper, ObservationNormalizationWrapper])
        [Normalizer(name='ObservationNormalizationWrapper', exclude=frozenset(), is_running=False)]
    """
    found = []
    for wrapper in wrappers or ():
        kind = class_made_by(wrapper)
        if kind is not None and issubclass(kind, ObservationNormalizationWrapper):
            is_running = issubclass(kind, RunningObservationNormalizationWrapper)
            found.append(Normalizer(kind.__name__, frozenset(_excluded(wrapper)), is_running))
    return found


def _excluded(wrapper: Any) -> Sequence[str]:
    """Return the observations that a callable tells its wrapper to leave unchanged."""
    while isinstance(wrapper, partial):
        if "exclude" in wrapper.keywords:
            return wrapper.keywords["exclude"] or ()
        wrapper = wrapper.func
    arguments = wrapper.init_args if isinstance(wrapper, Factory) else {}
    return arguments.get("exclude") or ()


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
    is_left = _is_left_by_running(parts)
    names = []
    for normalizer in normalizers:
        if name not in normalizer.exclude and not (normalizer.is_running and is_left):
            names.append(normalizer.name)
    return f"after {' and '.join(names)}" if names else None


def _is_left_by_running(parts: Sequence[Any]) -> bool:
    """True for Boxes of an observation that running statistics leave unchanged."""
    if any(part.dtype == np.uint8 or len(part.shape) > 2 for part in parts):
        return True
    if not all(are_alike(parts[0], part) for part in parts):
        return True
    return all(np.all(part.low >= 0) and np.all(part.high <= 1) for part in parts)
