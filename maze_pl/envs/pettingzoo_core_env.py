"""A PettingZoo environment as a simulation: rounds of its agents, their last turns and their rewards."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.contract import EnvContractError, name_of
from maze_pl.envs.core_env import CoreEnv, take_over
from maze_pl.envs.reseeding import reseed_layers
from maze_pl.envs.structured_env import Array
from maze_pl.events import (
    define_episode_stats,
    define_epoch_stats,
    define_stats_grouping,
    define_step_stats,
)


class AgentRewardEvents:
    """Rewards of the individual agents."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="value")
    @define_stats_grouping("agent")
    def reward(self, agent: str, value: float) -> None:
        """The reward of an agent in an act of any agent."""


Agent = Any
"""Name of an agent in PettingZoo; most are strings."""


@dataclass(frozen=True)
class Roles:
    """Assignment of agents to policies.

    Attributes:
        step_keys: Agent -> step key of its policy.
        agent_ids: Agent -> its number among the agents of this policy.
    """

    step_keys: Mapping[Agent, StepKey]
    agent_ids: Mapping[Agent, int]

    @classmethod
    def of(cls, agents: list[Agent], policies: Mapping[Agent, StepKey] | None) -> Roles:
        """Assign agents to policies.

        Args:
            agents: All agents that an environment may have.
            policies: Agent, or a pattern of agents such as `good_*`, -> step key; the first that
                matches counts. None gives agents that only differ in the number at the end of their
                names one policy. Names that are not strings count as what `str` makes of them.

        Raises:
            ValueError: An agent has no policy, or a pattern matches no agent.
        """
        if policies is None:
            policies = {agent: _without_number(str(agent)) for agent in agents}
        unused = [pattern for pattern in policies if not any(_matches(agent, pattern) for agent in agents)]
        if unused:
            raise ValueError(f"policies has {unused}, but there are only the agents {agents}")
        step_keys: dict[Agent, StepKey] = {}
        agent_ids: dict[Agent, int] = {}
        for agent in agents:
            matching = [key for pattern, key in policies.items() if _matches(agent, pattern)]
            if not matching:
                raise ValueError(f"policies={dict(policies)} has no policy for {agent!r}; the agents are {agents}")
            agent_ids[agent] = sum(key == matching[0] for key in step_keys.values())
            step_keys[agent] = matching[0]
        return cls(step_keys, agent_ids)

    def counts(self) -> dict[StepKey, int]:
        """Return the number of agents of each policy."""
        keys = list(self.step_keys.values())
        return {key: keys.count(key) for key in dict.fromkeys(keys)}


def _matches(agent: Agent, pattern: Agent) -> bool:
    """True if an agent is the one that a pattern names, or one of them."""
    return fnmatchcase(str(agent), str(pattern))


def _without_number(agent: str) -> str:
    """Return the name of an agent without the number at its end: `player_1` is a `player`."""
    name, _, number = agent.rpartition("_")
    return name if name and number.isdigit() else agent


