"""The three structured environments over arrays: table look-ups in place of their transition functions."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays import ArrayEnv, ArrayStep, RandomStreams
from tests.structured.catalogue import SIMULATIONS
from tests.structured.tabular import Outcome, TabularCoreEnv


class Outcomes:
    """Lists of outcomes as arrays: rows of at most K outcomes.

    Args:
        lists: The lists.
        index: State -> its number.
        n_rewards: Number of rewards of a finished environment step.
    """

    def __init__(self, lists: list[list[Outcome]], index: Mapping[Any, int], n_rewards: int) -> None:
        shape = (len(lists), max(map(len, lists)))
        self.n = np.array([len(outcomes) for outcomes in lists])
        self.probability = np.zeros(shape)
        self.state = np.zeros(shape, np.int64)
        self.is_complete = np.zeros(shape, np.bool_)
        self.rewards = np.zeros((*shape, n_rewards))
        self.total = np.zeros(shape)
        self.actor_done = np.zeros(shape, np.bool_)
        for row, outcomes in enumerate(lists):
            for place, outcome in enumerate(outcomes):
                self.probability[row, place] = outcome.probability
                self.state[row, place] = index[outcome.state]
                self.is_complete[row, place] = bool(outcome.rewards)
                self.rewards[row, place, : len(outcome.rewards)] = outcome.rewards
                self.total[row, place] = sum(outcome.rewards)
                self.actor_done[row, place] = outcome.actor_done

    def draw(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Places of the outcomes that uniform random numbers stand for."""
        remaining = numbers.copy()
        places = self.n[rows] - 1
        is_open = np.ones(len(rows), np.bool_)
        for place in range(self.probability.shape[1] - 1):
            is_open &= place < self.n[rows] - 1
            remaining -= self.probability[rows, place]
            found = is_open & (remaining < 0.0)
            places[found] = place
            is_open &= ~found
        return places


class TabularArrayEnv(ArrayEnv):
    """One of the structured environments over arrays, with its time limit.

    Args:
        module: Module of the environment.
    """

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        simulation: type[TabularCoreEnv] = SIMULATIONS[module]
        self.attributed, self.n_steps = simulation.attributed, module.N_STEPS
        self.n_actions = simulation.n_actions
        self.single = module.make_env()
        first = simulation.first_states()
        depths = dict.fromkeys((outcome.state for outcome in first), 0)  # completed environment steps
        states = list(depths)
        lists: list[list[Outcome]] = []
        for state in states:  # grows
            for action in range(self.n_actions):
                is_over = depths[state] == self.n_steps
                lists.append([Outcome(1.0, state)] if is_over else simulation.outcomes(state, action))
                for outcome in lists[-1]:
                    if outcome.state not in depths:
                        depths[outcome.state] = depths[state] + bool(outcome.rewards)
                        states.append(outcome.state)
        index = {state: place for place, state in enumerate(states)}
        n_rewards = max(len(outcome.rewards) for outcomes in lists for outcome in outcomes)
        self.first = Outcomes([first], index, n_rewards)
        self.outcomes = Outcomes(lists, index, n_rewards)
        self.keys = list(self.observation_spaces_dict)
        actors = [simulation.actor(state) for state in states]
        self.key_of = np.array([self.keys.index(actor.step_key) for actor in actors])
        self.agent_of = np.array([actor.agent_id for actor in actors])
        self.observation_of = {key: self.table(place, states) for place, key in enumerate(self.keys)}

    def table(self, place: int, states: list[Any]) -> dict[str, np.ndarray]:
        """Observations of a sub-step in all states, name -> [S, ...]."""
        key = self.keys[place]
        conversion = self.single.observation_conversion_dict[key]
        table: dict[str, np.ndarray] = {}
        for name, space in self.observation_spaces_dict[key].spaces.items():
            table[name] = np.zeros((len(states), *(space.shape or ())), np.float32)
        for number, state in enumerate(states):
            if self.key_of[number] == place:
                for name, value in conversion.maze_to_space(state).items():
                    table[name][number] = value
        return table

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return self.single.observation_spaces_dict  # type: ignore[no-any-return]

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return self.single.action_spaces_dict  # type: ignore[no-any-return]

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        return self.single.agent_counts_dict  # type: ignore[no-any-return]

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.streams = RandomStreams(np.zeros(n_envs, np.int64))
        self.state = np.zeros(n_envs, np.int64)
        self.env_time = np.zeros(n_envs, np.int64)
        self.completed = np.zeros(n_envs, np.bool_)
        self.acted = np.zeros((n_envs, 8), np.int64)  # agents in the present environment step
        self.n_acted = np.zeros(n_envs, np.int64)

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> ArrayStep:
        self.streams.seed(seeds, which)
        rows = np.zeros(len(which), np.int64)
        places = self.first.draw(rows, self.streams.random(which=which))
        self.state[which] = self.first.state[rows, places]
        self.env_time[which] = 0
        self.completed[which] = False
        self.n_acted[which] = 0
        return self.shown()

    def shown(self) -> ArrayStep:
        """The next actors and their observations."""
        observation: dict[Any, dict[str, np.ndarray]] = {}
        for key, table in self.observation_of.items():
            observation[key] = {name: values[self.state] for name, values in table.items()}
        result = ArrayStep(observation, env_time=self.env_time)
        result.next_key, result.next_agent = self.key_of[self.state], self.agent_of[self.state]
        return result

    def step(self, actions: Mapping[StepKey, Mapping[str, np.ndarray]], which: Any) -> ArrayStep:
        which = self.numbers_of(which)
        before = self.state[which]
        self.n_acted[which[self.completed[which]]] = 0
        self.acted[which, self.n_acted[which]] = self.agent_of[before]
        self.n_acted[which] += 1
        choices = np.stack([actions[key]["choice"][which] for key in self.keys])
        choice = choices[self.key_of[before], np.arange(len(which))]
        rows = before * self.n_actions + choice
        places = self.outcomes.draw(rows, self.streams.random(which=which))
        self.completed[which] = self.outcomes.is_complete[rows, places]
        self.env_time[which] += self.completed[which]
        self.state[which] = self.outcomes.state[rows, places]
        result = self.shown()
        result.reward = np.zeros(self.n_envs)
        result.reward[which] = self.outcomes.total[rows, places]
        result.truncated = self.completed & (self.env_time >= self.n_steps)
        result.actor_done = np.zeros(self.n_envs, np.bool_)
        result.actor_done[which] = self.outcomes.actor_done[rows, places]
        if self.attributed:
            by_agent = np.zeros((self.n_envs, self.outcomes.rewards.shape[-1]))
            by_agent[which] = self.outcomes.rewards[rows, places]
            result.actor_rewards = np.take_along_axis(by_agent, self.acted[:, : by_agent.shape[1]], axis=1)
        return result
