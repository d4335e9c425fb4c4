"""Interface of environments, shared by `MazeEnv` and stacks of wrappers."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.events import EnvironmentContext, EventRecord, KpiCalculator, Pubsub

if TYPE_CHECKING:
    from maze_pl.envs.core_env import CoreEnv

Array = np.ndarray[Any, np.dtype[Any]]
Observation = dict[str, Array]
Action = Mapping[str, Any]
"""Head -> an int for `Discrete`, an array for the other spaces."""
StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated and further information."""
StepParts = Generator[Any, Any, StepResult]
"""A step that waits for results: yields each action for what is inside, and gets the result of its step."""
ResetResult = tuple[Observation, dict[str, Any]]
"""Observation and further information."""
Dicts = tuple[dict[StepKey, Observation] | None, dict[StepKey, Action] | None]
"""Observation and action of each sub-step."""


class EnvMeta(ABCMeta):
    """Metaclass that makes `isinstance` see through wrappers.

    `isinstance(env, C)` is true if the environment, or anything inside it along the `env`
    attributes of maze_pl's wrappers, is an instance of C. To test the outermost class only, use
    `type(env)`. If C is not a class of maze_pl, such as a mixin of the environment, Python asks for
    `env.__class__`, which `joined_class` makes.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        """True if the instance, or an environment that it wraps, is of this class."""
        while not super().__instancecheck__(instance):
            if not issubclass(type(type(instance)), EnvMeta):
                return False
            instance = vars(instance).get("env")
        return True


class _JoinedMeta(type):
    """Metaclass of classes that serve only to show `isinstance` the classes in a stack of wrappers."""

    kinds: tuple[type, ...]

    def mro(cls) -> list[type]:
        """Return the class itself, then the parts' classes and their bases, outermost first."""
        parents = dict.fromkeys(chain.from_iterable(kind.__mro__ for kind in cls.__dict__["kinds"]))
        del parents[object]
        return [cls, *parents, object]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an instance of the outermost class, as calling the `type` of the stack does."""
        return cls.kinds[0](*args, **kwargs)


@lru_cache(maxsize=256)
def joined_class(classes: tuple[type, ...]) -> type:
    """Return a class that is derived from several others, which may be subclasses of one another.

    Args:
        classes: Classes of a stack of wrappers, from the outermost inwards.

    Returns:
        The class, with the name of the first one; the first class itself if Python cannot join them
        because of `__slots__`.
    """
    names = {name: getattr(classes[0], name) for name in ("__module__", "__qualname__", "__doc__")}
    try:
        return _JoinedMeta(classes[0].__name__, (), {**names, "kinds": classes})
    except TypeError:
        return classes[0]


class StructuredEnv(metaclass=EnvMeta):
    """An environment in which one actor acts at a time; the environment decides which one.

    An environment step consists of one or several acts; an act is one call of `step`. A flat
    environment, in which a single actor acts once per environment step, is the special case. By
    default, methods forward to the simulation.

    Attributes:
        heuristic_policy: Class path of a policy that performs reasonably without training, for
            `maze-pl rollout --policy heuristic`; None if there is none. Environments set it in
            their class.
    """

    heuristic_policy: str | None = None
    core_env: CoreEnv
    context: EnvironmentContext
    pubsub: Pubsub

    @abstractmethod
    def step(self, action: Action) -> StepResult:
        """Perform the act of the current actor.

        Returns:
            Observation of the next actor, reward, terminated, truncated and further information.
        """

    @abstractmethod
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode.

        Args:
            seed: Determines all randomness of the episode; None continues with the current
                generators.
            options: Passed on to environments that accept options.
        """

    def begin_env_step(self) -> None:
        """Begin an environment step if the previous one is complete; otherwise do nothing.

        Events fired from now on belong to the new step. Acts that reach the simulation begin it
        automatically. A wrapper that splits a step into sub-steps must call this first in each act
        that does not reach the simulation.
        """
        if self.context.env_step_incremented:
            self.pubsub.clear()

    def close(self) -> None:
        """Release the environment's resources; safe to call twice."""
        self.core_env.close()

    def actor_id(self) -> ActorID:
        """Return the actor that acts next; ids of finished actors are not reused in an episode."""
        return self.core_env.actor_id()

    def is_actor_done(self) -> bool:
        """True if the actor that just acted is done; independent of the end of the episode."""
        return self.core_env.is_actor_done()

    def get_done_actors(self) -> Sequence[ActorID]:
        """Return the actors whose episodes have ended in the finished environment step after their acts in it."""
        return self.core_env.get_done_actors()

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each sub-step, -1 where it changes during an episode."""
        return self.core_env.agent_counts_dict

    def get_actor_rewards(self) -> Array | None:
        """Return the rewards of the finished environment step's acts in order.

        None stands for a team reward.
        """
        return self.core_env.get_actor_rewards()

    def get_env_time(self) -> int:
        """Return the number of environment steps since the episode started."""
        return self.core_env.get_env_time()

    @property
    @abstractmethod
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Observation space of each sub-step."""

    @property
    @abstractmethod
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Action space of each sub-step."""

    @property
    def observation_space(self) -> spaces.Dict:
        """Observation space of the actor that acts next."""
        return self.observation_spaces_dict[self.actor_id().step_key]

    @property
    def action_space(self) -> spaces.Dict:
        """Action space of the actor that acts next."""
        return self.action_spaces_dict[self.actor_id().step_key]

    @property
    @abstractmethod
    def action_masks_dict(self) -> Mapping[Any, Mapping[str, str]]:
        """Step key -> action head -> name of its mask, an observation.

        A mask is 1 where the action is allowed and 0 elsewhere.
        """

    def get_maze_state(self) -> Any:
        """Return the simulation's state."""
        return self.core_env.get_maze_state()

    def get_simulation_state(self) -> Any:
        """Return the state that a `MazeStatePolicy` gets; see `CoreEnv.get_simulation_state`."""
        return self.core_env.get_simulation_state()

    @abstractmethod
    def get_maze_action(self) -> Any:
        """Return the last action as the simulation received it, None before the first one."""

    def get_episode_id(self) -> str:
        """Return the identifier (UUID) of the current episode."""
        return self.context.episode_id

    def get_step_events(self) -> list[EventRecord]:
        """Return the events of the current environment step so far."""
        return self.pubsub.get_step_events()

    def get_kpi_calculator(self) -> KpiCalculator | None:
        """Return the calculator of an episode's performance indicators, None if there is none."""
        return self.core_env.get_kpi_calculator()

    def get_renderer(self) -> Any:
        """Return the renderer of this environment's states, None if there is none."""
        return self.core_env.get_renderer()

    def get_serializable_components(self) -> dict[str, Any]:
        """Return the components whose state is recorded together with the simulation's state."""
        return self.core_env.get_serializable_components()

    @abstractmethod
    def clone_from(self, env: Any) -> None:
        """Copy the state of another environment, so that both continue identically.

        The other environment was made in the same way.

        Raises:
            TypeError: The simulation or a wrapper cannot be copied, or the classes differ.
        """

    def reseed(self, seed: int) -> None:
        """Make the rest of the episode depend on a seed, as far as it is random; see `CoreEnv.reseed`."""
        self.core_env.reseed(seed)

    @abstractmethod
    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action to the agents' observations and actions.

        Args:
            maze_state: The recorded state, or None.
            maze_action: The action that was taken in this state, or None.
            first_step_in_episode: Whether the state is the first of an episode, for wrappers that
                keep a history.

        Returns:
            Observation and action of each sub-step; None for an argument that is None.
        """


def made_without_init(kind: type, *arguments: Any) -> Any:
    """Make an object without its state, as `copyreg.__newobj__` does.

    `copyreg.__newobj__` itself only works for objects whose `type` is their `__class__`.
    """
    return kind.__new__(kind, *arguments)
