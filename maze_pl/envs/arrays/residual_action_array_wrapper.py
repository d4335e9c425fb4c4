"""Corrections of a rule's actions in arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_checks import as_numpy
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.observation_array_wrapper import ObservationArrayWrapper
from maze_pl.envs.corrected_rule import SUFFIX, CorrectedRule, seed_of_act, seed_of_rule
from maze_pl.envs.structured_env import Array


class ResidualActionArrayWrapper(ObservationArrayWrapper):
    """Lets an agent correct the actions of a rule; see `ResidualActionWrapper`.

    The rule acts once for all environments that are at the same sub-step, except for a rule that
    draws from its generator, which acts for one after the other. Their states are made one by one
    (`maze_state`), for a rule that uses states (`MazeStatePolicy`).

    Args:
        env: The environment to wrap.
        rule: The rule.
        action_spaces_dict: Action space of each sub-step, with corrections.
        heuristic_policy: Class path of a policy that plays the rule.
    """

    def __init__(
        self,
        env: ArrayEnv,
        rule: CorrectedRule,
        action_spaces_dict: Mapping[Any, spaces.Dict],
        heuristic_policy: str,
    ) -> None:
        super().__init__(env, env.observation_spaces_dict)
        self.rule = rule
        self.heuristic_policy = heuristic_policy
        self._spaces_with_corrections = action_spaces_dict

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Action space of each sub-step, with corrections."""
        return self._spaces_with_corrections

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self._places = np.zeros(n_envs, np.int64)  # position of the next actor's step key
        self._agents = np.zeros(n_envs, np.int64)
        self._rule_seeds = np.zeros(n_envs, np.int64)  # of the rule's draws in each episode
        self._n_ruled = np.zeros(n_envs, np.int64)  # acts of the rule in each episode

    def observations(
        self, key: StepKey, observation: Mapping[str, Array], which: Array, agents: Array
    ) -> Mapping[str, Array]:
        """Return the observations as they are, and remember who acts next."""
        self._places[which] = self._spec.step_keys.index(key)
        self._agents[which] = agents
        return observation

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start episodes, and the draws of the rule in them."""
        self.reseed(as_numpy(which), as_numpy(seeds))
        self._n_ruled[as_numpy(which)] = 0
        return super().reset(which, seeds)

    def reseed(self, which: AnyArray, seeds: AnyArray) -> None:
        """Make the rest of the rule's draws depend on seeds; see `ReseededArrays`."""
        self._rule_seeds[which] = [seed_of_rule(seed) for seed in seeds.tolist()]

    def step(self, actions: Mapping[StepKey, Mapping[str, AnyArray]], which: EnvIndex) -> ArrayStep:
        """Correct the rule's actions, and step."""
        numbers = as_numpy(self.numbers_of(which))
        changed: dict[StepKey, Mapping[str, AnyArray]] = dict(actions)
        for place, key in enumerate(self._spec.step_keys):
            acting = numbers[self._places[numbers] == place]
            if self.rule.heads_of(key):
                changed[key] = self._corrected(key, actions[key], acting)
        return super().step(changed, which)

    def _corrected(self, key: StepKey, actions: Mapping[str, AnyArray], acting: Array) -> Mapping[str, AnyArray]:
        """Return actions of a sub-step for the environment, head -> [N, ...].

        Args:
            key: Key of the sub-step.
            actions: Head -> [N, ...], with corrections.
            acting: [n] environments that are at this sub-step.
        """
        boxes = self.rule.heads_of(key)
        changed = {head: values for head, values in actions.items() if head.removesuffix(SUFFIX) not in boxes}
        for head, box in boxes.items():
            changed[head] = np.zeros((self.n_envs, *box.shape), box.dtype)
        if not len(acting):
            return changed
        observation = {name: array[acting] for name, array in self._changed[key].items()}
        states = [self.env.maze_state(int(number)) for number in acting] if self.rule.reads_state else None
        numbers = self._n_ruled[acting].tolist()
        rule_seeds = self._rule_seeds[acting].tolist()
        self._n_ruled[acting] += 1

        def seed_of(row: int) -> int:
            return seed_of_act(rule_seeds[row], numbers[row])

        ruled = self.rule.act(key, observation, self._agents[acting], states, seed_of)
        corrections = {head + SUFFIX: as_numpy(actions[head + SUFFIX])[acting] for head in boxes}
        for head, values in self.rule.corrected(key, ruled, corrections).items():
            changed[head][acting] = values
        return changed

    def _arrays(self) -> Iterator[tuple[str, AnyArray]]:
        """Yield the observations of the next actors, too."""
        yield from super()._arrays()
        for key, observation in self._changed.items():
            for name, array in observation.items():
                yield f"observation {key} {name}", array
