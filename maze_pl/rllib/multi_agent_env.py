"""Structured environments as RLlib's multi-agent environments."""

from typing import Any

import numpy as np
from gymnasium import spaces
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.attribution import attributes_rewards, ends_actors
from maze_pl.envs.structured_env import Observation
from maze_pl.rllib.agent_names import AGENT_ID, agent_name, step_text_of
from maze_pl.rllib.training_env import ActResult, TrainingEnv, action_of, rllib_action_space

Named = dict[str, Any]
"""Name of an agent -> value."""


def observation_space_with_id(space: spaces.Dict, n_agents: int) -> spaces.Dict:
    """Return the observation space of a sub-step in RLlib, with `AGENT_ID` if it has several agents.

    Args:
        space: Observation space of the sub-step.
        n_agents: Its number of agents, -1 if it changes.
    """
    if n_agents == 1:
        return space
    largest = np.iinfo(np.int32).max  # RLlib samples the space, and one more than this must fit into its type
    return spaces.Dict({**space.spaces, AGENT_ID: spaces.Box(0, largest, (), np.int64)})


class StructuredMultiAgentEnv(MultiAgentEnv):  # type: ignore[misc]  # RLlib has no types
    """A structured environment in which RLlib's agents are the actors, named `<step key>/<agent id>`.

    In each step of RLlib one agent acts. All agents that have acted in the episode and are not done
    get the reward of the step, which RLlib adds up until their next observation; this is the sum
    that the algorithms of maze_pl learn from. If the environment attributes rewards to actors, each
    gets its share at the end of the environment step instead.

    Where an episode is truncated, only one actor has a final observation. The others get the
    observation in which they acted last, since RLlib requires one. Where the only agents that RLlib
    knows are done before others appear, their end is announced with the next step of another agent,
    since RLlib would end the episode.

    Episodes have the seeds of the run; seeds that RLlib passes to `reset` have no effect.

    Args:
        training_env: The environment.
    """

    def __init__(self, training_env: TrainingEnv) -> None:
        super().__init__()
        self.training_env = training_env
        self._steps = {str(key): step for key, step in training_env.spec.steps.items()}
        self._attributes = attributes_rewards(training_env.env)
        self._ends_actors = ends_actors(training_env.env)
        self.possible_agents: list[str] = []
        for key, step in self._steps.items():
            self.possible_agents += [f"{key}/{agent_id}" for agent_id in range(step.n_slots)]
        self.agents: list[str] = []
        self.observation_spaces = {name: self.get_observation_space(name) for name in self.possible_agents}
        self.action_spaces = {name: self.get_action_space(name) for name in self.possible_agents}
        self._last: dict[str, Observation] = {}  # last observation of each agent that has acted and is not done
        self._done: list[str] = []  # agents that are done, whose end is not announced yet
        self._acted: list[str] = []  # agents that acted in this environment step, in order
        self._held: dict[str, float] = {}  # rewards of this environment step, where rewards may be attributed
        self._next: Observation = {}

    def get_observation_space(self, agent_id: str) -> spaces.Dict:
        """Return the observation space of an agent."""
        step = self._steps[step_text_of(agent_id)]
        return observation_space_with_id(step.observation_space, step.n_agents)

    def get_action_space(self, agent_id: str) -> spaces.Space[Any]:
        """Return the action space of an agent."""
        return rllib_action_space(self._steps[step_text_of(agent_id)].action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Named, Named]:
        """Start the next episode of the run; only the actor that acts first gets an observation."""
        self._last.clear()
        self._done.clear()
        self._acted.clear()
        self._held.clear()
        self._next = self._observed(self.training_env.reset())
        self.agents = [agent_name(self.training_env.actor)]
        return {self.agents[0]: self._next}, {}

    def step(self, action_dict: Named) -> tuple[Named, Named, Named, Named, Named]:
        """Perform the act of the only agent in the dict."""
        ((agent, action),) = action_dict.items()
        known = {*self._last, *self._done, agent}
        self._last[agent] = self._next
        self._acted.append(agent)
        heads = self._steps[step_text_of(agent)].action_space
        result = self.training_env.step(action_of(action, heads))
        is_finished = result.has_advanced or result.is_over  # the environment step
        rewards = self._rewards(result, is_finished)
        if self.training_env.env.is_actor_done() and not result.terminated:
            self._done.append(agent)
        if self._ends_actors and is_finished and not result.terminated:
            done = [agent_name(ActorID(*actor)) for actor in self.training_env.env.get_done_actors()]
            self._done += [name for name in done if name not in self._done]
        if is_finished:
            self._acted.clear()
        truncated = result.truncated and not result.terminated
        terminations: Named = {"__all__": result.terminated}
        truncations: Named = {"__all__": truncated}
        self._next = self._observed(result.observation)
        observations: Named = {}
        if truncated:
            observations = dict(self._last)
        following = agent_name(self.training_env.actor)
        if not result.terminated and following not in self._done:
            observations[following] = self._next
        ended = self._ended_agents(known, is_finished, truncated)
        terminations.update(dict.fromkeys(ended, True))
        for name in ended:
            del self._last[name]
            self._done.remove(name)
        self.agents = sorted({*self._last, *observations})
        return observations, rewards, terminations, truncations, {}

    def _rewards(self, result: ActResult, is_finished: bool) -> Named:
        """Return the reward of each agent that has acted and is not done."""
        receiving = [name for name in self._last if name not in self._done or name in self._acted]
        if not self._attributes:
            return dict.fromkeys(receiving, result.reward)
        for name in receiving:
            self._held[name] = self._held.get(name, 0.0) + result.reward
        if not is_finished:
            return dict.fromkeys(self._acted[-1:], 0.0)
        team, self._held = self._held, {}
        attributed = self.training_env.env.get_actor_rewards()
        if attributed is None:
            return team
        rewards: Named = {}
        for name, reward in zip(self._acted, attributed, strict=True):
            rewards[name] = rewards.get(name, 0.0) + float(reward)
        return rewards

    def _ended_agents(self, known: set[str], is_finished: bool, truncated: bool) -> list[str]:
        """Return the agents whose end is to be announced: after the environment step in which they were done.

        Args:
            known: Agents that RLlib knows and has not seen ending.
            is_finished: Whether an environment step is finished.
            truncated: Whether the episode is truncated.
        """
        if truncated or (is_finished and known != set(self._done)):
            return list(self._done)
        return []

    def _observed(self, observation: Observation) -> Observation:
        """Add the id of the agent that acts next, if its sub-step has several agents."""
        actor = self.training_env.actor
        if self._steps[str(actor.step_key)].n_agents == 1:
            return observation
        return {**observation, AGENT_ID: np.array(actor.agent_id, np.int64)}

    def close(self) -> None:
        """Close the environment."""
        self.training_env.close()
