"""Gymnasium environment around a simulation, with array conversions, time and reward events."""

import copy
import warnings
from collections.abc import Mapping
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import conversion_space
from maze_pl.envs.contract import EnvContractError, check_observation, check_step, describe, name_of
from maze_pl.envs.core_env import (
    ActionConversionInterface,
    CoreEnv,
    ObservationConversionInterface,
    RewardAggregatorInterface,
    take_over,
)
from maze_pl.envs.rendering import figure_to_array
from maze_pl.envs.structured_env import (
    Action,
    Dicts,
    Observation,
    ResetResult,
    StepParts,
    StepResult,
    StructuredEnv,
)
from maze_pl.events.topics import BaseEnvEvents

_T = TypeVar("_T")


class _OfSubSteps(dict[StepKey, _T]):
    """Dict by sub-step; raises an error that lists the sub-steps if one is not declared."""

    def __missing__(self, key: StepKey) -> _T:
        raise EnvContractError(f"actor_id() names sub-step {key!r}; declared are {list(self)}")


def _masks_of(conversion: ActionConversionInterface) -> dict[str, str]:
    """Return the masks of an action conversion: head -> name of its mask."""
    masks: Any = conversion.action_masks
    if not isinstance(masks, Mapping):
        came = "is a method" if callable(masks) else f"returned {describe(masks)}"
        remedy = "define it as a property (@property) that returns a dict from action head to observation"
        raise TypeError(f"action_masks of {type(conversion).__name__} {came}; {remedy}")
    return dict(masks)


