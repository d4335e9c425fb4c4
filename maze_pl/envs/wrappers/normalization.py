"""Normalisation of observations by statistics that are estimated once and kept in checkpoints.

Statistics are estimated before training. The strategies come first; each of them normalises a
single observation.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_class, import_object
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import environment_action
from maze_pl.envs.structured_env import Array, Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper, Wrapper, wrappers_of
from maze_pl.system.atomic_files import output_folder, write_file

if TYPE_CHECKING:
    from maze_pl.core.policy import Policy

Range = Sequence[float | None]
Statistics = dict[str, Array]
RELATIVE_TOLERANCE = 1e-7
"""Spread, relative to the largest value, up to which values count as constant: float32 has no more digits."""
DEFAULT_STRATEGY = "maze_pl.envs.wrappers.MeanZeroStdOneObservationNormalizationStrategy"
PROGRESS_AFTER = 1.0
"""Seconds of estimation after which its progress is shown."""
_NAME = "ObservationNormalizationWrapper"
MANUAL_ENTRIES = ("strategy", "strategy_config", "statistics")


class ObservationNormalizationStrategy(ABC):
    """Normalises one observation by statistics that are given, or estimated from samples.

    Args:
        observation_space: Space of the observation.
        clip_range: Range that normalised values are clipped to; None for an end without a limit.
        axis: Axes of the stacked samples [N, ...] along which statistics are computed; they include
            0, the axis of the samples. `0` gives each element of the observation its own
            statistics, None gives all elements the same.

    Attributes:
        statistics: The statistics in float32, for use in `normalize_value`; empty until they are
            known.
    """

    statistics_names: ClassVar[tuple[str, ...]] = ()
    """Names of the statistics that the strategy needs; checked when they are set."""

    def __init__(
        self, observation_space: spaces.Box, clip_range: Range = (None, None), axis: int | Sequence[int] | None = None
    ) -> None:
        self.observation_space = observation_space
        ends = [far if end is None else end for end, far in zip(clip_range, (-np.inf, np.inf), strict=False)]
        if len(clip_range) != 2 or not ends[0] <= ends[1]:
            raise ValueError(f"clip_range={list(clip_range)} must be given as [lowest, highest]")
        self.clip_low, self.clip_high = np.float32(ends[0]), np.float32(ends[1])
        self.axis = None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        axes = range(len(observation_space.shape) + 1)
        if self.axis is not None and not {0} <= set(self.axis) <= set(axes):
            raise ValueError(f"axis={axis} must be of {list(axes)}, and include 0, the axis of the samples")
        self.statistics: Statistics = {}
        self._exact: Statistics = {}

    @abstractmethod
    def estimate_stats(self, observations: Array) -> Statistics:
        """Compute statistics, usually by `reduce`.

        Args:
            observations: [N, ...] samples in float64.
        """

    @abstractmethod
    def normalize_value(self, value: Array) -> Array:
        """Normalise an observation by `statistics`; clipping and the conversion to float32 follow."""

    def reduce(self, function: Callable[..., Array], observations: Array) -> Array:
        """Apply a function of NumPy, such as `np.mean`, along `axis`.

        Returns:
            An array that is broadcast against a single observation.
        """
        if self.axis is None:
            return np.asarray(function(observations))
        return np.asarray(function(observations, axis=self.axis, keepdims=True)[0])

    def get_normalization_stats(self) -> Statistics:
        """The statistics, as they were set."""
        return dict(self._exact)

    def set_normalization_stats(self, statistics: Mapping[str, Any]) -> None:
        """Use these statistics: numbers, or arrays that are broadcast against an observation.

        Raises:
            ValueError: Some are missing, unknown, of the wrong shape or not finite.
        """
        if self.statistics_names and set(statistics) != set(self.statistics_names):
            needed = list(self.statistics_names)
            raise ValueError(f"{type(self).__name__} needs the statistics {needed}, not {list(statistics)}")
        exact = {name: np.array(value, dtype=np.float64) for name, value in statistics.items()}
        with np.errstate(over="ignore", under="ignore"):
            single = {name: value.astype(np.float32) for name, value in exact.items()}
        shape = self.observation_space.shape
        for name, value in exact.items():
            sizes = zip(value.shape[::-1], shape[::-1], strict=False)  # as NumPy broadcasts
            if value.ndim > len(shape) or any(size not in (1, own) for size, own in sizes):
                raise ValueError(f"statistic {name!r} has shape {value.shape}, which does not fit observations {shape}")
            if not np.isfinite(single[name]).all():
                raise ValueError(f"statistic {name!r} is not finite: {value}")
        self.check_stats(single)
        self._exact, self.statistics = exact, single

    def check_stats(self, statistics: Statistics) -> None:
        """Raise ValueError if the statistics are unusable; by default, if they have no values."""
        if not all(value.size for value in statistics.values()) or not statistics:
            raise ValueError(f"{type(self).__name__} cannot normalise by {statistics}")

    def normalize(self, value: Array) -> Array:
        """The normalised observation, clipped, in float32."""
        value = np.maximum(self.normalize_value(value), self.clip_low)  # np.clip takes three times as long
        return np.asarray(np.minimum(value, self.clip_high), dtype=np.float32)

    def normalized_space(self) -> spaces.Box:
        """Space of normalised observations; it does not depend on the statistics."""
        return spaces.Box(self.clip_low, self.clip_high, self.observation_space.shape, np.float32)


class MeanZeroStdOneObservationNormalizationStrategy(ObservationNormalizationStrategy):
    """Subtracts the mean and divides by the standard deviation: statistics `mean` and `std`.

    Elements that are constant in the samples are only shifted: their standard deviation is taken as
    1.
    """

    statistics_names = ("mean", "std")

    def estimate_stats(self, observations: Array) -> Statistics:
        """Mean and standard deviation along `axis`."""
        std = self.reduce(np.std, observations)
        least = RELATIVE_TOLERANCE * self.reduce(np.max, np.abs(observations))
        constant = std <= np.maximum(least, np.finfo(np.float32).tiny)
        return {"mean": self.reduce(np.mean, observations), "std": np.where(constant, 1.0, std)}

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse standard deviations that are not positive."""
        if np.any(statistics["std"] <= 0):
            raise ValueError(f"the standard deviation must be positive, not {statistics['std']}")

    def normalize_value(self, value: Array) -> Array:
        """(value - mean) / std."""
        return np.asarray((value - self.statistics["mean"]) / self.statistics["std"])


