"""The simulation, free of all that learning needs, conversions between its objects and arrays, and its rewards.

Rewards are computed from events, apart from the simulation, so that they can be exchanged without touching it.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.structured_env import Action, Array, Observation, StructuredEnv
from maze_pl.events import EnvironmentContext, KpiCalculator, Pubsub, RewardShareEvents, Subscriber

_ONLY_ACTOR = ActorID(step_key=0, agent_id=0)


class CoreEnv(ABC):
    """The mechanics of an environment, in terms of its own state and action objects.

    A flat simulation implements the abstract methods only; its time is kept by the `MazeEnv` around it. One with
    several sub-steps or agents also says who acts next (`actor_id`) and how many agents there are
    (`agent_counts_dict`), and calls `self.context.increment_env_step()` in the act that completes an environment step.

    Args:
        context: Episode and time, for simulations that share them with other components; made here if None.

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

        Returns:
            State, reward, terminated, truncated and further information.
        """

    @abstractmethod
    def reset(self) -> Any:
        """Start an episode and return its first state; events fired here count in the first step."""

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Set the state of all random generators; the next `reset` and all that follows depend on it alone."""

    @abstractmethod
    def close(self) -> None:
        """Release what the simulation holds; safe to call twice."""

    @abstractmethod
    def get_maze_state(self) -> Any:
        """The current state."""

    def get_renderer(self) -> Any:
        """What draws states, None if nothing does."""
        return None

    def get_serializable_components(self) -> dict[str, Any]:
        """Components whose state is recorded together with the state; none by default."""
        return {}

    def get_kpi_calculator(self) -> KpiCalculator | None:
        """What computes performance indicators at the end of an episode; nothing by default."""
        return None

    def actor_id(self) -> ActorID:
        """The actor that acts next; by default always the same."""
        return _ONLY_ACTOR

    def is_actor_done(self) -> bool:
        """Whether the actor that just acted is done; by default it never is."""
        return False

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step, -1 where it changes; by default one sub-step with one agent."""
        return {0: 1}

    def get_actor_rewards(self) -> Array | None:
        """Rewards of the acts of the finished environment step in order; None (default) if they are the team's."""
        return None

    def get_env_time(self) -> int:
        """Number of environment steps since the episode started."""
        return self.context.env_time

    def clone_from(self, env: Any) -> None:
        """Take over the state of another simulation that was made in the same way, so that both go on equally.

        One whose attributes are all of its state, and can be copied, calls `maze_pl.envs.take_over(self, env)`.

        Raises:
            TypeError: This simulation cannot (the default).
        """
        raise TypeError(f"{type(self).__name__} cannot take over the state of another one; define its clone_from")


class ObservationConversionInterface(ABC):
    """Turns the states of a simulation into observations, for one sub-step."""

    @abstractmethod
    def space(self) -> spaces.Dict:
        """Space of the observations: a Dict of Box, Discrete, MultiDiscrete and MultiBinary."""

    @abstractmethod
    def maze_to_space(self, maze_state: Any) -> Observation:
        """Observation of a state; made of arrays that nobody changes later, and without changing the state."""

    def space_to_maze(self, observation: Observation) -> Any:
        """State that an observation shows, where observations show all of it.

        Raises:
            TypeError: This conversion has no inverse.
        """
        raise TypeError(f"{type(self).__name__} cannot turn observations into states; define its space_to_maze")


class ActionConversionInterface(ABC):
    """Turns the actions of an agent into those of a simulation, for one sub-step."""

    @abstractmethod
    def space(self) -> spaces.Dict:
        """Space of the actions: a Dict whose entries are called heads."""

    @abstractmethod
    def space_to_maze(self, action: Action, maze_state: Any) -> Any:
        """The simulation's form of an action.

        Args:
            action: Head -> an int for `Discrete`, an array otherwise.
            maze_state: The state in which it is taken.
        """

    def maze_to_space(self, maze_action: Any) -> Action:
        """Agent's form of a simulation's action, needed to learn from recorded simulations.

        Raises:
            TypeError: This conversion has no inverse.
        """
        raise TypeError(f"{type(self).__name__} cannot turn simulation actions back; define its maze_to_space")

    def noop_action(self) -> Action:
        """The action that does nothing, where there is one.

        Raises:
            TypeError: There is none.
        """
        raise TypeError(f"{type(self).__name__} knows no action that does nothing; define its noop_action")

    @property
    def action_masks(self) -> Mapping[str, str]:
        """Head -> name of the observation whose nonzero entries are allowed; no masks by default."""
        return {}


