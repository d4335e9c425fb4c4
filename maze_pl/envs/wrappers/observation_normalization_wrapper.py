"""Normalisation of observations by statistics that are estimated once and kept in checkpoints."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_class
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.observation_normalization_array_wrapper import ObservationNormalizationArrayWrapper
from maze_pl.envs.contract import EnvContractError, name_of
from maze_pl.envs.no_tensor_form_error import NoTensorFormError
from maze_pl.envs.structured_env import Array, Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper, Wrapper, wrappers_of
from maze_pl.envs.wrappers.observation_normalization_strategy import (
    ObservationNormalizationStrategy,
    Statistics,
)
from maze_pl.envs.wrappers.sample_episodes import sample_episodes
from maze_pl.system.atomic_files import output_folder, write_file

if TYPE_CHECKING:
    from maze_pl.core.policy import Policy
    from maze_pl.envs.tensors.tensor_env import TensorEnv

DEFAULT_STRATEGY: Final = "maze_pl.envs.wrappers.MeanZeroStdOneObservationNormalizationStrategy"
MANUAL_ENTRIES: Final = ("strategy", "strategy_config", "statistics")


class ObservationNormalizationWrapper(ObservationWrapper):
    """Normalises each observation by a separate strategy.

    Observations that are not a `Box` or serve as action masks are left unchanged. An observation of
    several sub-steps is normalised by the same statistics in all of them. Before the first episode,
    statistics that are not given must be estimated (`estimate` or
    `obtain_normalization_statistics`), loaded or set.

    Args:
        env: The environment to wrap.
        default_strategy: Class, or class path, of the strategy of observations without one in
            `manual_config`.
        default_strategy_config: Its further arguments, such as `clip_range: [-3, 3]` and `axis: 0`.
        default_statistics: Its statistics, such as `{min: 0, max: 255}`; estimated if None.
        statistics_dump: JSON file that estimated statistics are written to, relative to the run
            directory.
        sampling_policy: Policy that acts while statistics are estimated; or a class or function that
            makes it from any of `action_spaces_dict`, `masks` (by sub-step) and `env`; or the class
            path of either. Random actions if None.
        exclude: Observations that are not normalised.
        manual_config: Observation -> its `strategy`, `strategy_config` and `statistics`, each
            optional.

    Attributes:
        strategies: Observation -> its strategy.

    Raises:
        TypeError: An observation that is to be normalised is not a `Box`.
        ValueError: An observation or an entry of the configuration is unknown, settings contradict
            each other, or another wrapper of this kind writes to the same file.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import obtain_normalization_statistics
        >>> env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), default_strategy_config={"axis": 0})
        >>> statistics = obtain_normalization_statistics(env, n_samples=100)
        >>> statistics["observation"]["mean"].shape
        (4,)
        >>> observation, _ = env.reset(seed=0)
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
        own_name = type(self).__name__
        self.statistics_dump = statistics_dump
        used_files = {wrapper.statistics_dump for wrapper in normalizers_of(env)}
        if statistics_dump is not None and statistics_dump in used_files:
            raise ValueError(f"{own_name}: an inner wrapper already writes to {statistics_dump=}; name another file")
        self.sampling_policy = sampling_policy
        manual_config, excluded = manual_config or {}, set(exclude or [])
        masks = {name for step_masks in env.action_masks_dict.values() for name in step_masks.values()}
        all_spaces = _spaces_by_name(env.observation_spaces_dict, excluded, own_name)
        if unknown := (excluded | set(manual_config)) - set(all_spaces):
            raise ValueError(f"{own_name}: there are no observations {sorted(unknown)}; there are {sorted(all_spaces)}")
        if both := (excluded | masks) & set(manual_config):
            raise ValueError(
                f"{own_name}: {sorted(both)} are in manual_config, but are excluded or serve as action masks"
            )
        defaults = {
            "strategy": default_strategy,
            "strategy_config": default_strategy_config,
            "statistics": default_statistics,
        }
        self.strategies: dict[str, ObservationNormalizationStrategy] = {}
        self._given: set[str] = set()  # observations whose statistics the configuration states
        for name, space in all_spaces.items():
            is_usual = isinstance(space, spaces.Box) and space.low.size > 0
            if name in masks | excluded or not (is_usual or name in manual_config):
                continue
            with self._named(name):
                settings = _settings_of(manual_config.get(name, {}), defaults)
                self.strategies[name] = _strategy_of(space, settings)
            if settings["statistics"] is not None:
                self._given.add(name)
        normalized = {name: strategy.normalized_space() for name, strategy in self.strategies.items()}
        self._observation_spaces = {}
        for key, own in env.observation_spaces_dict.items():
            parts = {name: normalized.get(name, part) for name, part in own.spaces.items()}
            self._observation_spaces[key] = spaces.Dict(parts)
        self._samples: dict[str, list[Array]] | None = None  # filled while statistics are estimated

    def observation(self, observation: Observation) -> Observation:
        """Normalise all observations that have a strategy.

        Raises:
            RuntimeError: Statistics have not been estimated yet.
        """
        if self._samples is not None:
            for name in self.strategies.keys() & observation.keys():
                self._samples[name].append(observation[name].copy())
            return observation
        return self.normalized(observation, False)

    def normalized(self, observation: Mapping[str, Array], is_many: bool) -> dict[str, Array]:
        """Normalise all observations that have a strategy.

        Args:
            observation: Name -> an observation, or [n, ...] many of them.
            is_many: Whether they are many.

        Raises:
            RuntimeError: Statistics have not been estimated yet.
        """
        normalized = dict(observation)
        for name, strategy in self.strategies.items():
            if name in observation:
                if not strategy.statistics:
                    raise RuntimeError(f"{name!r} has no statistics: call obtain_normalization_statistics, or set them")
                normalize = strategy.normalize_many if is_many else strategy.normalize
                normalized[name] = normalize(observation[name])
        return normalized

    @property
    def missing_statistics(self) -> list[str]:
        """Observations whose statistics are not known yet."""
        return [name for name, strategy in self.strategies.items() if not strategy.statistics]

    @property
    def statistics_before_training(self) -> list[str]:
        """Observations whose statistics follow training, but are still the first ones of the configuration."""
        return []

    def estimate_within(self, env: Wrapper, n_samples: int, seed: int) -> None:
        """Estimate missing statistics from episodes of the whole stack of wrappers.

        Raises:
            ValueError: An observation did not occur, or has another shape than its space.
        """
        if not self.missing_statistics:
            return
        # This wrapper and outer ones:
        waiting = [wrapper for wrapper in normalizers_of(env) if wrapper.missing_statistics]
        samples: dict[str, list[Array]] = defaultdict(list)
        try:
            for wrapper in waiting:
                wrapper._samples = samples if wrapper is self else defaultdict(list)
            sample_episodes(env, n_samples, seed, self.sampling_policy)
        finally:
            for wrapper in waiting:
                wrapper._samples = None
        if absent := [name for name in self.missing_statistics if not samples[name]]:
            self._set_absent(absent, n_samples)
        for name in self.missing_statistics:
            shape = self.strategies[name].observation_space.shape
            if others := [sample.shape for sample in samples[name] if sample.shape != shape]:
                came = f"an observation {name!r} of {name_of(self)} has shape {others[0]}"
                raise EnvContractError(f"{came}; its space has {shape}")
            observations = np.stack(samples[name]).astype(np.float64)
            if n_wrong := sum(not np.isfinite(sample).all() for sample in observations):
                wrong = f"{name!r}: {n_wrong} of {len(observations)} samples have values that are not finite"
                raise ValueError(f"{type(self).__name__}: {wrong}; correct the environment, or exclude the observation")
            # outside of `_named`: errors of a user's strategy pass unchanged
            self.set_normalization_statistics({name: self.strategies[name].estimate_stats(observations)})
        if self.statistics_dump is not None:
            dump_statistics(self.get_normalization_statistics(), output_folder(self.statistics_dump))

    def _set_absent(self, names: Sequence[str], n_samples: int) -> None:
        """Handle observations that did not occur in the sampled acts, by raising ValueError."""
        hint = "sample more, use a sampling_policy that gets there, or give their statistics"
        raise ValueError(f"{type(self).__name__}: observations {names} did not occur in {n_samples} acts; {hint}")

    def get_normalization_statistics(self) -> dict[str, Statistics]:
        """Observation -> statistic -> number or array, for observations with known statistics."""
        return {name: one.get_normalization_stats() for name, one in self.strategies.items() if one.statistics}

    def set_normalization_statistics(self, statistics: Mapping[str, Mapping[str, Any]]) -> None:
        """Use statistics obtained elsewhere; pass unknown ones on to inner wrappers of this kind.

        Args:
            statistics: Observation -> statistic -> number or array.

        Raises:
            ValueError: An observation is not normalised, or its statistics do not fit.
        """
        others = dict(statistics)
        for name in self.strategies.keys() & statistics.keys():
            with self._named(name):
                self.strategies[name].set_normalization_stats(others.pop(name))
        if others and (inner := normalizers_of(self.env)):
            inner[0].set_normalization_statistics(others)
        elif others:
            raise ValueError(f"{type(self).__name__}: {sorted(others)} are not normalised; {list(self.strategies)} are")

    @property
    def configured_statistics(self) -> dict[str, Statistics]:
        """Observation -> statistic -> number or array, for statistics that the configuration states."""
        known = self.get_normalization_statistics()
        return {name: values for name, values in known.items() if name in self._given}

    def state_dict(self) -> dict[str, Any]:
        """Estimated statistics, without those that the configuration states."""
        known = self.get_normalization_statistics()
        return {name: values for name, values in known.items() if name not in self._given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Use statistics that were estimated before."""
        self.set_normalization_statistics({name: values for name, values in state.items() if name not in self._given})

    shared_state = state_dict  # the same for all copies

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Use statistics that were estimated by another copy.

        Raises:
            ValueError: Statistics that this wrapper needs are missing.
        """
        self.load_state_dict(state)
        if missing := self.missing_statistics:
            raise ValueError(
                f"{type(self).__name__}: {missing} are not among the statistics that were estimated before"
            )

    @contextmanager
    def _named(self, observation: str) -> Iterator[None]:
        """Name the wrapper and the observation in errors that are raised inside."""
        try:
            yield
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{type(self).__name__}: observation {observation!r}: {error}") from error

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return ObservationNormalizationArrayWrapper(env, self)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the form for environments in tensors.

        Raises:
            NoTensorFormError: A strategy has operations of NumPy that are not known there.
        """
        from maze_pl.envs.tensors.observation_normalization_tensor_wrapper import ObservationNormalizationTensorWrapper

        try:
            return ObservationNormalizationTensorWrapper(env, self)
        except TypeError as error:  # of strategies
            raise NoTensorFormError(str(error)) from error


def dump_statistics(statistics: Mapping[str, Mapping[str, Any]], path: str | Path) -> None:
    """Write statistics to a JSON file atomically: it is either complete or unchanged.

    Args:
        statistics: Observation -> statistic -> number or array.
        path: The file; its directory is created if needed.
    """
    write_file(path, json.dumps(statistics, default=lambda value: np.asarray(value).tolist()).encode())


def normalizers_of(env: StructuredEnv) -> list[ObservationNormalizationWrapper]:
    """Wrappers of this kind around an environment, outermost first."""
    found = []
    for wrapper in wrappers_of(env):
        if issubclass(type(wrapper), ObservationNormalizationWrapper):
            found.append(cast(ObservationNormalizationWrapper, wrapper))
    return found


def configured_statistics_of(stack: Mapping[str, Wrapper]) -> dict[str, dict[str, Statistics]]:
    """Return the statistics that the configuration of wrappers states, by wrapper and observation.

    Args:
        stack: Result of `wrapper_stack`.
    """
    configured = {}
    for name, wrapper in stack.items():
        if issubclass(type(wrapper), ObservationNormalizationWrapper):
            configured[name] = cast(ObservationNormalizationWrapper, wrapper).configured_statistics
    return {name: statistics for name, statistics in configured.items() if statistics}


def _settings_of(manual: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an observation, `MANUAL_ENTRIES` -> value, from its configuration and the defaults.

    Raises:
        ValueError: The configuration has an unknown entry.
    """
    if wrong := set(manual) - set(MANUAL_ENTRIES):
        raise ValueError(f"unknown entries {sorted(wrong)} in manual_config, not {MANUAL_ENTRIES}")
    if "strategy" in manual:  # the default arguments are those of another strategy
        return {**dict.fromkeys(MANUAL_ENTRIES), **manual}
    return {**defaults, **manual}


def _strategy_of(space: spaces.Space[Any], settings: Mapping[str, Any]) -> ObservationNormalizationStrategy:
    """Make the strategy of an observation, with its statistics if they are given.

    Raises:
        TypeError: The space is not a Box.
    """
    if not isinstance(space, spaces.Box):
        raise TypeError(f"only Box observations can be normalised, not {space}")
    kind = import_class(settings["strategy"], ObservationNormalizationStrategy)
    strategy: ObservationNormalizationStrategy = kind(space, **(settings["strategy_config"] or {}))
    if settings["statistics"] is not None:
        strategy.set_normalization_stats(settings["statistics"])
    return strategy


def _spaces_by_name(
    spaces_dict: Mapping[StepKey, spaces.Dict], excluded: Set[str], owner: str
) -> dict[str, spaces.Space[Any]]:
    """Observation -> its space, which must be the same in all sub-steps unless it is excluded."""
    by_name: dict[str, spaces.Space[Any]] = {}
    for key, space in spaces_dict.items():
        for name, part in space.spaces.items():
            known = by_name.setdefault(name, part)
            if name not in excluded and not are_alike(known, part):
                raise ValueError(f"{owner}: {name!r} is {part} in sub-step {key!r}, {known} in another one; rename one")
    return by_name


def are_alike(one: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
    """True for spaces of one class and shape, whose observations may have the same statistics."""
    return type(one) is type(other) and one.shape == other.shape