class PettingZooCoreEnv(CoreEnv):
    """A PettingZoo environment as a simulation; an environment step is a round of its agents.

    A round ends before an agent would act in it for the second time. An agent whose episode
    another agent's act has ended is done with its act in the round, of which `get_done_actors`
    tells when the round ends. If it has not acted in the round, it takes a last turn, as in
    PettingZoo: its action has no effect, and `is_actor_done` marks this act as the last. Agents
    that the environment has removed with their end have no last turn. States are dicts of the
    `agent` whose turn it is, its `observation`, and `has_ended`, which is true in last turns.
    Where the episode is truncated, the final state is that of an agent that was truncated, if it
    can be observed. An agent that has terminated may not act again in the episode.

    The reward of an act, and of the episode, is the sum over all agents. `get_actor_rewards` has
    the rewards of the individual agents.

    Args:
        env: The environment (AEC).
        roles: Assignment of its agents to policies.
        team_reward: Whether all agents learn from the sum of the rewards instead of individual ones.

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
        self._agent: Agent = ""  # whose turn it is
        self._round: list[Agent] = []  # agents that have acted in this round, in order
        self._has_acted: set[Agent] = set()  # agents that have acted in this episode
        self._finished: set[Agent] = set()  # agents that have taken their last act
        self._ended: list[Agent] = []  # agents that have ended after their acts in the latest round
        self._is_done = False
        self._is_truncated = False
        self._warns_of_early_rewards = not team_reward
        self._future: tuple[Agent, dict[str, Any]] | None = None  # agent and state where it is truncated
        self._owed: dict[Agent, float] = {}  # rewards of each agent that are not credited yet
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
        self._has_acted = set()
        self._finished = set()
        self._ended = []
        self._is_done = self._is_truncated = False
        self._future = None
        self._owed = dict.fromkeys(self.env.possible_agents, 0.0)
        self._actor_rewards = []
        if self._next_agent() is None:
            raise ValueError(f"{self.env} has no agent that can act after reset")
        self._agent = self.env.agent_selection
        self._maze_state = self._state_of(self._agent)
        return self._maze_state

    def step(self, maze_action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Let the current agent act; the action of an agent whose episode has ended has no effect.

        Raises:
            EnvContractError: An agent that has terminated acts again.
        """
        agent, env = self._agent, self.env
        has_ended = self._maze_state["has_ended"]
        agents = list(env.agents)
        env.step(None if has_ended else maze_action)
        if not self._round:
            self._ended = []
        self._round.append(agent)
        self._has_acted.add(agent)
        reward = self._take_rewards()
        self._is_done = has_ended or bool(env.terminations.get(agent, False))
        if self._is_done:
            self._finished.add(agent)
        self._note_ends()
        info = dict(env.infos.get(agent, {}))
        selected = env.agent_selection if env.agents else agent
        self._note_truncation(agents, selected)
        self._agent = selected
        self._maze_state = self._state_of(selected)  # before agents are passed over: later, they have no observation
        following = self._next_agent()
        if following in self._finished:
            came = f"agent {following!r} acts again after it has terminated"
            remedy = "terminate it at the end of its last life, or give each life another name in possible_agents"
            raise EnvContractError(f"{came}, but it has reported its last act (is_actor_done): {remedy}")
        if following is not None and following != selected:
            self._agent = following
            self._maze_state = self._state_of(following)
        if following is None and self._future is not None:
            self._agent, self._maze_state = self._future
        if following is None or following in self._round:
            self._end_round()
        is_over = following is None
        is_truncated = self._is_truncated
        return self._maze_state, reward, is_over and not is_truncated, is_over and is_truncated, info

    def seed(self, seed: int) -> None:
        """Set the seed of the next `reset`."""
        self._seed = seed

    def reseed(self, seed: int) -> None:
        """Make the rest of the running episode depend on a seed; see `reseed_layers`."""
        reseed_layers(_layers(self.env), seed)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_maze_state(self) -> dict[str, Any]:
        """Return the agent whose turn it is, its observation, and whether its episode has ended."""
        return self._maze_state

    def actor_id(self) -> ActorID:
        """Return the actor whose turn it is."""
        return self._actor_of(self._agent)

    def _actor_of(self, agent: Agent) -> ActorID:
        """Return the policy and the number of an agent."""
        return ActorID(self._roles.step_keys[agent], self._roles.agent_ids[agent])

    def is_actor_done(self) -> bool:
        """True if the episode of the agent that just acted has ended."""
        return self._is_done

    def get_done_actors(self) -> Sequence[ActorID]:
        """Return the agents that have ended after their acts in the running round; in the last one, between rounds."""
        return [self._actor_of(agent) for agent in self._ended]

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each policy."""
        return self._counts

    def get_actor_rewards(self) -> Array | None:
        """Return the rewards of the agents that acted in the round, in order; None for a team.

        Within a round, as where a wrapper ends the episode, they are the rewards of its agents so far.
        """
        if self._team_reward:
            return None
        return np.array([self._owed[agent] for agent in self._round] if self._round else self._actor_rewards)

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

    def step_key_of(self, agent: Agent) -> StepKey:
        """Return the policy of an agent."""
        return self._roles.step_keys[agent]

    def _note_truncation(self, agents: list[Agent], selected: Agent) -> None:
        """Keep that the episode is truncated, which PettingZoo forgets, and a state that has a future.

        Args:
            agents: Agents before the act, since an environment may remove them together with their end.
            selected: Agent whose turn it is; the one that acted if none is left.
        """
        env = self.env
        cut = [name for name in agents if env.truncations.get(name) and not env.terminations.get(name)]
        if cut and self._is_over() and not self._is_truncated:
            self._is_truncated = True
            remaining = [name for name in cut if name in env.agents] or cut
            agent = selected if selected in remaining else remaining[0]
            try:
                state = self._state_of(agent)
            except Exception:  # environments need not observe agents that they have removed
                if agent in env.agents:
                    raise
                agent = selected
                state = self._state_of(agent)
            self._future = agent, deepcopy(state)  # before last turns, which may change it

    def _note_ends(self) -> None:
        """Keep the agents that have ended after their acts in the round."""
        for agent in self._round:
            if agent not in self._finished and self.env.terminations.get(agent):
                self._finished.add(agent)
                self._ended.append(agent)

    def _next_agent(self) -> Agent | None:
        """Pass over agents that have nothing more to do; return the one that acts, None if the episode is over."""
        env = self.env
        while env.agents:
            agent = env.agent_selection
            if not env.terminations[agent] and not env.truncations[agent]:
                return agent
            if env.terminations[agent] and agent not in self._finished:
                return agent
            env.step(None)
            self._note_ends()
            self._take_rewards()
        return None

    def _is_over(self) -> bool:
        """True if the episode has ended for all agents."""
        env = self.env
        return all(env.terminations[agent] or env.truncations[agent] for agent in env.agents)

    def _take_rewards(self) -> float:
        """Add the rewards of the last `step` to those not credited yet; return their sum."""
        total = 0.0
        for agent, reward in self.env.rewards.items():
            if reward:
                self._owed[agent] += float(reward)
                self._events.reward(agent=str(agent), value=float(reward))
                if self._warns_of_early_rewards and agent not in self._round:
                    self._warn_of_early_reward(agent)
                total += float(reward)
        return total

    def _warn_of_early_reward(self, agent: Agent) -> None:
        """Warn once of a reward for an earlier act of an agent whose turn in the round is still to come."""
        env = self.env
        if agent not in self._has_acted or env.terminations.get(agent, True) or env.truncations.get(agent, True):
            return
        self._warns_of_early_rewards = False
        fault = f"{name_of(env)} pays agent {agent!r} before its turn in a round, which credits its next act"
        effect = "Q-learning and a small gae_lambda only learn from it what the agent observes of it at this turn"
        remedy = "use a gae_lambda near 1, let this agent act first in the rounds, or make the environment parallel"
        warnings.warn(f"{fault}: {effect}; {remedy}", stacklevel=2)

    def _end_round(self) -> None:
        """Credit the acts of the round with the rewards of their agents, and advance the time."""
        self._actor_rewards = [self._owed[agent] for agent in self._round]
        self._owed.update(dict.fromkeys(self._round, 0.0))
        self._round = []
        self.context.increment_env_step()

    def _state_of(self, agent: Agent) -> dict[str, Any]:
        """Return the state with an agent to act."""
        env = self.env
        has_ended = bool(env.terminations.get(agent, True) or env.truncations.get(agent, True))
        return {"agent": agent, "observation": env.observe(agent), "has_ended": has_ended}


def _layers(env: Any) -> list[Any]:
    """Return a PettingZoo environment with the environments that it wraps, outermost first."""
    layers = [env]
    while (inner := vars(layers[-1]).get("env") or vars(layers[-1]).get("aec_env")) is not None:
        layers.append(inner)
    return layers
