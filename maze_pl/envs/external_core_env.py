"""Stand-in for a simulation whose states come from outside, as in deployment."""

from collections.abc import Callable, Mapping
from typing import Any

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.core_env import CoreEnv
from maze_pl.envs.structured_env import Array
from maze_pl.events import KpiCalculator


class ExternalCoreEnv(CoreEnv):
    """Replaces a simulation in its `MazeEnv`; the real system steps and provides its states.

    It shares context and pubsub with the simulation, so that wrappers work as before. The
    simulation itself is only asked for what does not depend on its state: renderer, KPIs and
    numbers of agents. If rules get another state than conversions, only a twin can tell it.

    Args:
        simulation: The simulation.
        reports_events: Whether the simulation's events are fired, so that KPIs can be computed.
        on_reset: Called by each `reset`; fires events that belong to the first step of the episode.

    Attributes:
        reset_options: Options of the last reset; they are not used.
        reset_info: Information about the first state of the episode.
        is_flat: Whether the simulation has one actor, which acts once in each environment step.
        twin: A simulation in the current state, for search and for rules; None if there is none.
        rules_need_twin: Whether the simulation has a `get_simulation_state`, so that the states that
            come from outside are not what rules get.
    """

    def __init__(
        self,
        simulation: CoreEnv,
        reports_events: bool,
        on_reset: Callable[[], object],
    ) -> None:
        self.context = simulation.context
        self.pubsub = simulation.pubsub
        self.reset_options: dict[str, Any] | None = None
        self.reset_info: dict[str, Any] = {}
        self.twin: CoreEnv | None = None
        self._simulation = simulation
        self._reports_events = reports_events
        self._on_reset = on_reset
        self._counts = dict(simulation.agent_counts_dict)
        self.is_flat = list(self._counts.values()) == [1]
        self.rules_need_twin = type(simulation).get_simulation_state is not CoreEnv.get_simulation_state
        self._maze_state: Any = None
        self._actor_id = ActorID(next(iter(self._counts)), 0)
        self._is_actor_done = False
        self._actor_rewards: Array | None = None

    def __getattr__(self, name: str) -> Any:
        """Refuse attributes of the simulation, which would not belong to the current state."""
        if name.startswith("_"):
            raise AttributeError(name)
        kind = type(self._simulation).__name__
        raise AttributeError(f"{name!r} of {kind} is unknown in deployment: read it from the maze state")

    @property
    def simulation_class(self) -> type[CoreEnv]:
        """Class of the simulation."""
        return type(self._simulation)

    def begin(self, maze_state: Any, info: dict[str, Any], actor_id: ActorID) -> None:
        """Set the first state of an episode, which the next `reset` returns."""
        self._maze_state = maze_state
        self.reset_info = info
        self._actor_id = actor_id
        self._is_actor_done = False
        self._actor_rewards = None

    def advance(
        self,
        maze_state: Any,
        actor_id: ActorID,
        is_actor_done: bool,
        actor_rewards: Array | None,
        completes_env_step: bool,
    ) -> None:
        """Set the state after an act.

        Args:
            maze_state: The state.
            actor_id: The actor that acts in it.
            is_actor_done: Whether the actor that has acted is done.
            actor_rewards: Rewards of the acts of a finished environment step, None for a team reward.
            completes_env_step: Whether the act has completed an environment step of a simulation that
                is not flat; a flat one's time is kept by its `MazeEnv`.
        """
        self._maze_state = maze_state
        self._actor_id = actor_id
        self._is_actor_done = is_actor_done
        self._actor_rewards = actor_rewards
        if completes_env_step:
            self.context.increment_env_step()

    def step(self, maze_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Refuse to step.

        Raises:
            TypeError: Always.
        """
        kind = type(self._simulation).__name__
        remedy = "a wrapper that steps by itself must do so in step_in_parts"
        raise TypeError(f"{kind} was stepped in deployment, where only states come: {remedy}")

    def simulation_to_copy(self) -> CoreEnv:
        """Return the simulation in the current state.

        Raises:
            TypeError: There is none.
        """
        if self.twin is None:
            raise TypeError("the deployment only knows the state: give act a simulation in this state (simulation=...)")
        return self.twin

    def reset(self) -> Any:
        """Return the first state of the episode."""
        self._on_reset()
        return self._maze_state

    def seed(self, seed: int) -> None:
        """Do nothing: the real system has its own randomness."""

    def close(self) -> None:
        """Close the simulation."""
        self._simulation.close()

    def get_maze_state(self) -> Any:
        """Return the latest state."""
        return self._maze_state

    def get_simulation_state(self) -> Any:
        """Return the latest state or, if rules get another one, that of a simulation in this state.

        Raises:
            TypeError: There is no such simulation.
        """
        if not self.rules_need_twin:
            return self._maze_state
        if self.twin is None:
            kind = type(self._simulation).__name__
            fault = f"get_simulation_state of {kind} is unknown in deployment, where only states come"
            raise TypeError(f"{fault}: give act a simulation in this state (simulation=...)")
        return self.twin.get_simulation_state()

    def get_renderer(self) -> Any:
        """Return the simulation's renderer of states."""
        return self._simulation.get_renderer()

    def get_kpi_calculator(self) -> KpiCalculator | None:
        """Return the simulation's calculator, or None if the events that it needs are not fired."""
        return self._simulation.get_kpi_calculator() if self._reports_events else None

    def actor_id(self) -> ActorID:
        """Return the actor that acts next."""
        return self._actor_id

    def is_actor_done(self) -> bool:
        """True if the actor that just acted is done."""
        return self._is_actor_done

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each sub-step of the simulation."""
        return self._counts

    def get_actor_rewards(self) -> Array | None:
        """Return the rewards of the finished environment step's acts; None for a team reward."""
        return self._actor_rewards
