"""Calls of policies for many simulations at once."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces

from maze_pl.agents.acting import HasProbabilities
from maze_pl.agents.best_actions import Action, best_actions, likeliest_actions
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array, MazeStatePolicy, Policy, PolicyBatch
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spaces import allowed_entries, environment_actions, rollout_action
from maze_pl.core.spec import Spec
from maze_pl.search.search_error import SearchError
from maze_pl.search.simulation import Simulation

_SHARED: Final = 0.1
"""Probability that all options share where a rule chooses; its choice has the rest."""


class PolicyCalls:
    """Asks a policy for the actors of many simulations, with one call for each sub-step.

    Args:
        policy: The policy; it may not be recurrent.
        spec: Observations and actions of the actors.
        temperature: Above 1 flattens the policy's distributions, below 1 sharpens them.
        max_actions: Number of actions that `candidates` returns.
        min_ratio: Smallest probability of these actions, relative to that of the most likely one; 0
            for a rule, which has no probabilities.
    """

    def __init__(
        self, policy: Policy, spec: Spec, temperature: float, max_actions: int, min_ratio: float = 0.0
    ) -> None:
        self.policy = policy
        self._spec = spec
        self._temperature = temperature
        self._max_actions = max_actions
        self._min_ratio = min_ratio

    def act(
        self, simulations: Sequence[Simulation], generator: torch.Generator, is_deterministic: Sequence[bool]
    ) -> list[Action]:
        """Choose an action in each simulation.

        Args:
            simulations: The simulations.
            generator: Source of all randomness.
            is_deterministic: Whether the policy takes its most likely action, for each simulation.
        """
        actions: dict[int, Action] = {}
        for deterministic in (True, False):
            chosen = [place for place, flag in enumerate(is_deterministic) if flag == deterministic]
            for key, places in _by_step_key(simulations, chosen).items():
                batch = self._batch(key, [simulations[place] for place in places])
                step = self.policy.act(
                    batch, deterministic=deterministic, temperature=self._temperature, generator=generator
                )
                heads = self._spec.steps[key].action_space.spaces
                for row, place in enumerate(places):
                    actions[place] = {
                        head: rollout_action(heads[head], values[row]) for head, values in step.action.items()
                    }
        return [actions[place] for place in range(len(simulations))]

    def candidates(self, simulations: Sequence[Simulation]) -> list[list[tuple[Action, float]]]:
        """Return the most likely actions in each simulation, with their probabilities.

        All heads must be discrete. Random actions are allowed ones, all equally likely; all options of
        a choice are, if its mask allows none. Any other policy without probabilities is a rule: its
        choices are the most likely ones by far.

        Raises:
            SearchError: The policy gives no action a positive probability, or is a rule with a `min_ratio`.
        """
        found: dict[int, list[tuple[Action, float]]] = {}
        for key, places in _by_step_key(simulations, range(len(simulations))).items():
            batch = self._batch(key, [simulations[place] for place in places])
            space = self._spec.steps[key].action_space
            if isinstance(self.policy, HasProbabilities):
                lists = best_actions(self.policy, batch, space, self._temperature, self._max_actions)
            else:
                is_random = isinstance(self.policy, RandomPolicy)
                options = self._uniform(key, batch) if is_random else self._of_rule(key, batch)
                lists = [likeliest_actions(space, options, row, self._max_actions) for row in range(len(places))]
            for place, actions in zip(places, lists, strict=True):
                if not actions:
                    fault = f"{type(self.policy).__name__} gives no action of sub-step {key!r} a positive probability"
                    raise SearchError(f"{fault}, so that there is none to try")
                least = self._min_ratio * actions[0][1]
                found[place] = [(action, probability) for action, probability in actions if probability >= least]
        return [found[place] for place in range(len(simulations))]

    def _batch(self, key: StepKey, simulations: Sequence[Simulation]) -> PolicyBatch:
        """Return the policy's batch of simulations whose next actors are in the same sub-step."""
        names = simulations[0].observation
        observation = {name: np.stack([one.observation[name] for one in simulations]) for name in names}
        agents = np.array([one.actor.agent_id for one in simulations], np.int64)
        batch = PolicyBatch(key, observation, agents)
        if isinstance(self.policy, MazeStatePolicy):
            batch.maze_state = [one.env.get_simulation_state() for one in simulations]
        return batch

    def _uniform(self, key: StepKey, batch: PolicyBatch) -> dict[str, Any]:
        """Return equal probabilities of all allowed options, as `TorchPolicy.probabilities` does."""
        step = self._spec.steps[key]
        n = len(batch.agent_id)
        found: dict[str, Any] = {}
        for head, space in step.action_space.spaces.items():
            name = step.masks.get(head)
            mask: Array | None = None
            if name is not None:
                mask = allowed_entries(batch.observation[name], (n, spaces.flatdim(space)), name, head)
            found[head] = _equal(space, n, mask)
        return found

    def _of_rule(self, key: StepKey, batch: PolicyBatch) -> dict[str, Any]:
        """Return probabilities of all allowed options, high ones of those that a rule chooses."""
        if self._min_ratio:
            reason = "is a rule, without probabilities, so that only its choices would be tried"
            raise SearchError(f"{type(self.policy).__name__} {reason}; leave out min_ratio={self._min_ratio:g}")
        generator = torch.Generator().manual_seed(0)  # for rules that ignore `deterministic`
        step = self.policy.act(batch, deterministic=True, temperature=self._temperature, generator=generator)
        found = self._uniform(key, batch)
        for head, space in self._spec.steps[key].action_space.spaces.items():
            action = environment_actions(space, step.action[head])  # rules may return floats
            found[head] = _concentrated(space, found[head], action)
        return found


