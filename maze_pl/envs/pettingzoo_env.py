"""PettingZoo environments as structured environments: agents are actors, and policies are sub-steps.

PettingZoo's two interfaces are one here: a parallel environment is played agent by agent on the same
state, by PettingZoo's own conversion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.core_env import CoreEnv, take_over
from maze_pl.envs.gym_env import GymActionConversion, GymObservationConversion
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.structured_env import Action, Array, Dicts, Observation, ResetResult
from maze_pl.events import (
    define_episode_stats,
    define_epoch_stats,
    define_stats_grouping,
    define_step_stats,
)

MASK = "action_mask"
"""Name of the observation that masks the actions, as PettingZoo has it."""


class AgentRewardEvents:
    """Rewards of the single agents."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="value")
    @define_stats_grouping("agent")
    def reward(self, agent: str, value: float) -> None:
        """The reward of an agent in an act of any agent."""


@dataclass(frozen=True)
class Roles:
    """Assignment of agents to policies.

    Attributes:
        step_keys: Agent -> step key of its policy.
        agent_ids: Agent -> its number among the agents of this policy.
    """

    step_keys: Mapping[str, StepKey]
    agent_ids: Mapping[str, int]

    @classmethod
    def of(cls, agents: list[str], policies: Mapping[str, StepKey] | None) -> Roles:
        """Assign agents to policies.

        Args:
            agents: All agents that an environment may have.
            policies: Agent, or a pattern of agents such as `good_*`, -> step key; the first that
                matches counts. None gives agents that only differ in the number at the end of their
                names one policy.

        Raises:
            ValueError: An agent has no policy, or a pattern matches no agent.
        """
        if policies is None:
            policies = {agent: _without_number(agent) for agent in agents}
        unused = [pattern for pattern in policies if not any(fnmatchcase(agent, pattern) for agent in agents)]
        if unused:
            raise ValueError(f"policies has {unused}, but there are only the agents {agents}")
        step_keys: dict[str, StepKey] = {}
        agent_ids: dict[str, int] = {}
        for agent in agents:
            matching = [key for pattern, key in policies.items() if fnmatchcase(agent, pattern)]
            if not matching:
                raise ValueError(f"policies={dict(policies)} has no policy for {agent!r}; the agents are {agents}")
            agent_ids[agent] = sum(key == matching[0] for key in step_keys.values())
            step_keys[agent] = matching[0]
        return cls(step_keys, agent_ids)

    def counts(self) -> dict[StepKey, int]:
        """Return the number of agents of each policy."""
        keys = list(self.step_keys.values())
        return {key: keys.count(key) for key in dict.fromkeys(keys)}


def _without_number(agent: str) -> str:
    """Return the name of an agent without the number at its end: `player_1` is a `player`."""
    name, _, number = agent.rpartition("_")
    return name if name and number.isdigit() else agent


