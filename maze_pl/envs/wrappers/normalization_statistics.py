"""Functions that estimate, exchange and save the statistics of observations."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers.observation_normalization_strategy import Statistics
from maze_pl.envs.wrappers.observation_normalization_wrapper import (
    ObservationNormalizationWrapper,
    normalizers_of,
)


def estimate_observation_normalization_statistics(env: StructuredEnv, n_samples: int, seed: int = 0) -> None:
    """Estimate the missing statistics of every `ObservationNormalizationWrapper` of an environment.

    Known statistics stay unchanged.

    Args:
        env: The environment, with all its wrappers.
        n_samples: Number of observations to estimate from.
        seed: Determines the episodes and the actions.

    Raises:
        ValueError: No observations are normalised in this environment.
    """
    if not normalizers_of(env):
        raise ValueError("the environment has no ObservationNormalizationWrapper around it")
    cast(Wrapper, env).estimate(n_samples, seed)


def obtain_normalization_statistics(env: StructuredEnv, n_samples: int, seed: int = 0) -> dict[str, Statistics]:
    """Estimate missing statistics, and return all that are known.

    The estimation is that of `estimate_observation_normalization_statistics`. The environment
    itself uses the statistics from then on; pass them to others by `set_normalization_statistics`
    or `make_normalized_env_factory`.

    Args:
        env: The environment, with all its wrappers.
        n_samples: Number of observations to estimate from.
        seed: Determines the episodes and the actions.

    Returns:
        Observation -> statistic -> number or array.

    Raises:
        ValueError: No observations are normalised in this environment, or some are normalised
            twice.
    """
    estimate_observation_normalization_statistics(env, n_samples, seed)
    statistics: dict[str, Statistics] = {}
    for wrapper in normalizers_of(env):
        known = wrapper.get_normalization_statistics()
        if twice := statistics.keys() & known.keys():
            raise ValueError(f"observations {sorted(twice)} are normalised twice; exclude them in one of the wrappers")
        statistics |= known
    return statistics


def make_normalized_env_factory(
    env_factory: Callable[[], StructuredEnv],
    normalization_statistics: Mapping[str, Mapping[str, Any]],
) -> Callable[[], StructuredEnv]:
    """Make a factory of environments that use these statistics.

    Args:
        env_factory: Factory of environments with an `ObservationNormalizationWrapper`.
        normalization_statistics: Observation -> statistic -> number or array.
    """

    def make() -> StructuredEnv:
        env = env_factory()
        cast(ObservationNormalizationWrapper, env).set_normalization_statistics(normalization_statistics)
        return env

    return make


def load_statistics(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read the statistics that `dump_statistics` wrote, for `set_normalization_statistics`."""
    return cast(dict[str, dict[str, Any]], json.loads(Path(path).read_text(encoding="utf-8")))
