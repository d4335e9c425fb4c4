"""Normalisation of observations by statistics that follow the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.running_observation_normalization_array_wrapper import (
    RunningObservationNormalizationArrayWrapper,
)
from maze_pl.envs.running_moments import (
    RunningMoments,
    merged_moments,
    rebased_moments,
    require_all,
    require_fitting,
)
from maze_pl.envs.structured_env import Action, Array, Observation, ResetResult, StepParts, StepResult, StructuredEnv
from maze_pl.envs.wrappers.observation_normalization_wrapper import (
    ObservationNormalizationWrapper,
    are_alike,
)

if TYPE_CHECKING:
    from maze_pl.core.policy import Policy
    from maze_pl.envs.tensors.tensor_env import TensorEnv


class RunningObservationNormalizationWrapper(ObservationNormalizationWrapper):
    """Normalises each element of an observation by its running mean and standard deviation.

        normalised = clip((value - mean) / std)

    The statistics begin with those of random play, as in the base class, and then follow the
    observations of training. All environments normalise by the same ones, which are merged after
    each rollout. Those of an environment change when it starts an episode: within an episode,
    observations have the same units. Evaluation leaves the statistics unchanged. The standard
    deviation of an element does not fall below a hundredth of its first one.

    Images, which consist of bytes or have three dimensions or more, stay as they are, as do masks
    of actions, all that is not a `Box`, and observations of one name whose shapes differ between
    sub-steps. So does a `Box` all of whose bounds lie within [0, 1]: masks of items, flags, one-hot
    vectors and shares have fitting numbers already. Exclude other observations that a network reads
    as they are: indices, and tables or masks in which 0 means that there is nothing (`mask_key`,
    `chosen_keys`, `levels` and `skip_zeros` of blocks).

    Args:
        env: The environment to wrap.
        clip_range: Range that normalised values are clipped to; None for an end without a limit.
        exclude: Observations that are not normalised.
        sampling_policy: Policy that acts while the first statistics are estimated; see the base class.
        statistics: Observation -> its first `mean` and `std`, numbers or arrays; those that are
            missing are estimated.
        weight: Number of observations that the first statistics count as.
        window: Number of observations that the statistics look back on, with decreasing weight;
            None for all.
        shared_rows: Observations [rows, columns] whose rows share one mean and standard deviation
            of each column, such as sets, which mean the same in any order.

    Attributes:
        moment_shapes: Observation -> shape of its mean and standard deviation.

    Raises:
        TypeError: A single name is given for a list of names.
        ValueError: The weight is not positive, the window is smaller, an observation in
            `shared_rows` is not normalised or has no rows, or as in the base class.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = RunningObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), weight=10)
        >>> env.set_normalization_statistics({"observation": {"mean": [0, 0, 0, 0], "std": [1, 1, 1, 1]}})
        >>> _ = env.reset(seed=0)
        >>> merged = env.merge_shared_states([env.shared_state()])
        >>> merged["observation"]["n"]
        11
    """

    def __init__(
        self,
        env: StructuredEnv,
        clip_range: Sequence[float | None] = (-10.0, 10.0),
        exclude: Sequence[str] | None = None,
        sampling_policy: str | Policy | Callable[..., Policy] | None = None,
        statistics: Mapping[str, Mapping[str, Any]] | None = None,
        weight: int = 1000,
        window: int | None = 10_000,
        shared_rows: Sequence[str] | None = None,
    ) -> None:
        for option, names in (("exclude", exclude), ("shared_rows", shared_rows)):
            if isinstance(names, str):
                came = f"{type(self).__name__}: {option}={names!r}"
                raise TypeError(f"{came} must be a list of names: [{names!r}]")
        unsuitable = dict.fromkeys(exclude or (), "is in exclude") | _unsuitable(env)
        shared = set(shared_rows or ())
        _require_tables(shared, env, unsuitable, type(self).__name__)
        of_tables = {"strategy_config": {"clip_range": clip_range, "axis": (0, 1)}}
        super().__init__(
            env,
            default_strategy_config={"clip_range": clip_range, "axis": 0},
            sampling_policy=sampling_policy,
            exclude=sorted(unsuitable),
            manual_config=dict.fromkeys(shared, of_tables),
        )
        if not isinstance(weight, int) or weight < 1 or (window is not None and window < weight):
            name = type(self).__name__
            numbers = f"{weight=} must be a whole number from 1, and {window=} at least as large, or None for all"
            raise ValueError(f"{name}: {numbers}")
        self.weight, self.window = weight, window
        self.moment_shapes: dict[str, tuple[int, ...]] = {}
        for name, strategy in self.strategies.items():
            shape = strategy.observation_space.shape
            self.moment_shapes[name] = (1, *shape[1:]) if name in shared else shape
        self._moments: dict[str, RunningMoments] = {}
        self._configured_first: set[str] = set()
        self._has_begun = False
        self._is_frozen = False
        self.set_normalization_statistics(statistics or {})
        self._configured_first.update(self._moments)

    # ----------------------------------------------------------------------------------------------- episodes

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, which is normalised by the statistics at the last merge."""
        self._use_moments()
        self._has_begun = True
        observation, info = self.env.reset(seed=seed, options=options)
        return self._gather(observation), info

    def step(self, action: Action) -> StepResult:
        """Step, add the observation to the statistics, and normalise it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._gather(observation), reward, terminated, truncated, info

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        observation, reward, terminated, truncated, info = yield action
        return self._gather(observation), reward, terminated, truncated, info

    def _gather(self, observation: Observation) -> Observation:
        """Add an observation to the statistics, and normalise it."""
        if not self._is_frozen:
            for name, moments in self._moments.items():
                if name in observation:
                    moments.add(observation[name])
        return self.observation(observation)

    def normalized(self, observation: Mapping[str, Array], is_many: bool) -> dict[str, Array]:
        """Normalise all observations that have a strategy; see the base class.

        Values that are not finite, which would spoil the statistics, become NaN, so that they are
        refused where they are used.
        """
        normalized = super().normalized(observation, is_many)
        for name in self.strategies.keys() & observation.keys():
            is_finite = np.isfinite(observation[name])
            if not is_finite.all():
                normalized[name] = np.where(is_finite, normalized[name], np.float32(np.nan))
        return normalized

    def _use_moments(self) -> None:
        """Normalise by the statistics at the last merge from now on."""
        for name, moments in self._moments.items():
            self.strategies[name].set_normalization_stats(moments.statistics)

    # --------------------------------------------------------------------------------------------- statistics

    def _set_absent(self, names: Sequence[str], n_samples: int) -> None:
        """Begin with mean 0 and standard deviation 1 where the sampled acts have shown nothing."""
        self.set_normalization_statistics({name: {"mean": 0.0, "std": 1.0} for name in names})

    @property
    def statistics_before_training(self) -> list[str]:
        """Observations whose statistics are still the first ones that the configuration states."""
        return sorted(self._configured_first)

    def set_normalization_statistics(self, statistics: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin with statistics obtained elsewhere; see the base class."""
        super().set_normalization_statistics(statistics)
        for name in self.strategies.keys() & statistics.keys():
            exact, shape = self.strategies[name].get_normalization_stats(), self.moment_shapes[name]
            with self._named(name):
                mean, std = np.broadcast_to(exact["mean"], shape), np.broadcast_to(exact["std"], shape)
            self._moments[name] = RunningMoments.of(self.weight, mean, std, self.window or 0)
            self._configured_first.discard(name)

    def state_dict(self) -> dict[str, Any]:
        """Statistics, and those that the running episode is normalised by."""
        shared = self.shared_state()
        return {"shared": shared, "used": self.get_normalization_statistics()} if shared else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`.

        Raises:
            ValueError: It has statistics of observations that are not normalised, or that do not fit.
        """
        if not state:
            return
        self._take(state["shared"])
        self._has_begun = True
        for name, used in state["used"].items():
            with self._named(name):
                self.strategies[name].set_normalization_stats(used)

    def shared_state(self) -> dict[str, Any]:
        """Common statistics of all copies at their last merge, and the sums of this one since."""
        return {name: moments.state_dict() for name, moments in self._moments.items()}

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge the common statistics with those that each copy has gathered since, in their order.

        Raises:
            ValueError: The copies do not have the same common statistics, or an observation had values
                that are not finite.
        """
        merged = {name: merged_moments([state[name] for state in states]) for name in states[0]}
        for name, state in merged.items():
            if not (np.isfinite(state["mean"]).all() and np.isfinite(state["m2"]).all()):
                fault = f"observation {name!r} had values that are not finite, or too large to square"
                raise ValueError(f"{cls.__name__}: {fault}; correct the environment, or exclude the observation")
        return merged

    @classmethod
    def rebase_shared_state(cls, state: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
        """Put the statistics since the last merge on top of the current common ones."""
        return {name: rebased_moments(part, current[name]) for name, part in state.items()}

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Take over statistics; a running episode goes on with its own, unless they are frozen.

        Raises:
            ValueError: Statistics that this wrapper needs are missing, others do not fit, or are those of
                observations that are not normalised.
        """
        require_all(self.strategies, state, type(self).__name__)
        self._take(state)
        if self._is_frozen or not self._has_begun:
            self._use_moments()

    def _take(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over statistics; the window is that of this wrapper."""
        require_fitting(self.moment_shapes, state, type(self).__name__)
        for name, moments in state.items():
            self._moments[name] = RunningMoments({**moments, "window": self.window or 0})
            self._configured_first.discard(name)

    def freeze(self) -> None:
        """Normalise by the current statistics from now on, without updating them."""
        self._is_frozen = True
        self._use_moments()

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return RunningObservationNormalizationArrayWrapper(env, self)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the form for environments in tensors."""
        from maze_pl.envs.tensors.running_observation_normalization_tensor_wrapper import (
            RunningObservationNormalizationTensorWrapper,
        )

        return RunningObservationNormalizationTensorWrapper(env, self)


def _unsuitable(env: StructuredEnv) -> dict[str, str]:
    """Return why observations stay as they are, by name, apart from masks and other spaces."""
    reasons = {}
    for name, parts in _spaces_of(env.observation_spaces_dict).items():
        if any(part.dtype == np.uint8 or len(part.shape or ()) > 2 for part in parts):
            reasons[name] = "consists of bytes or has three dimensions or more, as images do"
        elif not all(are_alike(parts[0], part) for part in parts):
            reasons[name] = "has another class or shape in another sub-step"
        elif all(_is_within_one(part) for part in parts):
            reasons[name] = "has bounds within [0, 1]"
    return reasons


def _spaces_of(spaces_dict: Mapping[StepKey, spaces.Dict]) -> dict[str, list[spaces.Space[Any]]]:
    """Return the spaces of each observation in all sub-steps that have it."""
    found: dict[str, list[spaces.Space[Any]]] = {}
    for space in spaces_dict.values():
        for name, part in space.spaces.items():
            found.setdefault(name, []).append(part)
    return found


def _is_within_one(space: spaces.Space[Any]) -> bool:
    """True for a `Box` all of whose bounds lie within [0, 1]."""
    return isinstance(space, spaces.Box) and bool(np.all(space.low >= 0) and np.all(space.high <= 1))


def _require_tables(names: Set[str], env: StructuredEnv, unsuitable: Mapping[str, str], owner: str) -> None:
    """Raise ValueError unless all observations of some names are tables that are normalised.

    Args:
        names: The names.
        env: The environment, which knows masks of actions.
        unsuitable: Observations that stay as they are, and the reason for each.
        owner: Name of the wrapper, for messages.
    """
    masks: set[str] = set()
    for step_masks in env.action_masks_dict.values():
        masks.update(step_masks.values())
    known = _spaces_of(env.observation_spaces_dict)
    for name in sorted(names):
        came = f"{owner}: shared_rows names {name!r}"
        if name not in known:
            raise ValueError(f"{came}, but the observations are {sorted(known)}")
        space = known[name][0]
        reason = unsuitable.get(name)
        if name in masks:
            reason = "is a mask of actions"
        elif not isinstance(space, spaces.Box):
            reason = f"is a {type(space).__name__}, not a Box"
        if reason is not None:
            raise ValueError(f"{came}, which is not normalised: it {reason}")
        if len(space.shape or ()) < 2:
            raise ValueError(f"{came} of shape {space.shape}, which has no rows")