class MazeEnv(gymnasium.Env[Observation, Action], StructuredEnv):
    """Wraps a simulation, with one pair of conversions for each sub-step.

    It fires `BaseEnvEvents.reward` with the simulation's reward, and keeps the time of flat
    simulations. Events are collected per environment step, not per sub-step; events fired by
    `reset` belong to the first step.

    Args:
        core_env: The simulation.
        action_conversion_dict: Step key -> conversion of actions.
        observation_conversion_dict: Step key -> conversion of states.

    Raises:
        TypeError: A conversion's space is not a Dict of Box, Discrete, MultiDiscrete and MultiBinary,
            or its `action_masks` are not a dict.
        ValueError: The conversions and `core_env.agent_counts_dict` have different sub-steps.
    """

    if TYPE_CHECKING:  # gymnasium declares spaces of any kind
        observation_space: spaces.Dict  # type: ignore[assignment]
        action_space: spaces.Dict

    def __init__(
        self,
        core_env: CoreEnv,
        action_conversion_dict: Mapping[Any, ActionConversionInterface],
        observation_conversion_dict: Mapping[Any, ObservationConversionInterface],
    ) -> None:
        keys = list(core_env.agent_counts_dict)
        for_actions = list(action_conversion_dict)
        for_observations = list(observation_conversion_dict)
        if not set(keys) == set(for_actions) == set(for_observations):
            conversions = f"action conversions {for_actions} and observation conversions {for_observations}"
            raise ValueError(
                f"the simulation has sub-steps {keys}, but there are {conversions}; give one of each for every sub-step"
            )
        self.core_env = core_env
        self.context = core_env.context
        self.pubsub = core_env.pubsub
        self.action_conversion_dict = dict(action_conversion_dict)
        self.observation_conversion_dict = _OfSubSteps(observation_conversion_dict)
        self._observation_spaces = _OfSubSteps[spaces.Dict]()
        self._action_spaces = dict[StepKey, spaces.Dict]()
        self._action_masks = {key: _masks_of(action_conversion_dict[key]) for key in keys}
        for key in keys:
            where = f"space of sub-step {key!r}"
            observation_space = observation_conversion_dict[key].space()
            action_space = action_conversion_dict[key].space()
            self._observation_spaces[key] = conversion_space(observation_space, f"the observation {where}")
            self._action_spaces[key] = conversion_space(action_space, f"the action {where}")
        self._base_events = self.pubsub.create_event_topic(BaseEnvEvents)
        self._is_flat = len(keys) == 1 and core_env.agent_counts_dict[keys[0]] == 1
        self._unchecked = [*keys, *keys]  # sub-steps whose next observation must still be checked
        self._first_env_time = 0
        self._step_key: StepKey | None = None  # the actor that acts next
        self._space_seed: int | None = None  # pending seed of the action spaces
        self._maze_state: Any = None
        self._maze_action: Any = None
        self._is_rendered = False  # states are copied only for an environment that is rendered
        self._has_decided = False  # in this episode
        self._decided_state: Any = None  # state before the last decision
        self._decided_action: Any = None

    # -------------------------------------------------------------------------------- interaction

    def step(self, action: Action) -> StepResult:
        """Perform the act of the current actor; see `StructuredEnv.step`.

        Raises:
            ResetNeeded: No episode was started.
            EnvContractError: The simulation did not return a state, a reward, two flags and a dict,
                or the reward is not finite.
        """
        return self._receive(self.core_env.step(self._take(action)))

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator, which yields the action of the simulation."""
        return self._receive((yield self._take(action)))

    def step_simulation(self, maze_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Perform the act of the current actor, given as the simulation takes it.

        For a simulation that is driven from outside, such as by the actions of an `AgentDeployment`: as in
        `step`, time is kept, and events are collected per environment step, so that rewards from events are
        right. The simulation's own `step` does neither. Wrappers take no part, and refuse it.

        Args:
            maze_action: Action of the simulation.

        Returns:
            State of the simulation, reward, terminated, truncated and further information.

        Raises:
            ResetNeeded: No episode was started.
            EnvContractError: As for `step`.
        """
        self._begin_act()
        self._keep_action(maze_action)
        return self._complete_act(self.core_env.step(maze_action))

    def _take(self, action: Action) -> Any:
        """Convert an action to the simulation's; the environment step begins if none is running."""
        conversion = self.action_conversion_dict[self._begin_act()]
        maze_action = conversion.space_to_maze(action, self._maze_state)
        self._keep_action(maze_action)
        return maze_action

    def _begin_act(self) -> StepKey:
        """Return the sub-step that acts; forget the events of an environment step that is complete."""
        if self._step_key is None:
            raise ResetNeeded(f"step of {name_of(self)} was called before reset; start an episode first")
        if self.context.env_step_incremented:  # the last act completed an environment step
            self.pubsub.clear()
        return self._step_key

    def _keep_action(self, maze_action: Any) -> None:
        """Keep the action of an act, with its state, for renderers and records."""
        context = self.context
        self._maze_action = maze_action
        if context.is_decision:
            self._has_decided, self._decided_action = True, maze_action
            state = self._maze_state
            self._decided_state = copy.deepcopy(state) if self._is_rendered else state

    def _receive(self, result: Any) -> StepResult:
        """Convert the result of a step of the simulation."""
        maze_state, reward, terminated, truncated, info = self._complete_act(result)
        key: Any = self._step_key
        observation = self.observation_conversion_dict[key].maze_to_space(maze_state)
        if self._unchecked:
            self._check(key, observation)
        return observation, reward, terminated, truncated, info

    def _complete_act(self, result: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Check the result of a step of the simulation, keep its state and the time, and fire its reward."""
        core_env, context = self.core_env, self.context
        try:
            maze_state, reward, terminated, truncated, info = result
            is_finite = isfinite(reward)  # accepts numbers only; `float` would also accept text
            reward = float(reward)
        except (TypeError, ValueError):
            check_step(result, self)
            raise
        if not is_finite:
            raise EnvContractError(f"step of {name_of(self)} returned the reward {reward}, which is not finite")
        self._base_events.reward(value=reward)
        if not self._is_flat:
            self._step_key = core_env.actor_id().step_key
        elif not context.env_step_incremented:
            context.increment_env_step()
        self._maze_state = maze_state
        return maze_state, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; see `StructuredEnv.reset`.

        Raises:
            ValueError: Options were given; override this method in environments that accept
                options.
        """
        if options:
            raise ValueError(f"{type(self).__name__} takes no options at reset, but {sorted(options)} were given")
        self.context.reset_episode(seed)
        self.pubsub.begin_episode()
        if seed is not None:
            vars(self).pop("_np_random", None)
            self._np_random_seed = seed
            self.core_env.seed(seed)
            self._space_seed = seed
        self._maze_action = self._decided_state = self._decided_action = None
        self._has_decided = False
        self._maze_state = self.core_env.reset()
        self._first_env_time = self.context.first_env_time = self.core_env.get_env_time()
        self._step_key = key = self.core_env.actor_id().step_key
        observation = self.observation_conversion_dict[key].maze_to_space(self._maze_state)
        if self._unchecked:
            self._check(key, observation)
        return observation, {}

    def _check(self, key: StepKey, observation: Any) -> None:
        """Check the first observations of a sub-step in full."""
        if key in self._unchecked:
            self._unchecked.remove(key)
            what = f"the observation of sub-step {key!r} by {self.observation_maker(key)}"
            check_observation(observation, self._observation_spaces[key], what, exactly=True)
            if not self._unchecked:  # the topics that the simulation fires have been created by now
                self._warn_of_missing_topics()

    def _warn_of_missing_topics(self) -> None:
        """Warn of reward aggregators that never get an event, as their topics do not exist."""
        topics = self.pubsub.topics
        for aggregator in self.pubsub.subscribers:
            wanted = tuple(aggregator.get_interfaces())
            is_unheard = wanted and not any(issubclass(topic, wanted) for topic in topics)
            if is_unheard and isinstance(aggregator, RewardAggregatorInterface):
                missing = " and ".join(topic.__name__ for topic in wanted)
                fired = " and ".join(topic.__name__ for topic in topics)
                fact = f"{name_of(self)} does not fire {missing}, only {fired}"
                fault = f"{type(aggregator).__name__} gets no events: {fact}"
                warnings.warn(f"{fault}; use another reward aggregator", UserWarning, stacklevel=2)

    def observation_maker(self, key: StepKey) -> str:
        """Return the name of the class that makes the observations of a sub-step, for messages."""
        return type(self.observation_conversion_dict[key]).__name__

    @cached_property
    def _np_random(self) -> np.random.Generator | None:  # type: ignore[override]
        """Gymnasium's generator of this object; rarely used, so created on first access."""
        return None if self._np_random_seed is None else seeding.np_random(self._np_random_seed)[0]

    def render(self) -> Any:
        """Draw the last decision: `[height, width, 3]` bytes.

        The picture is that of a recorded step: the state before the action, the action, and the
        events of the environment step. Before the first decision of an episode it shows the first
        state, without an action. States are copied from the first call on; until then, a simulation
        that changes its state in place is drawn as it is now.

        Raises:
            NotImplementedError: The simulation has no renderer.
        """
        renderer = self.get_renderer()
        if renderer is None:
            raise NotImplementedError(f"{name_of(self)} has no renderer; return one from its get_renderer")
        self._is_rendered = True
        state = self._decided_state if self._has_decided else self._maze_state
        return figure_to_array(renderer.render(state, self._decided_action, self.get_step_events()))

    close = StructuredEnv.close  # not gymnasium's

    # ------------------------------------------------------------------------------------- spaces

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Observation space of each sub-step."""
        return self._observation_spaces

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Action space of each sub-step, seeded by the last `reset` that was given a seed."""
        if self._space_seed is not None:  # late, as it costs two steps and few callers sample
            for space in self._action_spaces.values():
                space.seed(self._space_seed)
            self._space_seed = None
        return self._action_spaces

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """Step key -> action head -> name of the observation that masks it."""
        return self._action_masks

    @property
    def observation_conversion(self) -> ObservationConversionInterface:
        """Conversion of states for the actor that acts next."""
        key = self.core_env.actor_id().step_key
        conversion: ObservationConversionInterface = self.observation_conversion_dict[key]
        return conversion

    @property
    def action_conversion(self) -> ActionConversionInterface:
        """Conversion of actions for the actor that acts next."""
        key = self.core_env.actor_id().step_key
        conversion: ActionConversionInterface = self.action_conversion_dict[key]
        return conversion

    # -------------------------------------------------------------------------- states and events

    def get_env_time(self) -> int:
        """Return the number of environment steps since the episode started.

        The simulation's clock may start at any value.
        """
        return self.core_env.get_env_time() - self._first_env_time

    def get_maze_action(self) -> Any:
        """Return the last action as the simulation received it, None before the first one."""
        return self._maze_action

    def clone_from(self, env: Any) -> None:
        """Copy the state of another environment; see `StructuredEnv.clone_from`."""
        if type(env) is not type(self):
            raise TypeError(f"{type(self).__name__} cannot take over the state of a {type(env).__name__}")
        self.core_env.clone_from(env.core_env.simulation_to_copy())
        vars(self.context).update(vars(env.context), _episode_id=env.get_episode_id())
        self.pubsub.take_records(env.pubsub)
        for own, other in self.pubsub.counterparts(env.pubsub):
            take_over(own, other, (self, env))
        self._step_key = env._step_key
        self._maze_state = self.core_env.get_maze_state()
        self._maze_action = copy.deepcopy(env._maze_action)
        self._first_env_time = env._first_env_time
        self._has_decided = env._has_decided
        self._decided_state = copy.deepcopy(env._decided_state)
        self._decided_action = copy.deepcopy(env._decided_action)
        self._space_seed = env._space_seed
        self._np_random_seed = env._np_random_seed
        vars(self).pop("_np_random", None)  # made on first access
        if "_np_random" in vars(env):
            self._np_random = copy.deepcopy(env._np_random)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action; see `StructuredEnv.get_observation_and_action_dicts`.

        Raises:
            ValueError: There are several sub-steps; the state does not say which one it belongs to.
        """
        keys = list(self._observation_spaces)
        if len(keys) > 1:
            remedy = "override get_observation_and_action_dicts in the environment or a wrapper"
            raise ValueError(f"a state alone does not tell which of the sub-steps {keys} it belongs to; {remedy}")
        key = keys[0]
        observations: dict[StepKey, Observation] | None = None
        actions: dict[StepKey, Action] | None = None
        if maze_state is not None:
            observations = {key: self.observation_conversion_dict[key].maze_to_space(maze_state)}
        if maze_action is not None:
            actions = {key: self.action_conversion_dict[key].maze_to_space(maze_action)}
        return observations, actions
