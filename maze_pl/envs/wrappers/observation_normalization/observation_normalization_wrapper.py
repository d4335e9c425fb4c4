"""Normalises observations by statistics that are estimated once, before training, and kept with the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.structured_env import Array, Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper, Wrapper, wrappers_of
from maze_pl.envs.wrappers.observation_normalization.estimation import (
    dump_statistics,
    import_object,
    sample_episodes,
)
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_strategy import (
    ObservationNormalizationStrategy,
    Statistics,
)

if TYPE_CHECKING:
    from maze_pl.core.policy import Policy

DEFAULT_STRATEGY = "maze_pl.envs.wrappers.MeanZeroStdOneObservationNormalizationStrategy"
MANUAL_ENTRIES = ("strategy", "strategy_config", "statistics")


class ObservationNormalizationWrapper(ObservationWrapper):
    """Normalises each observation by a strategy of its own.

    Observations that are no `Box` and those that serve as action masks are left as they are. An observation that
    several sub-steps have is normalised by the same statistics in all of them. Before the first episode, statistics
    that are not given must be estimated (`estimate` or `obtain_normalization_statistics`), loaded or set.

    Args:
        env: The environment to wrap.
        default_strategy: Class path, or class, of the strategy of observations without one in `manual_config`.
        default_strategy_config: Its further arguments, such as `clip_range: [-3, 3]` and `axis: 0`.
        default_statistics: Its statistics, such as `{min: 0, max: 255}`; estimated if None.
        statistics_dump: JSON file that estimated statistics are written to.
        sampling_policy: What acts while statistics are estimated: a policy, or what makes one of the action spaces and
            the masks of all sub-steps, such as the class `RandomPolicy` or its class path. At random if None.
        exclude: Observations that are not normalised.
        manual_config: Observation -> its own `strategy`, `strategy_config` and `statistics`, each optional.

    Raises:
        TypeError: An observation that is to be normalised is no `Box`.
        ValueError: An observation or an entry of the configuration is unknown, or settings contradict each other.
    """

    def __init__(
        self,
        env: StructuredEnv,
        default_strategy: str | type[ObservationNormalizationStrategy] = DEFAULT_STRATEGY,
        default_strategy_config: dict[str, Any] | None = None,
        default_statistics: dict[str, Any] | None = None,
        statistics_dump: str | None = None,
        sampling_policy: str | Policy | Callable[..., Policy] | None = None,
        exclude: Sequence[str] | None = None,
        manual_config: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(env)
        self.statistics_dump = statistics_dump
        self.sampling_policy = sampling_policy
        manual_config, excluded = manual_config or {}, set(exclude or [])
        masks = {name for step_masks in env.action_masks_dict.values() for name in step_masks.values()}
        all_spaces = _spaces_by_name(env.observation_spaces_dict)
        if unknown := (excluded | set(manual_config)) - set(all_spaces):
            raise ValueError(f"there are no observations {sorted(unknown)}; there are {sorted(all_spaces)}")
        if both := (excluded | masks) & set(manual_config):
            raise ValueError(f"{sorted(both)} are in manual_config, but are excluded or serve as action masks")
        defaults: dict[str, Any] = {
            "strategy": default_strategy,
            "strategy_config": default_strategy_config,
            "statistics": default_statistics,
        }
        self._strategies: dict[str, ObservationNormalizationStrategy] = {}
        self._given: set[str] = set()  # observations whose statistics the configuration states
        for name, space in all_spaces.items():
            if name in masks or name in excluded or not (isinstance(space, spaces.Box) or name in manual_config):
                continue
            settings = defaults if name not in manual_config else _manual_settings(name, manual_config[name], defaults)
            self._strategies[name] = _make_strategy(name, space, settings)
            if settings["statistics"] is not None:
                self._strategies[name].set_normalization_stats(settings["statistics"])
                self._given.add(name)
        self._spaces = {
            key: spaces.Dict(
                {
                    name: self._strategies[name].normalized_space() if name in self._strategies else part
                    for name, part in space.spaces.items()
                }
            )
            for key, space in env.observation_spaces_dict.items()
        }
        self._samples: dict[str, list[Array]] | None = None  # filled while statistics are estimated

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Spaces of the normalised observations."""
        return self._spaces

    def observation(self, observation: Observation) -> Observation:
        """Normalise what is to be normalised.

        Raises:
            RuntimeError: Statistics have not been estimated yet.
        """
        if self._samples is not None:
            for name in self._strategies.keys() & observation.keys():
                self._samples[name].append(observation[name].copy())
            return observation
        normalized = dict(observation)
        for name, strategy in self._strategies.items():
            if name in normalized:
                if not strategy.statistics:
                    raise RuntimeError(
                        f"there are no statistics to normalise observation {name!r}: call "
                        "obtain_normalization_statistics(env, n_samples) first, pass its result to "
                        "set_normalization_statistics, or give statistics in the configuration"
                    )
                normalized[name] = strategy.normalize(normalized[name])
        return normalized

    @property
    def missing_statistics(self) -> list[str]:
        """Observations whose statistics are not known yet."""
        return [name for name, strategy in self._strategies.items() if not strategy.is_initialized]

    def estimate_within(self, env: Wrapper, n_samples: int, seed: int) -> None:
        """Estimate the statistics that are missing from observations of episodes of the whole stack.

        Raises:
            ValueError: An observation did not occur.
        """
        if not self.missing_statistics:
            return
        self._samples = {name: [] for name in self._strategies}
        try:
            sample_episodes(env, n_samples, seed, self.sampling_policy)
            samples = self._samples
        finally:
            self._samples = None
        if absent := [name for name in self.missing_statistics if not samples[name]]:
            raise ValueError(
                f"observations {absent} did not occur in {n_samples} acts; sample more, use a sampling_policy that "
                "gets there, or give their statistics in manual_config"
            )
        for name in self.missing_statistics:
            observations = np.stack(samples[name]).astype(np.float64)
            self._strategies[name].set_normalization_stats(self._strategies[name].estimate_stats(observations))
        if self.statistics_dump is not None:
            dump_statistics(self.get_normalization_statistics(), self.statistics_dump)

    def get_normalization_statistics(self) -> dict[str, Statistics]:
        """Observation -> statistic -> number or array, of the observations for which they are known."""
        return {
            name: strategy.get_normalization_stats()
            for name, strategy in self._strategies.items()
            if strategy.is_initialized
        }

    def set_normalization_statistics(self, statistics: Mapping[str, Mapping[str, Any]]) -> None:
        """Use statistics that were obtained elsewhere.

        Args:
            statistics: Observation -> statistic -> number or array.

        Raises:
            ValueError: One of the observations is not normalised here, or its statistics do not fit.
        """
        if unknown := set(statistics) - set(self._strategies):
            raise ValueError(f"observations {sorted(unknown)} are not normalised; those are {list(self._strategies)}")
        for name, values in statistics.items():
            self._strategies[name].set_normalization_stats(values)

    def state_dict(self) -> dict[str, Any]:
        """The estimated statistics; those that the configuration states stay with the configuration."""
        known = self.get_normalization_statistics()
        return {name: values for name, values in known.items() if name not in self._given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Use statistics that were estimated before."""
        self.set_normalization_statistics({name: values for name, values in state.items() if name not in self._given})

    def shared_state(self) -> dict[str, Any]:
        """The estimated statistics, which are the same for all copies."""
        return self.state_dict()

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Use statistics that were estimated by another copy."""
        self.load_state_dict(state)


def obtain_normalization_statistics(env: StructuredEnv, n_samples: int, seed: int = 0) -> dict[str, Statistics]:
    """Estimate the statistics that an environment's `ObservationNormalizationWrapper` needs.

    The environment's own wrapper uses them from then on; other environments get them by
    `set_normalization_statistics`. Statistics that are known already stay.

    Args:
        env: The environment, with all its wrappers.
        n_samples: Number of observations to estimate from.
        seed: Determines the episodes and the actions.

    Returns:
        Observation -> statistic -> number or array.

    Raises:
        ValueError: No observations are normalised in this environment.
    """
    wrappers = [wrapper for wrapper in wrappers_of(env) if issubclass(type(wrapper), ObservationNormalizationWrapper)]
    if not wrappers:
        raise ValueError("the environment has no ObservationNormalizationWrapper around it")
    cast(Wrapper, env).estimate(n_samples, seed)
    statistics: dict[str, Statistics] = {}
    for wrapper in wrappers:
        statistics |= cast(ObservationNormalizationWrapper, wrapper).get_normalization_statistics()
    return statistics


def _spaces_by_name(spaces_dict: Mapping[StepKey, spaces.Dict]) -> dict[str, spaces.Space[Any]]:
    """Observation -> its space, which must be the same in all sub-steps."""
    by_name: dict[str, spaces.Space[Any]] = {}
    for key, space in spaces_dict.items():
        for name, part in space.spaces.items():
            known = by_name.setdefault(name, part)
            if type(known) is not type(part) or known.shape != part.shape:
                raise ValueError(
                    f"observation {name!r} is {part} in sub-step {key!r} and {known} in another one; observations of "
                    "the same name are normalised together: rename one of them"
                )
    return by_name


def _manual_settings(name: str, manual: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := set(manual) - set(MANUAL_ENTRIES):
        raise ValueError(f"manual_config of {name!r} has the unknown entries {sorted(unknown)}; use {MANUAL_ENTRIES}")
    if "strategy" not in manual:
        return {**defaults, **manual}
    return {"strategy_config": None, "statistics": None, **manual}  # the defaults are another strategy's


def _make_strategy(
    name: str, space: spaces.Space[Any], settings: Mapping[str, Any]
) -> ObservationNormalizationStrategy:
    if not isinstance(space, spaces.Box):
        raise TypeError(f"observation {name!r} is {space}; only Box observations can be normalised")
    strategy = settings["strategy"]
    if isinstance(strategy, str):
        strategy = import_object(strategy)
    if not issubclass(strategy, ObservationNormalizationStrategy):
        raise TypeError(f"{strategy} of observation {name!r} is not an ObservationNormalizationStrategy")
    made: ObservationNormalizationStrategy = strategy(space, **(settings["strategy_config"] or {}))
    return made