class RangeZeroOneObservationNormalizationStrategy(ObservationNormalizationStrategy):
    """Maps the range of values to [0, 1]: statistics `min` and `max`.

    Values outside the range are mapped outside [0, 1], unless they are clipped; constant elements
    are mapped to 0.
    """

    statistics_names = ("min", "max")

    def estimate_stats(self, observations: Array) -> Statistics:
        """Minimum and maximum along `axis`."""
        return {"min": self.reduce(np.min, observations), "max": self.reduce(np.max, observations)}

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse a minimum above its maximum, or a range too wide for float32; keep the width."""
        with np.errstate(over="ignore"):
            width = statistics["max"] - statistics["min"]
        if not np.all((width >= 0) & (width < np.inf)):
            raise ValueError(f"the minimum must not be above the maximum, nor infinitely far below: {statistics}")
        self._width = np.where(width > 0, width, np.float32(1))

    def normalize_value(self, value: Array) -> Array:
        """(value - min) / (max - min)."""
        return np.asarray((value - self.statistics["min"]) / self._width)


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
        sampling_policy: Policy that acts while statistics are estimated, or a factory that makes it
            from the action spaces and the masks of all sub-steps, such as the class `RandomPolicy`
            or its class path. Random actions if None.
        exclude: Observations that are not normalised.
        manual_config: Observation -> its `strategy`, `strategy_config` and `statistics`, each
            optional.

    Raises:
        TypeError: An observation that is to be normalised is not a `Box`.
        ValueError: An observation or an entry of the configuration is unknown, settings contradict
            each other, or another wrapper of this kind writes to the same file.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
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
        self.statistics_dump = statistics_dump
        if statistics_dump is not None and statistics_dump in (one.statistics_dump for one in _normalizers(env)):
            raise ValueError(f"{_NAME}: another one further in writes to {statistics_dump=} already; name another file")
        self.sampling_policy = sampling_policy
        manual_config, excluded = manual_config or {}, set(exclude or [])
        masks = {name for step_masks in env.action_masks_dict.values() for name in step_masks.values()}
        all_spaces = _spaces_by_name(env.observation_spaces_dict)
        if unknown := (excluded | set(manual_config)) - set(all_spaces):
            raise ValueError(f"{_NAME}: there are no observations {sorted(unknown)}; there are {sorted(all_spaces)}")
        if both := (excluded | masks) & set(manual_config):
            raise ValueError(f"{_NAME}: {sorted(both)} are in manual_config, but are excluded or serve as action masks")
        given = (default_strategy, default_strategy_config, default_statistics)
        defaults: dict[str, Any] = dict(zip(MANUAL_ENTRIES, given, strict=True))
        self._strategies: dict[str, ObservationNormalizationStrategy] = {}
        self._given: set[str] = set()  # observations whose statistics the configuration states
        for name, space in all_spaces.items():
            is_usual = isinstance(space, spaces.Box) and space.low.size > 0
            if name in masks | excluded or not (is_usual or name in manual_config):
                continue
            manual = manual_config.get(name, {})
            with _named(name):
                if wrong := set(manual) - set(MANUAL_ENTRIES):
                    raise ValueError(f"unknown entries {sorted(wrong)} in manual_config, not {MANUAL_ENTRIES}")
                is_another = "strategy" in manual  # to which the default arguments do not apply
                settings = {**(dict.fromkeys(MANUAL_ENTRIES) if is_another else defaults), **manual}
                if not isinstance(space, spaces.Box):
                    raise TypeError(f"only Box observations can be normalised, not {space}")
                strategy = import_class(settings["strategy"], ObservationNormalizationStrategy)
                self._strategies[name] = strategy(space, **(settings["strategy_config"] or {}))
                if settings["statistics"] is not None:
                    self._strategies[name].set_normalization_stats(settings["statistics"])
                    self._given.add(name)
        normalized = {name: strategy.normalized_space() for name, strategy in self._strategies.items()}
        shown = {key: dict(space.spaces) for key, space in env.observation_spaces_dict.items()}
        changed = {key: {name: normalized.get(name, part) for name, part in shown[key].items()} for key in shown}
        self._observation_spaces = {key: spaces.Dict(parts) for key, parts in changed.items()}
        self._samples: dict[str, list[Array]] | None = None  # filled while statistics are estimated

    def observation(self, observation: Observation) -> Observation:
        """Normalise all observations that have a strategy.

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
                    raise RuntimeError(f"{name!r} has no statistics: call obtain_normalization_statistics or give some")
                normalized[name] = strategy.normalize(normalized[name])
        return normalized

    @property
    def missing_statistics(self) -> list[str]:
        """Observations whose statistics are not known yet."""
        return [name for name, strategy in self._strategies.items() if not strategy.statistics]

    def estimate_within(self, env: Wrapper, n_samples: int, seed: int) -> None:
        """Estimate missing statistics from episodes of the whole stack of wrappers.

        Raises:
            ValueError: An observation did not occur.
        """
        if not self.missing_statistics:
            return
        waiting = [one for one in _normalizers(env) if one.missing_statistics]  # this and outer ones
        samples: dict[str, list[Array]] = defaultdict(list)
        try:
            for one in waiting:
                one._samples = samples if one is self else defaultdict(list)
            sample_episodes(env, n_samples, seed, self.sampling_policy)
        finally:
            for one in waiting:
                one._samples = None
        if absent := [name for name in self.missing_statistics if not samples[name]]:
            hint = "sample more, use a sampling_policy that gets there, or give their statistics"
            raise ValueError(f"{_NAME}: observations {absent} did not occur in {n_samples} acts; {hint}")
        for name in self.missing_statistics:
            observations = np.stack(samples[name]).astype(np.float64)
            if n_wrong := sum(not np.isfinite(sample).all() for sample in observations):
                wrong = f"{name!r}: {n_wrong} of {len(observations)} samples have values that are not finite"
                raise ValueError(f"{_NAME}: {wrong}; correct the environment, or exclude the observation")
            # outside of `_named`: errors of a user's strategy pass unchanged
            self.set_normalization_statistics({name: self._strategies[name].estimate_stats(observations)})
        if self.statistics_dump is not None:
            dump_statistics(self.get_normalization_statistics(), output_folder(self.statistics_dump))

    def get_normalization_statistics(self) -> dict[str, Statistics]:
        """Observation -> statistic -> number or array, for observations with known statistics."""
        return {name: one.get_normalization_stats() for name, one in self._strategies.items() if one.statistics}

    def set_normalization_statistics(self, statistics: Mapping[str, Mapping[str, Any]]) -> None:
        """Use statistics obtained elsewhere; pass unknown ones on to inner wrappers of this kind.

        Args:
            statistics: Observation -> statistic -> number or array.

        Raises:
            ValueError: An observation is not normalised, or its statistics do not fit.
        """
        others = dict(statistics)
        for name in self._strategies.keys() & statistics.keys():
            with _named(name):
                self._strategies[name].set_normalization_stats(others.pop(name))
        if others and (inner := _normalizers(self.env)):
            inner[0].set_normalization_statistics(others)
        elif others:
            raise ValueError(f"{_NAME}: {sorted(others)} are not normalised; {list(self._strategies)} are")

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
            raise ValueError(f"{_NAME}: {missing} are not among the statistics that were learned before")


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
    if not _normalizers(env):
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
    for wrapper in _normalizers(env):
        known = wrapper.get_normalization_statistics()
        if twice := statistics.keys() & known.keys():
            raise ValueError(f"observations {sorted(twice)} are normalised twice; exclude them in one of the wrappers")
        statistics |= known
    return statistics


