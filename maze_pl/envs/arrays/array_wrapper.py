"""Base of wrappers of array environments."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import StatColumn
from maze_pl.envs.arrays.array_checks import ArrayChecks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.first_observations import FirstObservations

_values_of = attrgetter(*[field.name for field in fields(ArrayStep)])


class ArrayWrapper(ArrayEnv):
    """Array environment around another one; forwards everything that a subclass does not change.

    A subclass makes its arrays in `allocate`. They are saved with those of the environment. It resets and
    steps the environment with `super().reset` and `super().step`, which check the results of the innermost
    environment. It may replace attributes of the `ArrayStep` that these return, which is a copy, but not
    change its arrays, which are those of the environment. A subclass with statistics that copies share
    defines `shared_states`, `load_shared_state` and `freeze`.

    Args:
        env: The environment to wrap.

    Raises:
        TypeError: It is not an array environment.

    Attributes:
        env: The wrapped environment.
        statistics_name: Name under which its statistics are saved; its class path by default.
    """

    def __init__(self, env: ArrayEnv) -> None:
        if not isinstance(env, ArrayEnv):
            raise TypeError(f"{type(self).__name__} wraps array environments; got {env!r}")
        super().__init__()
        self.env = env
        self._checks_of_env: ArrayChecks | None = None
        self._first_observations: FirstObservations | None = None
        self.statistics_name = f"{type(self).__module__}.{type(self).__qualname__}"
        self.array_events = env.array_events
        self.heuristic_policy = env.heuristic_policy

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Observation space of each sub-step, for one environment."""
        return self.env.observation_spaces_dict

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Action space of each sub-step, for one environment."""
        return self.env.action_spaces_dict

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each sub-step."""
        return self.env.agent_counts_dict

    @property
    def action_masks_dict(self) -> Mapping[Any, Mapping[str, str]]:
        """Step key -> action head -> name of its mask, an observation."""
        return self.env.action_masks_dict

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs of an episode."""
        return self.env.kpi_names

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.env.allocate(n_envs)

    def note_given_arrays(self) -> None:
        """Leave the arrays that exist now out of the state, also those of the environment."""
        super().note_given_arrays()
        self.env.note_given_arrays()

    def check_unwrapped(self, checks: ArrayChecks) -> None:
        """Check what the innermost environment returns, before wrappers change it.

        Args:
            checks: The checks, which name the innermost environment.
        """
        if isinstance(self.env, ArrayWrapper):
            self.env.check_unwrapped(checks)
        else:
            self._checks_of_env = checks
            self._first_observations = FirstObservations(self.env)

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start an episode in some environments."""
        result = self.env.reset(which, seeds)
        if self._checks_of_env is not None:
            self._checks_of_env.check_reset(result, which)
            self._check_first(result, which)
        return result if isinstance(self.env, ArrayWrapper) else _copied(result)

    def step(self, actions: Mapping[StepKey, Mapping[str, AnyArray]], which: EnvIndex) -> ArrayStep:
        """Perform one act in some environments."""
        result = self.env.step(actions, which)
        if self._checks_of_env is not None:
            self._checks_of_env.check_step(result, which)
            self._check_first(result, which)
        return result if isinstance(self.env, ArrayWrapper) else _copied(result)

    def _check_first(self, result: ArrayStep, which: EnvIndex) -> None:
        """Check the first observations of the innermost environment in full."""
        if self._first_observations is not None:
            self._first_observations.check(result, which)
            if self._first_observations.is_done:
                self._first_observations = None

    def kpis(self, which: AnyArray) -> Mapping[str, AnyArray]:
        """Return the KPIs of episodes that have just ended."""
        return self.env.kpis(which)

    def end_episodes(self, which: AnyArray) -> Mapping[StatKey, StatColumn]:
        """Return further statistics of episodes that have just ended."""
        return self.env.end_episodes(which)

    def get_renderer(self) -> Any:
        """Return the renderer of the environment."""
        return self.env.get_renderer()

    def maze_state(self, env: int) -> Any:
        """Return the state of one environment for recording and rendering."""
        return self.env.maze_state(env)

    @property
    def unwrapped(self) -> ArrayEnv:
        """The innermost environment, without wrappers."""
        return self.env.unwrapped

    def shared_states(self) -> list[dict[str, Any]]:
        """Return, for each environment, statistics in the form of `Wrapper.shared_state`; none by default."""
        return [{} for _ in range(self.n_envs)]

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Load the result of `Wrapper.merge_shared_states`, or one of `shared_states`, for all environments."""

    def freeze(self) -> None:
        """Stop updating the statistics for good, as in evaluation."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all episodes: that of the environment, and the arrays of this wrapper."""
        return {"env": self.env.state_dict(), **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        self.env.load_state_dict(state["env"])

    def close(self) -> None:
        """Release resources; safe to call twice."""
        self.env.close()


def _copied(result: Any) -> Any:
    """Copy a result of the innermost environment, which may return the same object in each step.

    Anything that is not an `ArrayStep` stays as it is; the caller reports it.
    """
    if type(result) is ArrayStep:
        return ArrayStep(*_values_of(result))  # a fifth of the time of `copy.copy`
    return copy.copy(result) if isinstance(result, ArrayStep) else result
