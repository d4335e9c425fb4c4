"""Simulations, which are independent of learning, with their conversions and reward aggregators.

Conversions map between the simulation's objects and arrays. Rewards are computed from events,
outside the simulation, so that they can be replaced without changing it.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.structured_env import Action, Array, Observation, StructuredEnv
from maze_pl.events import EnvironmentContext, KpiCalculator, Pubsub, Subscriber

_ONLY_ACTOR = ActorID(step_key=0, agent_id=0)


class CoreEnv(ABC):
    """Simulation of an environment, with its own state and action objects.

    A flat simulation implements the abstract methods only; the `MazeEnv` around it keeps its time.
    A simulation with several sub-steps or agents also defines the next actor (`actor_id`) and the
    number of agents (`agent_counts_dict`), and calls `self.context.increment_env_step()` in the act
    that completes an environment step.

    Args:
        context: Episode and time, for simulations that share them with other components; created if
            None.

    Attributes:
        context: The episode's identifier and the environment time.
        pubsub: Broker of the events that the simulation fires.
    """

    def __init__(self, context: EnvironmentContext | None = None) -> None:
        self.context = context or EnvironmentContext()
        self.pubsub = Pubsub(self.context)

    @abstractmethod
    def step(self, maze_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Perform one act.

        The `MazeEnv` around it separates the events of environment steps and keeps the time of flat
        simulations. Other callers use `MazeEnv.step_simulation`, as events add up otherwise.

        Returns:
            State, reward, terminated, truncated and further information.
        """

    @abstractmethod
    def reset(self) -> Any:
        """Start an episode and return its first state.

        Events fired here belong to the first step.
        """

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Seed all random generators.

        The next `reset` and everything after it must depend on the seed alone.
        """

    def reseed(self, seed: int) -> None:
        """Make the rest of the running episode depend on a seed, as far as it is random.

        Search tries actions in copies of an environment, which it reseeds, so that it does not see
        the true future. A simulation that has drawn parts of the future already, such as a list of
        coming orders, must draw again whatever no agent can know. By default, the generators are
        seeded.

        Args:
            seed: The seed.
        """
        self.seed(seed)

    @abstractmethod
    def close(self) -> None:
        """Release the simulation's resources; safe to call twice."""

    @abstractmethod
    def get_maze_state(self) -> Any:
        """Return the current state."""

    def get_simulation_state(self) -> Any:
        """Return the state that a `MazeStatePolicy` gets: the current state, unless conversions need another one.

        If it is another one, `AgentDeployment` needs a simulation in each state for such policies.
        """
        return self.get_maze_state()

    def get_renderer(self) -> Any:
        """Return the renderer of states; None (default) if there is none."""
        return None

    def get_serializable_components(self) -> dict[str, Any]:
        """Return the components that are recorded with the simulation's state; none by default."""
        return {}

    def get_kpi_calculator(self) -> KpiCalculator | None:
        """Return the calculator of an episode's performance indicators; none by default."""
        return None

    def actor_id(self) -> ActorID:
        """Return the actor that acts next; by default always the same one."""
        return _ONLY_ACTOR

    def is_actor_done(self) -> bool:
        """True if the actor that just acted is done; always False by default."""
        return False

    def get_done_actors(self) -> Sequence[ActorID]:
        """Return the actors whose episodes have ended in the finished environment step after their acts in it.

        An actor may end with the act of another one, or with the step. If it has acted in the step, its latest act
        is its last. It is asked for after the act that completes the step or ends the episode, if the class of the
        simulation or of a wrapper overrides it. By default, there are none.
        """
        return ()

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each sub-step, -1 where it changes; by default one agent in one sub-step."""
        return {0: 1}

    def get_actor_rewards(self) -> Array | None:
        """Return the rewards of the finished environment step's acts in order; they should add up to its reward.

        If the episode ends within a step, these are the acts so far. None (default) stands for a
        team reward.
        """
        return None

    def get_env_time(self) -> int:
        """Return the number of environment steps since the episode started."""
        return self.context.env_time

    def simulation_to_copy(self) -> "CoreEnv":
        """Return the simulation whose state others copy: this one."""
        return self

    def clone_from(self, env: Any) -> None:
        """Copy the state of another simulation, so that both continue identically.

        The other simulation was made in the same way. A simulation whose attributes can be copied
        and hold its whole state calls `maze_pl.envs.take_over(self, env)`.

        Raises:
            TypeError: This simulation does not support it (the default).
        """
        raise TypeError(f"{type(self).__name__} cannot take over the state of another one; define its clone_from")


class ObservationConversionInterface(ABC):
    """Converts the states of a simulation to observations, for one sub-step."""

    @abstractmethod
    def space(self) -> spaces.Dict:
        """Return the observation space: a Dict of Box, Discrete, MultiDiscrete and MultiBinary."""

    @abstractmethod
    def maze_to_space(self, maze_state: Any) -> Observation:
        """Convert a state to an observation.

        It must not modify the state, and nothing may modify the returned arrays later.
        """

    def space_to_maze(self, observation: Observation) -> Any:
        """Convert an observation back to a state, if observations show the whole state.

        Raises:
            TypeError: This conversion has no inverse.
        """
        raise TypeError(f"{type(self).__name__} cannot turn observations into states; define its space_to_maze")


class ActionConversionInterface(ABC):
    """Converts the actions of an agent to actions of a simulation, for one sub-step."""

    @abstractmethod
    def space(self) -> spaces.Dict:
        """Return the action space: a Dict whose entries are called heads."""

    @abstractmethod
    def space_to_maze(self, action: Action, maze_state: Any) -> Any:
        """Convert an action to the simulation's action.

        Args:
            action: Head -> an int for `Discrete`, an array otherwise.
            maze_state: The state in which the action is taken.
        """

    def maze_to_space(self, maze_action: Any) -> Action:
        """Convert the simulation's action back; needed to learn from recorded simulations.

        Raises:
            TypeError: This conversion has no inverse.
        """
        raise TypeError(f"{type(self).__name__} cannot turn simulation actions back; define its maze_to_space")

    def noop_action(self) -> Action:
        """Return the action that does nothing.

        Raises:
            TypeError: There is no such action.
        """
        raise TypeError(f"{type(self).__name__} knows no action that does nothing; define its noop_action")

    @property
    def action_masks(self) -> Mapping[str, str]:
        """Head -> name of its mask, an observation; no masks by default.

        A mask is 1 where the action is allowed and 0 elsewhere.
        """
        return {}


def take_over(target: Any, source: Any, *counterparts: tuple[Any, Any]) -> None:
    """Replace all attributes of an object by copies of another object's attributes.

    References to the other environment (a wrapper, the simulation, the context, the pubsub or one
    of its subscribers) become references to the counterpart in this environment.

    Args:
        target: A part of this environment: a wrapper, the simulation, or an object that belongs to
            them.
        source: The same part of another environment that was made in the same way.
        counterparts: Further pairs of corresponding objects, such as the two environments.

    Raises:
        TypeError: An attribute cannot be copied.
    """
    pairs = list(_parts(target, source))
    for ours, theirs in counterparts:
        pairs += _parts(ours, theirs)
    try:
        state = copy.deepcopy(vars(source), {id(theirs): ours for ours, theirs in pairs})
    except Exception as error:  # depends on the classes of the attributes
        raise TypeError(f"{type(target).__name__} cannot be copied ({error}); define its clone_from") from error
    vars(target).clear()
    vars(target).update(state)


def _parts(own: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """Yield two objects as a pair and, if they are environments, their parts in pairs."""
    yield own, other
    if isinstance(own, StructuredEnv | CoreEnv):
        for name in ("env", "core_env", "context", "pubsub"):
            if isinstance(part := vars(own).get(name), StructuredEnv | CoreEnv | EnvironmentContext | Pubsub):
                yield from _parts(part, vars(other)[name])
    elif isinstance(own, Pubsub):
        yield from own.counterparts(other)


class RewardAggregatorInterface(Subscriber):
    """Computes the reward of an environment step from its events and the state after it.

    The simulation registers the aggregator with its pubsub and asks for the reward once, in the act
    that completes an environment step or ends the episode. Asked in several acts of a step, the
    aggregator pays for earlier events again, as it holds all events of the step so far. With one
    aggregator per agent, the simulation returns their rewards from `get_actor_rewards`.
    """

    @abstractmethod
    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the reward of the current environment step.

        Args:
            maze_state: State after the step, for rewards that depend on it.
        """
