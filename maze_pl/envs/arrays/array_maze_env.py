"""A single episode of an array environment, with the interface of any other environment."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_checks import ArrayChecks, as_numpy, slots_for_checks
from maze_pl.envs.arrays.array_copies import copy_state
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper, allocate
from maze_pl.envs.arrays.closed_attributes import ClosedAttributes, NewAttributeWarning
from maze_pl.envs.arrays.nested_arrays import random_streams_of
from maze_pl.envs.arrays.same_conversions import SameAction, SameObservation
from maze_pl.envs.arrays.unsaved_state import UnsavedState
from maze_pl.envs.core_env import ActionConversionInterface, CoreEnv, ObservationConversionInterface
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.rendering import OptionsArrayArg, Renderer, figure_to_array
from maze_pl.envs.structured_env import Array, Observation
from maze_pl.events import BaseEnvEvents, EpisodeEventLog, KpiCalculator

_ONLY = np.zeros(1, np.int64)
_REMEDY: Final = (
    "in an episode of an array environment, wrappers change the attributes of `core_env.env.unwrapped`,"
    " which is the array environment; its arrays have one entry"
)


@runtime_checkable
class ReseededArrays(Protocol):
    """An array environment, or a wrapper, that makes the rest of its running episodes depend on other seeds itself.

    Search does this in copies; see `CoreEnv.reseed`. It is needed where a `RandomStreams` is not an attribute of the
    environment, and where parts of the future were drawn already. By default, each `RandomStreams` that is an
    attribute, or lies in a list, tuple or dict that is one, starts again.
    """

    def reseed(self, which: AnyArray, seeds: AnyArray) -> None:
        """Draw again whatever no agent can know; everything else stays as it is.

        Args:
            which: [n] int64, the environments.
            seeds: [n] int64, a seed for each of them.
        """


def reseed_arrays(env: ArrayEnv, which: Array, seeds: Array) -> None:
    """Make the rest of running episodes depend on seeds, as far as it is random.

    Args:
        env: The environment with its wrappers.
        which: [n] int64, the environments.
        seeds: [n] int64, a seed for each of them.
    """
    if isinstance(env, ReseededArrays):
        env.reseed(which, seeds)
    else:
        for name, streams in random_streams_of(env).items():
            streams.seed([derive_seed(seed, name) for seed in seeds.tolist()], which)
    if isinstance(env, ArrayWrapper):
        reseed_arrays(env.env, which, seeds)


class DrawnObservation(dict[str, Array]):
    """Observation of the next actor, together with the state of the simulation that its renderer draws.

    Args:
        observation: Name -> array.
        state: The state, as `ArrayEnv.maze_state` makes it.
    """

    def __init__(self, observation: Observation, state: Any) -> None:
        super().__init__(observation)
        self.state = state


class SingleEpisodeRenderer(Renderer):
    """Draws the states of an episode with the renderer of an array environment, without the actions.

    Args:
        renderer: The renderer of the array environment.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def render(self, maze_state: DrawnObservation, maze_action: Any = None, events: Any = (), **arguments: Any) -> Any:
        """Draw a state; see `Renderer.render`. Actions are arrays, which the renderer does not know."""
        return self._renderer.render(maze_state.state, None, events, **arguments)

    def arguments(self) -> Sequence[OptionsArrayArg]:
        """Return the arguments of the renderer."""
        return self._renderer.arguments()


class ArrayKpiCalculator(KpiCalculator):
    """Asks an array environment for the KPIs of its only episode.

    Args:
        env: The environment.
        checks: Checks of its results.
    """

    asks_environment = True

    def __init__(self, env: ArrayEnv, checks: ArrayChecks) -> None:
        self._env = env
        self._checks = checks
        self.kpi_names = env.kpi_names

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        """Return the KPIs that have a value."""
        arrays = self._checks.check_kpis(self._env.kpis(_ONLY.copy()), _ONLY, self._env.kpi_names)
        kpis = {name: float(values[0]) for name, values in arrays.items()}
        return {name: value for name, value in kpis.items() if not np.isnan(value)}


