"""States of a real system instead of those of a simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.deployment.prepared_conversion import PreparedConversion
from maze_pl.deployment.reported_events import ReportedEvents
from maze_pl.deployment.stack_steps import layers_of
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.contract import FLAGS, NUMBERS, EnvContractError, check_step, describe
from maze_pl.envs.external_core_env import ExternalCoreEnv
from maze_pl.envs.structured_env import Action, Array, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, RewardWrapper, Wrapper, wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper


@dataclass(slots=True)
class Received:
    """A state, and the step that led to it; see `AgentDeployment.act`."""

    maze_state: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] | None = None
    actor_id: tuple[StepKey, int] | None = None
    env_time: int | None = None
    is_actor_done: bool = False
    actor_rewards: Sequence[float] | None = None
    simulation: Any = None
    is_last: bool = False  # no decision follows


class Outside:
    """Replaces the states of a simulation with those of a real system, after checking them.

    Args:
        env: The environment with its wrappers; its simulation is replaced.
        reports_events: Whether the simulation's events are fired, so that KPIs can be computed.
        state_reader: Name of the rule that uses the state of the simulation, for messages; None if no
            rule does.
        agent_limits: Number of agents of each sub-step in which the policy has a network for each.

    Attributes:
        is_flat: Whether the simulation has a single actor, which acts once in each environment step.
        events: Events of the real system.
    """

    def __init__(
        self,
        env: LogStatsWrapper,
        reports_events: bool,
        state_reader: str | None,
        agent_limits: Mapping[StepKey, int],
    ) -> None:
        layers = layers_of(env)
        maze_env = layers[-1]
        if type(maze_env.core_env) is ExternalCoreEnv:
            raise ValueError("the environment already belongs to another deployment: make one for each")
        if not reports_events:
            env.leave_out_kpis()
        kinds = [type(layer) for layer in layers[:-1]]
        custom = [kind for kind in kinds if not kind.__module__.startswith("maze_pl.")]
        refuses_nan = not any(_may_replace_observations(kind) for kind in custom)
        self.events = ReportedEvents(env.pubsub)
        self._core = ExternalCoreEnv(maze_env.core_env, reports_events, self.events.begin_episode)
        self._maze_env = maze_env
        self._conversions: dict[StepKey, PreparedConversion] = {}
        for key, conversion in maze_env.observation_conversion_dict.items():
            space = maze_env.observation_spaces_dict[key]
            self._conversions[key] = PreparedConversion(conversion, space, key, refuses_nan)
        maze_env.core_env = self._core
        maze_env._unchecked = []  # states are checked before anything advances
        maze_env.observation_conversion_dict.update(self._conversions)
        self.is_flat = self._core.is_flat
        self._counts = dict(self._core.agent_counts_dict)
        self._only_actor = self._first_actor = self._core.actor_id()
        self._env_time = 0
        self._n_acts = 0  # of the running environment step, before the latest one
        self._done: set[ActorID] = set()  # actors that are done in the running episode
        self._state_reader = state_reader if self._core.rules_need_twin else None
        self._can_preview = dict(env.agent_counts_dict) == self._counts and not custom
        for key, limit in agent_limits.items():
            if self._counts.get(key, 0) < 0:
                self._counts[key] = limit

    @property
    def maze_state(self) -> Any:
        """The latest state."""
        return self._core.get_maze_state()

    def set_twin(self, received: Received) -> None:
        """Set the simulation in the current state, for search and for rules.

        Args:
            received: The state with its simulation, or an environment around it; None if there is none.

        Raises:
            EnvContractError: It is of another class.
        """
        simulation = received.simulation
        core = getattr(simulation, "core_env", simulation)
        expected = self._core.simulation_class
        if core is not None and type(core) is not expected:
            raise EnvContractError(
                f"act was given the simulation {describe(simulation)}; expected a {expected.__name__}"
            )
        if not received.is_last:
            self._core.twin = core

    def _require_twin(self) -> None:
        """Refuse a state that does not contain the state that a rule uses.

        Raises:
            EnvContractError: There is no simulation in this state, either.
        """
        if self._state_reader is None or self._core.twin is not None:
            return
        remedy = "give act a simulation in this state (simulation=...)"
        where = f"only {self._core.simulation_class.__name__}.get_simulation_state makes"
        if isinstance(self._maze_env, ArrayMazeEnv):
            where = f"observations of {type(self._maze_env.array_env.unwrapped).__name__} do not contain"
            remedy = f"give the form for single episodes as env, or {remedy}"
        raise EnvContractError(f"{self._state_reader} uses the state of the simulation, which {where}: {remedy}")

    def accept_first(self, received: Received) -> None:
        """Take the first state of an episode.

        Raises:
            EnvContractError: It is refused, and nothing has changed.
        """
        self._require_twin()
        actor, _ = self._actor_of(received, is_first=True)
        self._prepare(received.maze_state, actor)
        self._env_time = 0
        self._n_acts = 0
        self._done.clear()
        self._first_actor = actor
        self._core.begin(received.maze_state, received.info or {}, actor)

    def accept(self, received: Received) -> None:
        """Take the state after an act.

        Raises:
            EnvContractError: It is refused, and nothing has changed.
        """
        if received.terminated or received.truncated:
            self.complete_last(received)
        if not received.is_last:
            self._require_twin()
        actor, completes = self._actor_of(received, is_first=False)
        acted = self._core.actor_id()
        if not (self.is_flat or received.is_last):
            self._require_alive(actor, received.is_actor_done and actor == acted)
        n_acts = self._n_acts + 1
        ends_env_step = completes or self.is_flat or received.is_last
        attributed = _attributed(received.actor_rewards, n_acts) if ends_env_step else None
        self._prepare(received.maze_state, actor)
        self._env_time += completes
        self._n_acts = 0 if completes or self.is_flat else n_acts
        if received.is_actor_done:
            self._done.add(acted)
        self._core.advance(received.maze_state, actor, received.is_actor_done, attributed, completes)

    def _require_alive(self, actor: ActorID, is_done: bool) -> None:
        """Refuse an actor that is to act after it was done, as training does.

        Args:
            actor: The actor that acts next.
            is_done: Whether its last act was the one before.
        """
        if is_done or actor in self._done:
            remedy = "is_actor_done tells of the last act of an actor in the episode"
            raise EnvContractError(f"actor_id={tuple(actor)} acts after it was done; {remedy}")

    def complete_last(self, received: Received) -> None:
        """Add actor and time to the last state of an episode, in which no actor acts.

        By default, the environment step is complete. The state has to be converted for some actor:
        the first one of the episode after a complete step, else the last one; or the other of both
        if that conversion refuses the state.
        """
        received.is_last = True
        if self.is_flat:
            return
        if received.env_time is None:
            received.env_time = self._env_time + 1
        if received.actor_id is not None:
            return
        actors = [self._first_actor, self._core.actor_id()]
        if received.env_time == self._env_time:
            actors.reverse()
        received.actor_id = actors[0]
        for actor in actors:
            with contextlib.suppress(EnvContractError):
                self._prepare(received.maze_state, actor)
                received.actor_id = actor
                return

    def check_step(self, received: Received) -> None:
        """Refuse a malformed outcome of a step.

        Raises:
            EnvContractError: The reward is not a finite number, or another argument is of the wrong
                type.
        """
        reward, info = received.reward, received.info
        has_flags = type(received.terminated) in FLAGS and type(received.truncated) in FLAGS
        if type(reward) not in NUMBERS or not has_flags or not (info is None or type(info) is dict):
            try:
                flags = received.terminated, received.truncated
                check_step((None, reward, *flags, {} if info is None else info), self._maze_env)
            except EnvContractError as error:
                given = str(error).partition(" returned ")[2]
                raise EnvContractError(f"act was given {given}") from None
        if not isfinite(reward):
            raise EnvContractError(f"act was given the reward {reward}; expected a finite number")
        if type(received.is_actor_done) not in FLAGS:
            given = describe(received.is_actor_done)
            raise EnvContractError(f"act was given is_actor_done={given}; expected True or False")

    def _actor_of(self, received: Received, is_first: bool) -> tuple[ActorID, bool]:
        """Determine the actor that acts next, and whether an environment step has been completed.

        A flat simulation's environment steps are counted by its `MazeEnv`, so that none is reported here.

        Raises:
            EnvContractError: The actor is unknown or missing, or the time is not that of the next act.
        """
        actor, env_time = _actor_named(received.actor_id), received.env_time
        if not (env_time is None or isinstance(env_time, int | np.integer)):
            raise EnvContractError(f"act was given env_time={describe(env_time)}; expected an integer")
        if self.is_flat:
            if actor is not None and actor != self._only_actor:
                raise EnvContractError(f"actor_id={tuple(actor)}: the only actor is {tuple(self._only_actor)}")
            return self._only_actor, False
        if actor is None or (env_time is None and not is_first):
            needed = "its simulation has several actors: give actor_id=(step key, agent) and env_time to act"
            raise EnvContractError(f"{type(self._maze_env).__name__} needs to know who acts, as {needed}")
        count = self._counts.get(actor.step_key)
        if count is None or actor.agent_id < 0 or 0 <= count <= actor.agent_id:
            raise EnvContractError(f"actor_id={tuple(actor)} is unknown; numbers of agents are {self._counts}")
        expected = (0,) if is_first else (self._env_time, self._env_time + 1)
        env_time = 0 if env_time is None else env_time
        if env_time not in expected:
            numbers = " or ".join(map(str, expected))
            raise EnvContractError(f"env_time={env_time}: expected {numbers}; it counts the steps of an episode from 0")
        return actor, not is_first and env_time > self._env_time

    def _prepare(self, maze_state: Any, actor: ActorID) -> None:
        """Convert and check a state."""
        if maze_state is None:
            raise EnvContractError(f"act was given {describe(maze_state)} instead of a state")
        self._conversions[actor.step_key].prepare(maze_state)

    def preview(self, env: StructuredEnv, action: Action) -> Any:
        """Return an action as the simulation would receive it; None if that cannot be known yet."""
        if not self._can_preview:
            return None
        for wrapper in wrappers_of(env):
            if issubclass(type(wrapper), ActionWrapper):
                action = wrapper.action(action)
        conversion = self._maze_env.action_conversion_dict[self._core.actor_id().step_key]
        return conversion.space_to_maze(action, self.maze_state)


def _may_replace_observations(kind: type[Wrapper]) -> bool:
    """True if wrappers of a custom class may replace values that are not a number."""
    if kind.step_in_parts in (ActionWrapper.step_in_parts, RewardWrapper.step_in_parts):
        return False  # also if they override reset, to forget the previous episode
    return kind.step_in_parts is not Wrapper.step_in_parts or kind.reset is not Wrapper.reset


def _actor_named(actor_id: Any) -> ActorID | None:
    """Return the actor of an `actor_id` as given to `act`; None if there is none.

    Raises:
        EnvContractError: It is not a pair of a step key and an agent.
    """
    if actor_id is None:
        return None
    if isinstance(actor_id, tuple | list | np.ndarray) and len(actor_id) == 2:
        step_key, agent = actor_id
        if isinstance(step_key, str | int | np.integer) and isinstance(agent, int | np.integer):
            return ActorID(step_key if isinstance(step_key, str) else int(step_key), int(agent))
    raise EnvContractError(f"act was given actor_id={actor_id!r:.60}; expected (step key, agent)")


def _attributed(rewards: Any, n_acts: int) -> Array | None:
    """Return the rewards of the acts of an environment step as [L] float64; None for a team reward.

    Args:
        rewards: Rewards, as given to `act`.
        n_acts: Acts of the environment step so far.

    Raises:
        EnvContractError: They are not finite numbers, or not one for each act.
    """
    if rewards is None:
        return None
    try:
        array = np.array(rewards, np.float64)
    except (TypeError, ValueError) as error:
        raise EnvContractError(f"act was given actor_rewards={rewards!r}; expected numbers: {error}") from error
    if array.shape != (n_acts,) or not np.isfinite(array).all():
        expected = f"expected {n_acts} finite numbers, one for each act of the environment step"
        raise EnvContractError(f"act was given actor_rewards={rewards!r}; {expected}")
    return array