def take_over(own: Any, other: Any, *counterparts: tuple[Any, Any]) -> None:
    """Replace all attributes of an object by copies of another one's.

    Where the other one refers to its environment (a wrapper, the simulation, the context, the pubsub or one of its
    subscribers), the copies refer to the counterpart in the own one.

    Args:
        own: A part of an environment: one of its wrappers, its simulation, or what belongs to these.
        other: The same part of another environment that was made in the same way.
        counterparts: Further pairs that stand for each other, such as the two environments.

    Raises:
        TypeError: An attribute cannot be copied.
    """
    pairs = [pair for given in ((own, other), *counterparts) for pair in _parts(*given)]
    try:
        state = copy.deepcopy(vars(other), {id(theirs): ours for ours, theirs in pairs})
    except Exception as error:  # whatever the attributes' own classes make of it
        raise TypeError(f"{type(own).__name__} cannot be copied ({error}); define its clone_from") from error
    vars(own).clear()
    vars(own).update(state)


def _parts(own: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """Two objects and, if they are environments, their parts in pairs."""
    yield own, other
    if isinstance(own, StructuredEnv | CoreEnv):
        for name in ("env", "core_env", "context", "pubsub"):
            if isinstance(part := vars(own).get(name), StructuredEnv | CoreEnv | EnvironmentContext | Pubsub):
                yield from _parts(part, vars(other)[name])
    elif isinstance(own, Pubsub):
        yield from zip(own.subscribers, other.subscribers, strict=True)


class RewardAggregatorInterface(Subscriber):
    """Turns the events of an environment step, and the state after it, into its reward.

    The simulation registers it with its pubsub and asks for the reward once at the end of a step. With one aggregator
    for each agent, it returns what they say from `get_actor_rewards`.
    """

    @abstractmethod
    def summarize_reward(self, maze_state: Any = None) -> float:
        """The reward of the current environment step.

        Args:
            maze_state: State after the step, for rewards that depend on it.
        """


class WeightedRewardAggregator(RewardAggregatorInterface):
    """The weighted sum of what several aggregators say.

    Each one's share, its reward times its weight, is logged as `RewardShareEvents/share/<statistic>/<name>`, so that
    the shares of an episode add up to its reward.

        reward_aggregator:
          class_path: maze_pl.envs.WeightedRewardAggregator
          init_args:
            aggregators:
              usage: {class_path: my_project.UsageReward}
              waste: {class_path: my_project.WasteReward}
            weights: {waste: 0.1}

    Args:
        aggregators: Name -> aggregator.
        weights: Name -> weight; 1 for those that are not named.

    Raises:
        ValueError: There is no aggregator, a weight is for an unknown one, or is not finite.
    """

    def __init__(
        self, aggregators: Mapping[str, RewardAggregatorInterface], weights: Mapping[str, float] | None = None
    ) -> None:
        super().__init__()
        self.aggregators = dict(aggregators)
        self.weights = dict.fromkeys(self.aggregators, 1.0) | dict(weights or {})
        finite = all(map(math.isfinite, self.weights.values()))
        if not self.aggregators or set(self.weights) != set(self.aggregators) or not finite:
            raise ValueError(f"weights={weights} must be finite numbers for the aggregators {list(self.aggregators)}")
        self._events: Any = None

    def get_interfaces(self) -> list[type]:
        """None: the parts receive their events themselves."""
        return []

    def join(self, pubsub: Pubsub) -> None:
        """Register the parts, too."""
        super().join(pubsub)
        self._events = pubsub.create_event_topic(RewardShareEvents)
        for aggregator in self.aggregators.values():
            pubsub.register_subscriber(aggregator)

    def summarize_reward(self, maze_state: Any = None) -> float:
        """The weighted sum.

        Raises:
            EnvContractError: An aggregator says something else than a finite number.
        """
        if self._events is None:
            raise RuntimeError("this aggregator receives no events: call pubsub.register_subscriber with it first")
        total = 0.0
        for name, aggregator in self.aggregators.items():
            reward = aggregator.summarize_reward(maze_state)
            if not isinstance(reward, Real) or not math.isfinite(reward):
                kind = type(aggregator).__name__
                raise EnvContractError(f"the reward of aggregator {name!r} ({kind}) is {reward!r}, not a finite number")
            share = self.weights[name] * float(reward)
            self._events.share(name=name, value=share)
            total += share
        return total
