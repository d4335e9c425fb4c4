"""Normalisation of observations by statistics that follow the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.running_observation_normalization_array_wrapper import (
    RunningObservationNormalizationArrayWrapper,
)
from maze_pl.envs.running_moments import RunningMoments, merged_moments, rebased_moments
from maze_pl.envs.structured_env import Action, Observation, ResetResult, StepParts, StepResult, StructuredEnv
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
    observations of training. All environments normalise by the same ones, which are merged after each
    rollout. Those of an environment change when it starts an episode: within an episode,
    observations have the same units. Evaluation leaves the statistics unchanged. Images,
    which consist of bytes or have three dimensions or more, stay as they are, as do masks, all that
    is not a `Box`, and observations of one name whose shapes differ between sub-steps.

    Args:
        env: The environment to wrap.
        clip_range: Range that normalised values are clipped to; None for an end without a limit.
        exclude: Observations that are not normalised.
        sampling_policy: Policy that acts while the first statistics are estimated; see the base class.
        statistics: Observation -> its first `mean` and `std`, numbers or arrays; those that are missing
            are estimated.
        weight: Number of observations that the first statistics count as.
        window: Number of observations that the statistics look back on, with decreasing weight; None
            for all.

    Raises:
        ValueError: The weight is not positive, the window is smaller, or as in the base class.

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
    ) -> None:
        exclude = sorted({*(exclude or ()), *_unsuitable(env.observation_spaces_dict)})
        strategy_config = {"clip_range": clip_range, "axis": 0}
        super().__init__(env, default_strategy_config=strategy_config, sampling_policy=sampling_policy, exclude=exclude)
        if not isinstance(weight, int) or weight < 1 or (window is not None and window < weight):
            name = type(self).__name__
            numbers = f"{weight=} must be a whole number from 1, and {window=} at least as large, or None for all"
            raise ValueError(f"{name}: {numbers}")
        self.weight, self.window = weight, window
        self._moments: dict[str, RunningMoments] = {}
        self._has_begun = False
        self._is_frozen = False
        self.set_normalization_statistics(statistics or {})

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

    def _use_moments(self) -> None:
        """Normalise by the statistics at the last merge from now on."""
        for name, moments in self._moments.items():
            self.strategies[name].set_normalization_stats(moments.statistics)

    # --------------------------------------------------------------------------------------------- statistics

    def _set_absent(self, names: Sequence[str], n_samples: int) -> None:
        """Begin with mean 0 and standard deviation 1 where the sampled acts have shown nothing."""
        self.set_normalization_statistics({name: {"mean": 0.0, "std": 1.0} for name in names})

    def set_normalization_statistics(self, statistics: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin with statistics obtained elsewhere; see the base class."""
        super().set_normalization_statistics(statistics)
        for name in self.strategies.keys() & statistics.keys():
            shape = self.strategies[name].observation_space.shape
            exact = self.strategies[name].get_normalization_stats()
            mean, std = (np.broadcast_to(exact[part], shape) for part in ("mean", "std"))
            self._moments[name] = RunningMoments.of(self.weight, mean, std, self.window or 0)

    def state_dict(self) -> dict[str, Any]:
        """Statistics, and those that the running episode is normalised by."""
        shared = self.shared_state()
        return {"shared": shared, "used": self.get_normalization_statistics()} if shared else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        if not state:
            return
        self._take(state["shared"])
        self._has_begun = True
        for name, used in state["used"].items():
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
            ValueError: Statistics that this wrapper needs are missing.
        """
        if missing := [name for name in self.strategies if name not in state]:
            fault = f"{missing} are not among the statistics of {sorted(state)} that were gathered before"
            raise ValueError(f"{type(self).__name__}: {fault}")
        self._take(state)
        if self._is_frozen or not self._has_begun:
            self._use_moments()

    def _take(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over statistics; the window is that of this wrapper."""
        for name in self.strategies.keys() & state.keys():
            self._moments[name] = RunningMoments({**state[name], "window": self.window or 0})

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


def _unsuitable(spaces_dict: Mapping[StepKey, spaces.Dict]) -> Iterator[str]:
    """Yield the names of images, and of observations that differ between sub-steps."""
    known: dict[str, spaces.Space[Any]] = {}
    for space in spaces_dict.values():
        for name, part in space.spaces.items():
            is_image = part.dtype == np.uint8 or len(part.shape or ()) > 2
            if is_image or not are_alike(known.setdefault(name, part), part):
                yield name
