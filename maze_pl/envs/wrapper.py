"""Wrappers: environments around environments that change actions, observations and rewards."""

from __future__ import annotations

import copyreg
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Self, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.spaces import dict_space
from maze_pl.envs.contract import EnvContractError, finite_rewards
from maze_pl.envs.core_env import take_over
from maze_pl.envs.no_array_form_error import NoArrayFormError
from maze_pl.envs.no_tensor_form_error import NoTensorFormError
from maze_pl.envs.structured_env import (
    Action,
    Array,
    Dicts,
    Observation,
    ResetResult,
    StepParts,
    StepResult,
    StructuredEnv,
    joined_class,
    made_without_init,
)
from maze_pl.envs.wrapper_classes import (
    complete_class,
    explain_action,
    forward_attributes,
    passed_on,
    require_spaces_by_step_key,
)

if TYPE_CHECKING:
    from maze_pl.envs.arrays.array_env import ArrayEnv
    from maze_pl.envs.tensors.tensor_env import TensorEnv

Options = ParamSpec("Options")
Wrapped = TypeVar("Wrapped")


class Wrapper(gymnasium.Env[Observation, Action], StructuredEnv):
    """Wraps an environment and passes everything on; subclasses override what they change.

    Everything outside sees what a subclass overrides. A wrapper that splits a flat environment into sub-steps
    overrides `actor_id`, `agent_counts_dict`, the spaces, `step` and `reset`, and calls `begin_env_step` first in
    each act that does not reach the simulation. New spaces can also be made in the constructor and set as
    `_observation_spaces` and `_action_spaces`. Attributes that are not part of the interface are looked up in the
    wrapped environment, and `isinstance` sees through wrappers (`EnvMeta`).

    A wrapper that keeps running statistics has two kinds of state: `state_dict` is everything that
    this copy needs to continue, `shared_state` is the part that copies around other environments can take over.

    Args:
        env: The environment to wrap.

    Raises:
        TypeError: The argument is not a `StructuredEnv`, or its spaces are not Dicts.

    Attributes:
        accepts_plain_spaces: Whether the wrapped environment may have spaces that are not Dicts.
        has_history: Whether observations also depend on earlier states of the episode.
        takes_steps: Whether it takes steps by itself, whose states are not recorded around it.
    """

    if TYPE_CHECKING:  # gymnasium declares spaces of any kind
        observation_space: spaces.Dict  # type: ignore[assignment]
        action_space: spaces.Dict

    accepts_plain_spaces: ClassVar[bool] = False
    has_history: ClassVar[bool] = False
    takes_steps: ClassVar[bool] = False
    _observation_spaces: Mapping[StepKey, spaces.Dict] | None = None
    _action_spaces: Mapping[StepKey, spaces.Dict] | None = None

    def __init__(self, env: StructuredEnv) -> None:
        name = type(self).__name__
        if not isinstance(env, StructuredEnv):
            raise TypeError(f"{name} wraps a MazeEnv, not {env!r}; wrap gymnasium environments in GymMazeEnv first")
        require_spaces_by_step_key(env)
        if not self.accepts_plain_spaces:
            for key in env.observation_spaces_dict:
                where = f"of sub-step {key!r} of {type(env).__name__}, which {name} is to wrap,"
                dict_space(env.observation_spaces_dict[key], f"the observation space {where}")
                dict_space(env.action_spaces_dict[key], f"the action space {where}")
        self.env = env

    @property  # type: ignore[misc]
    def __class__(self) -> type[Self]:
        """Class for `isinstance`, besides the `type`; derived from all classes in the stack."""
        classes: list[type] = []
        part: Any = self
        while part is not None:
            classes.append(type(part))
            part = vars(part).get("env") if issubclass(type(part), Wrapper) else None
        return joined_class(tuple(classes))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return the state for pickles and copies, which are instances of the `type`."""
        make, arguments, *state = cast(Any, object.__reduce_ex__(self, max(protocol, 2)))
        return (made_without_init if make is copyreg.__newobj__ else make, arguments, *state)  # type: ignore[attr-defined]

    @classmethod
    def wrap(cls: Callable[Options, Wrapped], *args: Options.args, **kwargs: Options.kwargs) -> Wrapped:
        """Wrap an environment; the arguments are those of the constructor."""
        return cls(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Look up an attribute that the wrapper lacks in the wrapped environment."""
        if name.startswith("_") or name == "env":
            remedy = "; its constructor must call super().__init__(env)" if name == "env" else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{remedy}")
        return getattr(self.env, name)

    # -------------------------------------------------------------------------------- interaction

    def step(self, action: Action) -> StepResult:
        """Perform the act of the current actor; see `StructuredEnv.step`."""
        return self.env.step(action)

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator that waits for the results of the wrapped environment.

        In deployment these results come from outside, one after the other, so that `step` cannot be
        called. A wrapper that overrides `step` itself is refused there unless it defines this
        method: the same code, in which `yield action` takes the place of `self.env.step(action)`. A
        class that only defines this method gets its `step` from it.

        Args:
            action: Action of the current actor.

        Yields:
            Each action for the wrapped environment.

        Returns:
            The result of the step.
        """
        result: StepResult = yield action
        return result

    def __init_subclass__(cls, **options: Any) -> None:
        """Give a class that only defines `step_in_parts` a `step` that runs it, and check the class."""
        super().__init_subclass__(**options)
        complete_class(cls)

    def prepare_deployment(self) -> None:
        """Adapt to a deployment, in which the simulation cannot be stepped; by default, nothing changes.

        Raises:
            TypeError: This wrapper cannot be deployed.
        """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; see `StructuredEnv.reset`."""
        return self.env.reset(seed=seed, options=options)

    # ------------------------------------------------------------------------------------- spaces

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Observation space of each sub-step."""
        return self._observation_spaces or self.env.observation_spaces_dict

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Action space of each sub-step."""
        inner = self.env.action_spaces_dict  # always read: this seeds the parts that both share
        return self._action_spaces or inner

    # -------------------------------------------------------------------------- states and events

    action_masks_dict = cast(Any, passed_on("action_masks_dict"))
    get_maze_action = cast(Any, passed_on("get_maze_action"))
    get_observation_and_action_dicts = cast(Any, passed_on("get_observation_and_action_dicts"))

    def clone_from(self, env: Any) -> None:
        """Copy the state of another stack; see `StructuredEnv.clone_from`."""
        if type(env) is not type(self):
            raise TypeError(f"{type(self).__name__} cannot take over the state of a {type(env).__name__}")
        self.env.clone_from(env.env)
        # spaces stay the same, and take longer to copy than everything else
        names = {"_observation_spaces", "_action_spaces"} & vars(self).keys() & vars(env).keys()
        take_over(self, env, *[(vars(self)[name], vars(env)[name]) for name in names])

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Handle the end of an episode that has ended or is abandoned; called by `LogStatsWrapper`.

        Returns:
            Statistics that this wrapper adds to the episode's: numbers, and arrays `[n, ...]` of
            randomly sampled values; nothing by default. Their keys name a topic (`topic_name`), an event,
            a statistic or None, and groups.
        """
        return {}

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """The innermost environment, without wrappers."""
        return cast(gymnasium.Env[Any, Any], self.env).unwrapped

    # --------------------------------------------------------------------------------- statistics

    def estimate(self, n_samples: int, seed: int) -> None:
        """Let this wrapper and those inside it estimate the statistics that they need in advance.

        Args:
            n_samples: Number of observations to estimate from.
            seed: Determines the episodes and the actions.
        """
        for wrapper in reversed(list(wrappers_of(self))):
            wrapper.estimate_within(self, n_samples, seed)

    def estimate_within(self, env: Wrapper, n_samples: int, seed: int) -> None:
        """Estimate this wrapper's statistics by stepping `env`, the whole stack, if it has any."""

    def write_pending(self) -> str | None:
        """Write what this wrapper has recorded, before a checkpoint; see `EventLogWriter.write_pending`."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return the full state of this copy as arrays and primitives; empty by default."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""

    def shared_state(self) -> dict[str, Any]:
        """Return the statistics to share with other copies, or this copy's contribution; may be empty."""
        return {}

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge the statistics of several copies; by default, those of the first are returned.

        Args:
            states: Result of `shared_state` of each copy, in the order of ranks and environments.
        """
        return dict(states[0])

    @classmethod
    def rebase_shared_state(cls, state: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
        """Return the statistics of a copy as if it had begun with the current ones.

        A class that merges statistics needs this for rollouts that are collected ahead of time.

        Args:
            state: `shared_state` of a copy that began with earlier ones; by default, returned.
            current: Last result of `merge_shared_states`, which includes the earlier ones.
        """
        return state

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Load the result of `merge_shared_states`, or the `shared_state` of a single copy."""

    def freeze(self) -> None:
        """Stop updating the statistics for good, as in evaluation."""

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return this wrapper's form around an array environment, which has equal numbers.

        Args:
            env: The array environment, not yet allocated, with the forms of inner wrappers.

        Raises:
            NoArrayFormError: There is none, as by default.
        """
        raise NoArrayFormError(f"{type(self).__name__} changes single episodes and has no array form")

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return this wrapper's form for tensors; raises NoTensorFormError if the host must step the environment."""
        raise NoTensorFormError(f"{type(self).__name__} has no tensor form")