def make_normalized_env_factory(
    env_factory: Callable[[], StructuredEnv], normalization_statistics: Mapping[str, Mapping[str, Any]]
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


def sample_episodes(env: Wrapper, n_acts: int, seed: int, policy: str | Policy | Callable[..., Policy] | None) -> None:
    """Step an environment through seeded episodes; restore the states of its wrappers at the end.

    Args:
        env: The environment, with all its wrappers.
        n_acts: Number of observations to see, including those after a reset.
        seed: Determines episodes and actions.
        policy: Policy that acts, or a factory that makes it from the action spaces and masks of all
            sub-steps, or the dotted path of either; random actions if None.
    """
    import torch  # only here, so that environments can be used without it
    from tqdm import tqdm

    from maze_pl.core.policy import Policy, PolicyBatch, RandomPolicy

    if n_acts < 1:
        raise ValueError(f"n_samples={n_acts} must be at least 1")
    is_flat = list(env.agent_counts_dict.values()) == [1]  # others may have no actor before a reset
    while is_flat and not all(isinstance(s, spaces.Dict) for s in (env.observation_space, env.action_space)):
        env = cast(Wrapper, env.env)  # past wrappers that remove Dict spaces
    policy = import_object(policy) if isinstance(policy, str) else policy or RandomPolicy
    if isinstance(policy, type) or not isinstance(policy, Policy):
        policy = cast(Callable[..., Policy], policy)(env.action_spaces_dict, env.action_masks_dict)
    generator = torch.Generator().manual_seed(derive_seed(seed, "policy"))
    learned = [(wrapper, wrapper.state_dict()) for wrapper in wrappers_of(env)]
    episode, ended = 0, True
    observation: Observation = {}
    # progress on stderr, only if it takes long and stderr is a terminal
    for _ in tqdm(range(n_acts), "normalisation statistics", delay=PROGRESS_AFTER, disable=None, leave=False):
        if ended:
            observation, _ = env.reset(seed=derive_seed(seed, "episode", episode))
            episode, ended = episode + 1, False
        else:
            step_key, agent_id = env.actor_id()
            rows = {name: value[np.newaxis] for name, value in observation.items()}
            batch = PolicyBatch(step_key, rows, np.array([agent_id]), maze_state=[env.get_maze_state()])
            action = policy.act(batch, generator=generator).action
            heads = env.action_spaces_dict[step_key].spaces
            single = {head: environment_action(space, action[head][0]) for head, space in heads.items()}
            observation, _, terminated, truncated, _ = env.step(single)
            ended = terminated or truncated
    for wrapper, state in learned:
        wrapper.load_state_dict(state)


def dump_statistics(statistics: Mapping[str, Mapping[str, Any]], path: str | Path) -> None:
    """Write statistics to a JSON file atomically: it is either complete or unchanged.

    Args:
        statistics: Observation -> statistic -> number or array.
        path: The file; its directory is created if needed.
    """
    write_file(path, json.dumps(statistics, default=lambda value: np.asarray(value).tolist()).encode())


def load_statistics(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read the statistics that `dump_statistics` wrote, for `set_normalization_statistics`."""
    return cast(dict[str, dict[str, Any]], json.loads(Path(path).read_text(encoding="utf-8")))


def _normalizers(env: StructuredEnv) -> list[ObservationNormalizationWrapper]:
    """Wrappers of this kind around an environment, outermost first."""
    kind = ObservationNormalizationWrapper
    return [cast(ObservationNormalizationWrapper, one) for one in wrappers_of(env) if issubclass(type(one), kind)]


@contextmanager
def _named(observation: str) -> Iterator[None]:
    """Name the observation in errors that are raised inside."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{_NAME}: observation {observation!r}: {error}") from error


def _spaces_by_name(spaces_dict: Mapping[StepKey, spaces.Dict]) -> dict[str, spaces.Space[Any]]:
    """Observation -> its space, which must be the same in all sub-steps."""
    by_name: dict[str, spaces.Space[Any]] = {}
    for key, space in spaces_dict.items():
        for name, part in space.spaces.items():
            known = by_name.setdefault(name, part)
            if type(known) is not type(part) or known.shape != part.shape:
                raise ValueError(f"{_NAME}: {name!r} is {part} in sub-step {key!r}, {known} in another one; rename one")
    return by_name
