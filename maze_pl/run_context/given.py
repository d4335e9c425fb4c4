"""Stand-ins for objects from Python in configurations, one for each type that options have.

They are never called: `maze_pl.config.given_objects` puts the object in their place.
"""

from typing import NoReturn

from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger

from maze_pl.collect.engines import Engine
from maze_pl.config.factories import Factory
from maze_pl.config.given_objects import missing
from maze_pl.config.search_path import ConfigurationError
from maze_pl.datasets import InMemoryDataset
from maze_pl.perception import CustomModelComposer, ProbabilisticPolicyComposer
from maze_pl.perception.models.composers import CriticComposerInterface


class _GivenCallback(Callback):
    """Type of this package, which needs no trust, for callbacks of any package."""


class _GivenLogger(Logger):
    """Type of this package, which needs no trust, for loggers of any package."""


def anything(name: str, description: str) -> Factory:
    """Stand for a callable, or for any other object in an option that takes callables."""
    _refuse(name, description)


def engine(name: str, description: str) -> Engine:
    """Stand for an engine."""
    _refuse(name, description)


def dataset(name: str, description: str) -> InMemoryDataset:
    """Stand for a data set."""
    _refuse(name, description)


def networks(name: str, description: str) -> CustomModelComposer:
    """Stand for a composer of policy and critic."""
    _refuse(name, description)


def policy(name: str, description: str) -> ProbabilisticPolicyComposer:
    """Stand for a composer of policies."""
    _refuse(name, description)


def critic(name: str, description: str) -> CriticComposerInterface:
    """Stand for a composer of critics."""
    _refuse(name, description)


def callback(name: str, description: str) -> _GivenCallback:
    """Stand for a callback."""
    _refuse(name, description)


def logger(name: str, description: str) -> _GivenLogger:
    """Stand for a logger."""
    _refuse(name, description)


def _refuse(name: str, description: str) -> NoReturn:
    raise ConfigurationError(missing({name: description}))
