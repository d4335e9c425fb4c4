"""Base of wrappers of array environments."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import StatColumn
from maze_pl.envs.arrays.array_checks import ArrayChecks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.first_observations import FirstObservations
from maze_pl.envs.arrays.passed_on_declarations import PassedOnDeclarations

if TYPE_CHECKING:
    from maze_pl.envs.arrays.array_reward_watch import ArrayRewardWatch

_values_of = attrgetter(*[field.name for field in fields(ArrayStep)])


class ArrayWrapper(PassedOnDeclarations):
    """Array environment around another one; forwards everything that a subclass does not change.

    A subclass makes its arrays in `allocate`. They are saved with those of the environment. It resets and
    steps the environment with `super().reset` and `super().step`, which check the results of the innermost
    environment. It may replace attributes of the `ArrayStep` that these return, which is a copy, but not
    change its arrays, which are those of the environment. If it replaces `reward`, it also replaces `actor_rewards`
    where there are any. Statistics use the rewards and observations of the environment, which are noted before.
    A subclass with statistics that copies share defines `shared_states`, `load_shared_state` and `freeze`.

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
        self._reward_watch: tuple[ArrayRewardWatch, int] | None = None
        self.statistics_name = f"{type(self).__module__}.{type(self).__qualname__}"
        self.array_events = env.array_events
        self.heuristic_policy = env.heuristic_policy

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

    def watch_rewards(self, watch: ArrayRewardWatch | None, place: int) -> None:
        """Tell a watch of the rewards that come from inside, or stop doing so.

        Args:
            watch: The watch; None to stop.
            place: Place of this wrapper, from the outside.
        """
        self._reward_watch = None if watch is None else (watch, place)

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
        if self._reward_watch is not None:
            watch, place = self._reward_watch
            watch.note(place, result)
        if self._checks_of_env is not None:
            self._checks_of_env.check_step(result, which)
            self._checks_of_env.check_finite_reward(result.reward, which)
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

    def saved_containers(self) -> dict[str, Any]:
        """Return nothing: only those of the environment are saved."""
        return {}

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


def allocate(env: ArrayEnv, n_envs: int) -> None:
    """Let an array environment make its arrays, also those of its wrappers.

    Args:
        env: The environment.
        n_envs: Number of environments.

    Raises:
        TypeError: The method of a class does not call that of its base.
    """
    env.allocate(n_envs)
    layer = env
    while layer.n_envs == n_envs:
        if not isinstance(layer, ArrayWrapper):
            return
        layer = layer.env
    remedy = "call super().allocate(n_envs) first"
    raise TypeError(f"allocate of {type(layer).__name__} does not set n_envs; {remedy}")


def _copied(result: Any) -> Any:
    """Copy a result of the innermost environment, which may return the same object in each step.

    The copy notes rewards and observations before wrappers change them. Anything that is not an `ArrayStep` stays as
    it is; the caller reports it.
    """
    if not isinstance(result, ArrayStep):
        return result
    is_plain = type(result) is ArrayStep
    copied = ArrayStep(*_values_of(result)) if is_plain else copy.copy(result)  # a fifth of the time of `copy.copy`
    if copied.env_reward is None:
        copied.env_reward = copied.reward
    if copied.env_observation is None:
        copied.env_observation = copied.observation
    if copied.env_actor_rewards is None:
        copied.env_actor_rewards = copied.actor_rewards
    return copied