class ArrayCoreEnv(ClosedAttributes, CoreEnv):
    """An array environment of one episode as a simulation: states are the observations of the next actor.

    Wrappers cannot set attributes that it lacks; those of the array environment, `core_env.env.unwrapped`, change
    its simulation.

    Args:
        env: The environment, not yet allocated.

    Attributes:
        takes_saved_state_only: Whether `clone_from` copies no more than checkpoints hold, for checks of these.
    """

    attribute_remedy = _REMEDY

    def __init__(self, env: ArrayEnv) -> None:
        super().__init__()
        self.takes_saved_state_only = False
        env.note_given_arrays()
        allocate(env, 1)
        self.env = env
        self._renderer = env.get_renderer()
        self._checks = ArrayChecks(Spec.of(env, slots_for_checks(env)), 1, 0, type(env.unwrapped).__name__, False)
        self._keys = list(env.observation_spaces_dict)
        self._calculator = ArrayKpiCalculator(env, self._checks) if env.kpi_names else None
        topics = env.array_events.topics
        self._topics: dict[type, Any] = {topic: self.pubsub.create_event_topic(topic) for topic in topics}
        self._actions = {key: _zeros(space) for key, space in env.action_spaces_dict.items()}
        self._result: Any = None
        self._actor = ActorID(self._keys[0], 0)
        self._maze_state: Observation = {}
        self._n_acts = 0  # in the running environment step
        self._has_ended_step = False
        self._seed: int | None = None
        self._generator = np.random.default_rng()
        self._unsaved = UnsavedState(env)
        self._n_calls = 0  # of `step` and `reset`
        self._next_check = 1  # the number of calls after which the state that copies get is checked again
        self._names = set(vars(env.unwrapped))  # of the attributes that the array environment has made
        self.close_attributes(ArrayCoreEnv)

    def step(self, maze_action: Mapping[str, Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Perform one act."""
        self._begin_call()
        self._n_acts = 1 if self._has_ended_step else self._n_acts + 1
        for head, array in self._actions[self._actor.step_key].items():
            array[0] = maze_action[head]
        result = self.env.step(self._actions, slice(None))
        self._checks.check_step(result, slice(None))
        if result.env_reward is not None:
            self._checks.check_finite_reward(result.env_reward, slice(None))
        self._fire_events()
        before = self.get_env_time()
        terminated = result.terminated is not None and bool(as_numpy(result.terminated)[0])
        truncated = result.truncated is not None and bool(as_numpy(result.truncated)[0])
        if result.env_time is not None:
            steps = np.asarray(as_numpy(result.env_time)) - before
            self._checks.check_time(steps, slice(None), np.array([terminated or truncated]))
            for _ in range(int(steps[0])):
                self.context.increment_env_step()
        self._has_ended_step = result.env_time is None or self.get_env_time() > before
        return self._receive(result), float(as_numpy(result.reward)[0]), terminated, truncated, {}

    def reset(self) -> Observation:
        """Start an episode."""
        self._begin_call()
        seed = int(self._generator.integers(2**31)) if self._seed is None else self._seed
        self._seed = None
        result = self.env.reset(_ONLY.copy(), np.array([seed]))
        self._checks.check_reset(result, _ONLY)
        self._fire_events()
        self._unsaved.note_first("reset")
        self._n_acts = 0
        self._has_ended_step = False
        return self._receive(result)

    def _begin_call(self) -> None:
        """Count a call of `step` or `reset`, and warn of attributes that others have given to the array environment."""
        self._n_calls += 1
        env = self.env.unwrapped
        new = [name for name in vars(env).keys() - self._names if not hasattr(type(env), name)]
        if new:
            self._names |= set(new)
            came = f"a wrapper has given {', '.join(map(repr, sorted(new)))} to {type(env).__name__}, which had no such"
            remedy = "set one that it has, or make this one in its constructor"
            fault = f"{came} attribute: this changes nothing unless its steps read it; {remedy}"
            warnings.warn(fault, NewAttributeWarning, stacklevel=2)

    def _receive(self, result: ArrayStep) -> Observation:
        """Read the next actor and its observation."""
        self._result = result
        self._names = set(vars(self.env.unwrapped))
        keys = _ONLY if result.next_key is None else as_numpy(result.next_key)
        agents = _ONLY if result.next_agent is None else as_numpy(result.next_agent)
        self._checks.check_next(keys, agents, slice(None))
        place = int(keys[0])
        self._actor = ActorID(self._keys[place], int(agents[0]))
        arrays = self._checks.observation_of(result, self._keys[place], slice(None))
        self._maze_state = {name: array[0].copy() for name, array in arrays.items()}
        return self._maze_state

    def _fire_events(self) -> None:
        """Fire the events of the array environment, one by one."""
        for event in self.env.array_events.drain():
            fire = getattr(self._topics[event.declaration.topic], event.declaration.name)
            for place in range(len(event.which)):
                attributes = {}
                for name, value in event.attributes.items():
                    is_array = isinstance(value, np.ndarray) and value.ndim
                    attributes[name] = value[place] if is_array else value
                fire(**attributes)

    def seed(self, seed: int) -> None:
        """Seed the next episode."""
        self._seed = seed
        self._generator = np.random.default_rng(seed)

    def reseed(self, seed: int) -> None:
        """Seed the next episode, and draw again what no agent can know of the running one; see `ReseededArrays`."""
        self.seed(seed)
        reseed_arrays(self.env, _ONLY.copy(), np.array([seed]))

    def close(self) -> None:
        """Close the array environment."""
        self.env.close()

    def get_maze_state(self) -> Observation:
        """Return the observation of the next actor, with the state of the simulation if something draws it."""
        if self._renderer is None:
            return self._maze_state
        return DrawnObservation(self._maze_state, self.env.maze_state(0))

    def get_renderer(self) -> SingleEpisodeRenderer | None:
        """Return a renderer of the results of `get_maze_state`, None if the array environment has none."""
        return None if self._renderer is None else SingleEpisodeRenderer(self._renderer)

    def get_simulation_state(self) -> Any:
        """Return the state of the array environment, as its `maze_state` makes it."""
        return self.env.maze_state(0)

    def get_kpi_calculator(self) -> KpiCalculator | None:
        """Return the calculator of the KPIs, None if there are none."""
        return self._calculator

    def actor_id(self) -> ActorID:
        """Return the next actor."""
        return self._actor

    def is_actor_done(self) -> bool:
        """True if the actor that just acted is done."""
        done = None if self._result is None else self._result.actor_done
        return done is not None and bool(as_numpy(done)[0])

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each sub-step."""
        return self.env.agent_counts_dict

    def get_actor_rewards(self) -> Array | None:
        """Return the rewards of the acts of the environment step that has ended."""
        if self._result is None or self._result.actor_rewards is None:
            return None
        self._checks.check_env_actor_rewards(self._result, _ONLY, np.array([self._n_acts]))
        return np.asarray(as_numpy(self._result.actor_rewards)[0, : self._n_acts], np.float64)

    def env_reward(self, reward: float) -> float:
        """Return the reward of the last act before array wrappers changed it.

        Args:
            reward: The reward after they changed it, which is returned if there are no wrappers.
        """
        before = None if self._result is None else self._result.env_reward
        return reward if before is None else float(as_numpy(before)[0])

    def check_state(self) -> None:
        """Check that the state which others copy is complete, whenever twice as much has happened as at the last time.

        Raises:
            EnvContractError: Something has changed that it does not hold.
        """
        if self._n_calls >= self._next_check:
            self._unsaved.check(for_copies=True)
            self._next_check = 2 * self._n_calls

    def clone_from(self, env: Any) -> None:
        """Copy the state of another episode.

        Raises:
            TypeError: The array environment cannot save its state.
            EnvContractError: Something has changed in the other episode that its state does not hold.
        """
        if not self.env.unwrapped.saves_state:
            name = type(self.env.unwrapped).__name__
            raise TypeError(f"{name} cannot be copied: its state cannot be saved; use the form for single episodes")
        env.check_state()
        if self.takes_saved_state_only:
            self.env.load_state_dict(copy.deepcopy(env.env.state_dict()))
        else:
            copy_state(self.env, env.env)
        self._names = set(vars(self.env.unwrapped))
        for name in ("_result", "_actor", "_maze_state", "_n_acts", "_has_ended_step", "_seed", "_generator"):
            setattr(self, name, copy.deepcopy(getattr(env, name)))


class _EnvRewards(BaseEnvEvents):
    """Fires the reward of an array environment before its wrappers changed it.

    Args:
        events: Fires the event.
        core_env: The array environment with its wrappers.
    """

    def __init__(self, events: BaseEnvEvents, core_env: ArrayCoreEnv) -> None:
        self._events = events
        self._core_env = core_env

    def reward(self, value: float) -> None:
        """Fire the environment's reward instead of the changed one."""
        self._events.reward(value=self._core_env.env_reward(value))


class ArrayMazeEnv(ClosedAttributes, MazeEnv):
    """One episode of an array environment as a `MazeEnv`, for everything that plays single episodes.

    Args:
        env: The array environment, not yet allocated.

    Attributes:
        array_env: The array environment.

    Example:
        >>> from maze_pl.envs import CartPoleArrayEnv
        >>> env = ArrayMazeEnv(CartPoleArrayEnv())
        >>> observation, _ = env.reset(seed=1)
        >>> observation["observation"].shape
        (4,)
    """

    attribute_remedy = _REMEDY

    def __init__(self, env: ArrayEnv) -> None:
        action_conversions: dict[StepKey, ActionConversionInterface] = {}
        for key, space in env.action_spaces_dict.items():
            action_conversions[key] = SameAction(space, env.action_masks_dict.get(key, {}))
        observation_conversions: dict[StepKey, ObservationConversionInterface] = {}
        for key, space in env.observation_spaces_dict.items():
            observation_conversions[key] = SameObservation(space)
        core_env = ArrayCoreEnv(env)
        super().__init__(core_env, action_conversions, observation_conversions)
        if isinstance(env, ArrayWrapper):
            self._base_events = _EnvRewards(self._base_events, core_env)
        self.array_env = env
        self.heuristic_policy = env.heuristic_policy
        self.close_attributes(ArrayMazeEnv)

    def observation_maker(self, key: StepKey) -> str:
        """Return the name of the class of the array environment, without wrappers."""
        return type(self.array_env.unwrapped).__name__

    def render(self) -> Any:
        """Draw the present state of the simulation: `[height, width, 3]` bytes.

        Raises:
            NotImplementedError: The array environment has no renderer.
        """
        renderer = self.get_renderer()
        if renderer is None:
            return super().render()
        return figure_to_array(renderer.render(self.get_maze_state(), None, self.get_step_events()))


def _zeros(space: spaces.Dict) -> dict[str, Array]:
    """Arrays [1, ...] for one action."""
    return {head: np.zeros((1, *(part.shape or ())), part.dtype) for head, part in space.spaces.items()}