forward_attributes(Wrapper)


class ObservationWrapper(Wrapper):
    """Wrapper that changes observations."""

    @abstractmethod
    def observation(self, observation: Observation) -> Observation:
        """Return the changed observation as a new dict, without modifying the given arrays."""

    def step(self, action: Action) -> StepResult:
        """Step and change the observation."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation(observation), reward, terminated, truncated, info

    def step_in_parts(self, action: Action) -> StepParts:
        """Pass the action on and change the observation."""
        observation, reward, terminated, truncated, info = yield action
        return self.observation(observation), reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Reset and change the observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self.observation(observation), info

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action, then change the observations."""
        inner = super().get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        observations, actions = inner
        if observations is not None:
            observations = {key: self.observation(observation) for key, observation in observations.items()}
        return observations, actions


class ActionWrapper(Wrapper):
    """Wrapper that changes actions."""

    @abstractmethod
    def action(self, action: Action) -> Action:
        """Return the action to pass to the wrapped environment."""

    def reverse_action(self, action: Action) -> Action:
        """Invert `action`; needed to learn from recorded simulations.

        Raises:
            TypeError: This wrapper has no inverse.
        """
        raise TypeError(f"{type(self).__name__} cannot turn actions back; define its reverse_action")

    def step(self, action: Action) -> StepResult:
        """Change the action and step."""
        changed = self.action(action)
        try:
            return self.env.step(changed)
        except Exception as error:
            explain_action(self, changed, "action", "returned", error)
            raise

    def step_in_parts(self, action: Action) -> StepParts:
        """Change the action and pass it on."""
        result: StepResult = yield self.action(action)
        return result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the seed also seeds the wrapper's new action spaces."""
        if seed is not None and self._action_spaces is not None:
            for space in self._action_spaces.values():
                space.seed(seed)
        return self.env.reset(seed=seed, options=options)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action, then invert the change of the actions."""
        inner = super().get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        observations, actions = inner
        if actions is not None:
            actions = {key: self.reverse_action(action) for key, action in actions.items()}
        return observations, actions


class RewardWrapper(Wrapper):
    """Wrapper that changes the agent's reward; the environment's reward is logged unchanged."""

    @abstractmethod
    def reward(self, reward: float) -> float:
        """Return the changed reward; must be pure, as it also changes the rewards of single actors."""

    def step(self, action: Action) -> StepResult:
        """Step and change the reward.

        Raises:
            EnvContractError: The changed reward is not finite.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, self._checked_reward(reward), terminated, truncated, info

    def step_in_parts(self, action: Action) -> StepParts:
        """Pass the action on and change the reward."""
        observation, reward, terminated, truncated, info = yield action
        return observation, self._checked_reward(reward), terminated, truncated, info

    def _checked_reward(self, reward: float) -> float:
        """Change the reward; refuse a result that is not finite."""
        changed = self.reward(reward)
        if changed in (np.inf, -np.inf) or changed != changed:  # callers report non-numbers
            name = type(self).__name__
            raise EnvContractError(f"{name} turned the reward {reward} into {changed}; rewards must be finite numbers")
        return changed

    def get_actor_rewards(self) -> Array | None:
        """Return the changed rewards of the finished step's acts; None for a team reward."""
        rewards = finite_rewards(self.env.get_actor_rewards(), self.env)
        return None if rewards is None else np.array([self._checked_reward(float(value)) for value in rewards])


def wrappers_of(env: StructuredEnv) -> Iterator[Wrapper]:
    """Yield the wrappers around an environment, from the outermost inwards."""
    while issubclass(type(env), Wrapper):  # isinstance would see through to inner wrappers
        wrapper = cast(Wrapper, env)
        yield wrapper
        env = wrapper.env
