"""Options of the exploration of Gaussian policies: the source of their standard deviations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TYPES = ("state_dependent", "state_independent", "gsde")
_STARTS = {"state_dependent": 0.0, "state_independent": 0.0, "gsde": -2.0}
_OF_GSDE = ("sample_freq", "learn_features")
_WHERE = "distribution_mapper_config: exploration"


@dataclass(frozen=True)
class Exploration:
    """Dependence of the standard deviations of a Gaussian head, and its options.

    Attributes:
        type: `state_dependent`: the network computes them. `state_independent`: one parameter for
            each component. `gsde`: generalised state-dependent exploration, see
            `maze_pl.agents.gaussian_exploration`.
        log_std_init: Initial log standard deviations: added to the outputs of the network, or
            initial values of the parameters.
        log_std_bounds: Limits of log standard deviations, with gsde of the entries of the noise
            matrix; None for no limits.
        sample_freq: Acts of an actor after which gsde draws a new noise matrix; None to draw one
            for each episode.
        learn_features: Whether the variances of gsde train the layers below the head.
    """

    type: str
    log_std_init: float
    log_std_bounds: tuple[float, float] | None = None
    sample_freq: int | None = None
    learn_features: bool = False

    @classmethod
    def parse(cls, options: Any) -> Exploration:
        """Read the options of a head from a configuration.

        Args:
            options: Names and values of the attributes; all but `type` may be omitted.

        Raises:
            ValueError: An option is unknown, missing or out of range.
        """
        if not isinstance(options, Mapping) or options.get("type") not in TYPES:
            raise ValueError(f"{_WHERE}: {options!r} needs a type, one of {list(TYPES)}")
        known = ["type", "log_std_init", "log_std_bounds"]
        if options["type"] == "gsde":
            known += _OF_GSDE
        unknown = sorted(options.keys() - set(known))
        if unknown:
            raise ValueError(f"{_WHERE}: type {options['type']} has no option {unknown[0]!r}; its options are {known}")
        start = _number("log_std_init", options.get("log_std_init", _STARTS[options["type"]]))
        bounds = _bounds(options.get("log_std_bounds"))
        if bounds is not None and not bounds[0] <= start <= bounds[1]:
            raise ValueError(f"{_WHERE}: log_std_init={start:g} must be within log_std_bounds={list(bounds)}")
        sample_freq = options.get("sample_freq", 1 if options["type"] == "gsde" else None)
        is_count = isinstance(sample_freq, int) and not isinstance(sample_freq, bool) and sample_freq >= 1
        if sample_freq is not None and not is_count:
            needed = "a number of acts, at least 1, or null for one noise matrix per episode"
            raise ValueError(f"{_WHERE}: sample_freq={sample_freq!r} must be {needed}")
        learn_features = options.get("learn_features", False)
        if not isinstance(learn_features, bool):
            raise ValueError(f"{_WHERE}: learn_features={learn_features!r} must be true or false")
        return cls(options["type"], start, bounds, sample_freq, learn_features)


def _bounds(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise ValueError(f"{_WHERE}: log_std_bounds={given!r} must be two numbers, such as [-5.0, 2.0], or null")
    low = _number("log_std_bounds", given[0])
    high = _number("log_std_bounds", given[1])
    if not low < high:
        raise ValueError(f"{_WHERE}: log_std_bounds={given!r} must be in ascending order")
    return low, high


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{_WHERE}: {name}={value!r} must be a finite number")
    return float(value)
