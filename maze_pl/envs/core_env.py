"""The simulation, free of everything that learning needs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.structured_env import Array
from maze_pl.events.context import EnvironmentContext
from maze_pl.events.kpi import KpiCalculator
from maze_pl.events.pubsub import Pubsub

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