def _by_step_key(simulations: Sequence[Simulation], places: Sequence[int]) -> dict[StepKey, list[int]]:
    """Return the places of simulations by the sub-step of their next actors."""
    groups: dict[StepKey, list[int]] = {}
    for place in places:
        groups.setdefault(simulations[place].actor.step_key, []).append(place)
    return groups


def _equal(space: spaces.Space[Any], n: int, mask: Array | None) -> Any:
    """Return equal probabilities of the options of a head, in the form of `TorchPolicy.probabilities`.

    Args:
        space: Space of the head, which is discrete.
        n: Number of actors.
        mask: [n, options of all choices] whether an option is allowed; None if all are.
    """
    allowed = np.ones((n, spaces.flatdim(space))) if mask is None else mask.astype(np.float64)
    if isinstance(space, spaces.MultiBinary):
        return allowed.reshape(n, *space.shape) / 2
    if isinstance(space, spaces.Discrete):
        return _normalised(allowed)
    assert isinstance(space, spaces.MultiDiscrete)
    parts = np.split(allowed, np.cumsum(space.nvec)[:-1], axis=1)
    return [_normalised(part) for part in parts]


def _normalised(allowed: Array) -> Array:
    """[n, options] divided by the sums of the rows; rows of zeros become equal probabilities."""
    possible = np.where(allowed.any(1, keepdims=True), allowed, 1.0)
    normalised: Array = possible / possible.sum(1, keepdims=True)
    return normalised


def _concentrated(space: spaces.Space[Any], equal: Any, action: Array) -> Any:
    """Return probabilities of the options of a head, high ones of those that were chosen.

    Args:
        space: Space of the head, which is discrete.
        equal: Result of `_equal`.
        action: [n, *shape] the choices of a rule.
    """
    if isinstance(space, spaces.MultiBinary):
        ones = action.reshape(equal.shape) * (equal > 0)
        return _SHARED * equal + (1 - _SHARED) * ones
    if isinstance(space, spaces.Discrete):
        return _moved(equal, action.reshape(-1) - space.start)
    assert isinstance(space, spaces.MultiDiscrete)
    chosen = (action - space.start).reshape(len(action), -1)
    return [_moved(part, chosen[:, place]) for place, part in enumerate(equal)]


def _moved(equal: Array, chosen: Array) -> Array:
    """[n, options] probabilities, a high one of the chosen option unless it is not allowed."""
    rows = np.arange(len(equal))
    is_allowed = equal[rows, chosen] > 0
    moved: Array = np.where(is_allowed[:, np.newaxis], _SHARED * equal, equal)
    moved[rows, chosen] += (1 - _SHARED) * is_allowed
    return moved
