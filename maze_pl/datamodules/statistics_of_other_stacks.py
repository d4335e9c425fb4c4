"""Wrapper statistics of training in other wrappers, such as those of an evaluator or of a comparison."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from maze_pl.datamodules.environment_maker import Description
from maze_pl.envs.wrapper import ObservationWrapper

_MOST_CHARACTERS: Final = 80  # of statistics in a message


class DescribedWrappers(Protocol):
    """The wrappers of an environment by name; a `Description` has these attributes, too."""

    @property
    def wrappers(self) -> Mapping[str, type]:
        """Their classes."""

    @property
    def with_statistics(self) -> Sequence[str]:
        """Names of those that have statistics, or estimate some."""

    @property
    def configured_statistics(self) -> Mapping[str, Mapping[str, Any]]:
        """Statistics that their options state."""


class Wrappers(NamedTuple):
    """Described wrappers without an environment."""

    wrappers: Mapping[str, type]
    with_statistics: Sequence[str]
    configured_statistics: Mapping[str, Mapping[str, Any]]


def require_known_statistics(owner: str, training: DescribedWrappers, own: DescribedWrappers) -> None:
    """Refuse wrappers whose statistics are not those of training, and a missing normalisation of observations.

    Args:
        owner: What has the other wrappers, for messages.
        training: The wrappers of training.
        own: The other wrappers.

    Raises:
        ValueError: The policy would act on observations that mean something else than in training.
    """
    unknown = [wrapper for wrapper in own.with_statistics if wrapper not in training.with_statistics]
    if unknown:
        fault = f"{owner} has the wrappers {unknown}, whose statistics training does not have"
        known = f"there are {list(training.with_statistics)}"
        remedy = "leave them out, or use as many of each class as in the wrappers of training"
        raise ValueError(f"{fault} ({known}): {remedy}")
    for wrapper in (*training.with_statistics, *training.configured_statistics):
        if wrapper not in own.wrappers and issubclass(training.wrappers[wrapper], ObservationWrapper):
            fault = f"{owner} has no wrapper {wrapper}, with which the policy is trained"
            raise ValueError(f"{fault}: add it as in the wrappers of training, whose statistics it takes")
    for wrapper in {**training.configured_statistics, **own.configured_statistics}:
        found = _text(own.configured_statistics.get(wrapper))
        expected = _text(training.configured_statistics.get(wrapper))
        if found != expected:
            fault = f"{owner} has other configured statistics of the wrapper {wrapper} than training"
            both = f"{_shortened(found)} instead of {_shortened(expected)}"
            raise ValueError(f"{fault} ({both}): configure the same ones in both, or none")


def taken_statistics(own: Description, wrapper_statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of the wrappers that an environment has.

    Args:
        own: The environment.
        wrapper_statistics: State of each wrapper of training that has statistics, by name.
    """
    return {wrapper: state for wrapper, state in wrapper_statistics.items() if wrapper in own.wrappers}


def _shortened(text: str) -> str:
    """Return the beginning of a text, which may have the values of a whole image."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."


def _text(statistics: Mapping[str, Any] | None) -> str:
    """Return statistics as a text that is the same for equal numbers."""
    if statistics is None:
        return "missing"
    return json.dumps(statistics, default=lambda value: np.asarray(value).tolist(), sort_keys=True)