class PettingZooCoreEnv(CoreEnv):
    """A PettingZoo environment as a simulation; an environment step is a round of its agents.

    A round ends before an agent would act in it for the second time. States are dicts of the
    `agent` whose turn it is, its `observation`, and `has_ended`: an agent whose episode another
    agent's act has ended takes a last turn, in which its action has no effect. This act has the
    rewards since its previous one, and `is_actor_done` says that it was the last. PettingZoo has
    the same last turns. They are left out where nothing depends on them: the episode is over, and
    the agent has acted in this round.

    The reward of an act, and of the episode, is the sum over all agents. `get_actor_rewards` has
    those of the single agents.

    Args:
        env: The environment (AEC).
        roles: Assignment of its agents to policies.
        team_reward: Whether all agents learn from the sum of the rewards instead of their own.

    Attributes:
        reset_options: Options for the environment at the next `reset`.
    """

    def __init__(self, env: Any, roles: Roles, team_reward: bool) -> None:
        super().__init__()
        self.env = env
        self.reset_options: dict[str, Any] | None = None
        self._roles = roles
        self._team_reward = team_reward
        self._counts = roles.counts()
        self._events = self.pubsub.create_event_topic(AgentRewardEvents)
        self._seed: int | None = None
        self._agent = ""  # whose turn it is
        self._round: list[str] = []  # agents that have acted in this round, in order
        self._finished: set[str] = set()  # agents whose end was reported with an act
        self._is_done = False
        self._owed: dict[str, float] = {}  # rewards of each agent that no act has yet
        self._actor_rewards: list[float] = []  # of the acts of the last round
        self._maze_state: dict[str, Any] = {}

    def reset(self) -> dict[str, Any]:
        """Reset the environment, with the seed set since the last reset, if any.

        Raises:
            ValueError: No agent can act.
        """
        seed, self._seed = self._seed, None
        self.env.reset(seed=seed, options=self.reset_options)
        self._round = []
        self._finished = set()
        self._is_done = False
        self._owed = dict.fromkeys(self.env.possible_agents, 0.0)
        self._actor_rewards = []
        if self._next_agent() is None:
            raise ValueError(f"{self.env} has no agent that can act after reset")
        self._agent = self.env.agent_selection
        self._maze_state = self._state_of(self._agent)
        return self._maze_state

    def step(self, maze_action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Let the current agent act; the action of an agent whose episode has ended has no effect."""
        agent, env = self._agent, self.env
        has_ended = self._maze_state["has_ended"]
        env.step(None if has_ended else maze_action)
        reward = self._take_rewards()
        self._round.append(agent)
        self._is_done = has_ended or bool(env.terminations.get(agent, False))
        if self._is_done:
            self._finished.add(agent)
        info = dict(env.infos.get(agent, {}))
        following = env.agent_selection if env.agents else agent
        is_truncated = self._is_over() and any(env.truncations.values())
        self._maze_state = self._state_of(following)
        chosen = self._next_agent()
        if chosen is not None and chosen != following:
            following = chosen
            self._maze_state = self._state_of(following)
        self._agent = following
        if chosen is None or chosen in self._round:
            self._end_round()
        is_over = chosen is None
        return self._maze_state, reward, is_over and not is_truncated, is_over and is_truncated, info

    def seed(self, seed: int) -> None:
        """Set the seed of the next `reset`."""
        self._seed = seed

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_maze_state(self) -> dict[str, Any]:
        """Return the agent whose turn it is, its observation, and whether its episode has ended."""
        return self._maze_state

    def actor_id(self) -> ActorID:
        """Return the policy and the number of the agent whose turn it is."""
        return ActorID(self._roles.step_keys[self._agent], self._roles.agent_ids[self._agent])

    def is_actor_done(self) -> bool:
        """True if the episode of the agent that just acted has ended."""
        return self._is_done

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each policy."""
        return self._counts

    def get_actor_rewards(self) -> Array | None:
        """Return the rewards of the agents that acted in the round, in order; None for a team."""
        return None if self._team_reward else np.array(self._actor_rewards)

    def clone_from(self, env: CoreEnv) -> None:
        """Copy the state of another environment, with all of PettingZoo's wrappers.

        Raises:
            TypeError: The environment cannot be copied, because it holds something other than
                Python objects, such as a window or Box2D's world.
        """
        layers = list(zip(_layers(self.env), _layers(vars(env)["env"]), strict=True))
        for own, other in layers:
            take_over(own, other, *layers, (self, env))
        take_over(self, env, *layers)

    def step_key_of(self, agent: str) -> StepKey:
        """Return the policy of an agent."""
        return self._roles.step_keys[agent]

    def _next_agent(self) -> str | None:
        """Pass over agents that have nothing more to do; return the one that acts, None if the episode is over."""
        env = self.env
        while env.agents:
            agent = str(env.agent_selection)
            if not env.terminations[agent] and not env.truncations[agent]:
                return agent
            if env.terminations[agent] and agent not in self._finished and not self._is_settled(agent):
                return agent
            env.step(None)
            self._take_rewards()
        return None

    def _is_settled(self, agent: str) -> bool:
        """True if an ended agent needs no last turn: the end of the episode says the same of its latest act."""
        return agent in self._round and self._is_over() and not any(self.env.truncations.values())

    def _is_over(self) -> bool:
        """True if the episode has ended for all agents."""
        env = self.env
        return all(env.terminations[agent] or env.truncations[agent] for agent in env.agents)

    def _take_rewards(self) -> float:
        """Note what the last `step` has paid to each agent; return the sum."""
        total = 0.0
        for agent, reward in self.env.rewards.items():
            if reward:
                self._owed[agent] += float(reward)
                self._events.reward(agent=agent, value=float(reward))
                total += float(reward)
        return total

    def _end_round(self) -> None:
        """Give the acts of the round what their agents are owed, and advance the time."""
        self._actor_rewards = [self._owed[agent] for agent in self._round]
        self._owed.update(dict.fromkeys(self._round, 0.0))
        self._round = []
        self.context.increment_env_step()

    def _state_of(self, agent: str) -> dict[str, Any]:
        """Return the state with an agent to act."""
        env = self.env
        has_ended = bool(env.terminations.get(agent, True) or env.truncations.get(agent, True))
        return {"agent": agent, "observation": env.observe(agent), "has_ended": has_ended}


class PettingZooObservationConversion(GymObservationConversion):
    """Names the observation of the agent whose turn it is: `observation`, or the parts of a Dict.

    In the last turn of an agent everything is allowed, as its action has no effect.

    Args:
        space: Observation space of the agents of a policy.

    Raises:
        TypeError: The space or a part of it is of an unsupported type.
    """

    def maze_to_space(self, maze_state: dict[str, Any]) -> Observation:
        """Return the observation, or its parts, by name."""
        observation = super().maze_to_space(maze_state["observation"])
        if maze_state["has_ended"] and MASK in observation:
            observation[MASK] = np.ones_like(observation[MASK])
        return observation


class PettingZooActionConversion(GymActionConversion):
    """Names the action of an agent: `action`, or the parts of a Dict.

    Args:
        space: Action space of the agents of a policy.
        has_mask: Whether their observations contain a mask of the actions.

    Raises:
        TypeError: The space or a part of it is of an unsupported type.
    """

    def __init__(self, space: spaces.Space[Any], has_mask: bool) -> None:
        super().__init__(space)
        self._masks = {"action": MASK} if has_mask else {}

    @property
    def action_masks(self) -> Mapping[str, str]:
        """Head -> name of its mask."""
        return self._masks


class PettingZooMazeEnv(MazeEnv):
    """A PettingZoo environment as a structured environment, with a sub-step for each policy.

    Agents of one policy share its networks, and are told apart by their ids. Observations and
    actions are named as those of `GymMazeEnv`; an `action_mask` in the observations of a policy
    with `Discrete` actions is its mask.

    Args:
        env: The environment, of either interface (AEC or parallel).
        policies: Agent, or a pattern of agents such as `good_*`, -> step key of its policy. By
            default agents whose names only differ in the number at the end share a policy.
        team_reward: Whether all agents learn from the sum of their rewards, for agents that
            cooperate; otherwise each learns from its own.

    Raises:
        TypeError: This is no PettingZoo environment, or a space is not supported.
        ValueError: `policies` does not fit the agents, or agents of one policy differ in their
            spaces.

    Example:
        >>> import pettingzoo
        >>> env = PettingZooMazeEnv(pettingzoo.make("aec", "classic/tictactoe-v3"))
        >>> observation, info = env.reset(seed=1)
        >>> sorted(observation), env.actor_id()
        (['action_mask', 'observation'], ActorID(step_key='player', agent_id=0))
    """

    core_env: PettingZooCoreEnv

    def __init__(self, env: Any, policies: Mapping[str, StepKey] | None = None, team_reward: bool = False) -> None:
        env = _as_aec(env)
        roles = Roles.of(list(env.possible_agents), policies)
        observation_conversions: dict[StepKey, PettingZooObservationConversion] = {}
        action_conversions: dict[StepKey, PettingZooActionConversion] = {}
        for key in roles.counts():
            agents = [agent for agent, own in roles.step_keys.items() if own == key]
            observation_space, action_space = _common_spaces(env, key, agents)
            observation_conversions[key] = PettingZooObservationConversion(observation_space)
            has_mask = _is_mask(observation_conversions[key].space(), action_space)
            action_conversions[key] = PettingZooActionConversion(action_space, has_mask)
        core_env = PettingZooCoreEnv(env, roles, team_reward)
        super().__init__(core_env, action_conversions, observation_conversions)
        self.metadata = env.metadata
        self.render_mode = getattr(env.unwrapped, "render_mode", None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the options go to the PettingZoo environment."""
        self.core_env.reset_options = options
        return super().reset(seed=seed)

    def render(self) -> Any:
        """Render the environment in the `render_mode` that it was made with."""
        return self.core_env.env.render()

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action to those of the agent whose turn it was.

        Raises:
            ValueError: The state is missing, which says whose action it is.
        """
        if maze_state is None:
            raise ValueError("an action alone does not tell which agent took it; give the state, too")
        key = self.core_env.step_key_of(maze_state["agent"])
        observations: dict[StepKey, Observation] = {
            key: self.observation_conversion_dict[key].maze_to_space(maze_state)
        }
        actions: dict[StepKey, Action] | None = None
        if maze_action is not None:
            actions = {key: self.action_conversion_dict[key].maze_to_space(maze_action)}
        return observations, actions


def make_pettingzoo_env(
    name: str,
    policies: dict[str, StepKey] | None = None,
    team_reward: bool = False,
    **kwargs: Any,
) -> PettingZooMazeEnv:
    """Make a PettingZoo environment by name, for configuration files.

    Args:
        name: Name of a registered environment, such as `classic/tictactoe-v3`, or the module of
            another package, such as `mpe2.simple_spread_v3`.
        policies: See `PettingZooMazeEnv`.
        team_reward: See `PettingZooMazeEnv`.
        kwargs: Passed to `pettingzoo.make`, or to the `env` function of the module.

    Raises:
        ImportError: PettingZoo, the module, or a package that it needs is not installed.
        ValueError: PettingZoo does not know the name, or the module does not make environments.
    """
    try:
        if "/" in name:
            return PettingZooMazeEnv(_make_registered(name, kwargs), policies, team_reward)
        module = import_module(name)
    except ImportError as error:
        remedy = 'pip install "maze-pl[pettingzoo]", and what the environment needs itself'
        raise ImportError(f"the PettingZoo environment {name!r} cannot be imported ({error}): {remedy}") from error
    if not callable(make_env := getattr(module, "env", None)):
        raise ValueError(f"{name} has no function env, as the modules of PettingZoo environments have")
    return PettingZooMazeEnv(make_env(**kwargs), policies, team_reward)


def _make_registered(name: str, kwargs: dict[str, Any]) -> Any:
    """Make an environment of PettingZoo's registry.

    Raises:
        ImportError: A package that the environment needs is not installed.
        ValueError: The registry has no such environment.
    """
    from pettingzoo import make  # type: ignore[import-untyped]
    from pettingzoo.env_registry.exceptions import PettingZooRegistryError  # type: ignore[import-untyped]

    try:
        return make("aec", name, **kwargs)
    except PettingZooRegistryError as error:
        if isinstance(error.__cause__, ImportError):
            raise ImportError(str(error)) from error
        raise ValueError(f"PettingZoo has no environment {name!r}: {error}") from error


def _as_aec(env: Any) -> Any:
    """Return an environment in which agents act one after the other.

    Raises:
        ImportError: PettingZoo is not installed.
        TypeError: This is no PettingZoo environment.
    """
    try:
        from pettingzoo import AECEnv, ParallelEnv
        from pettingzoo.utils.conversions import parallel_to_aec  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError('PettingZoo is not installed: pip install "maze-pl[pettingzoo]"') from error
    if isinstance(env, ParallelEnv):
        env = parallel_to_aec(env)
    if not isinstance(env, AECEnv):
        raise TypeError(f"expected a PettingZoo environment (AECEnv or ParallelEnv), got {type(env).__name__}")
    return env


def _layers(env: Any) -> list[Any]:
    """Return a PettingZoo environment with the environments that it wraps, outermost first."""
    layers = [env]
    while (inner := vars(layers[-1]).get("env") or vars(layers[-1]).get("aec_env")) is not None:
        layers.append(inner)
    return layers


def _common_spaces(env: Any, key: StepKey, agents: list[str]) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return the observation and action space that all agents of a policy have.

    Raises:
        ValueError: They differ.
    """
    first = agents[0]
    for agent in agents[1:]:
        for kind in ("observation_space", "action_space"):
            own, other = getattr(env, kind)(first), getattr(env, kind)(agent)
            if own != other:
                fault = f"the {kind} of {first} is {own}, that of {agent} {other}"
                remedy = "give them policies of their own by policies={agent: policy}"
                raise ValueError(f"agents of policy {key!r} must have equal spaces, but {fault}; {remedy}")
    return env.observation_space(first), env.action_space(first)


def _is_mask(observation_space: spaces.Dict, action_space: spaces.Space[Any]) -> bool:
    """True if the observations have a mask that fits the actions."""
    mask = observation_space.spaces.get(MASK)
    return isinstance(action_space, spaces.Discrete) and mask is not None and mask.shape == (int(action_space.n),)
