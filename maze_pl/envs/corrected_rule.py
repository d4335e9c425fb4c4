"""A rule whose actions an agent corrects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_object
from maze_pl.core.seeding import derive_seed
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import Array, StructuredEnv

if TYPE_CHECKING:
    import torch

    from maze_pl.core.policy import Policy

SUFFIX = "_correction"
"""Ending of the names of action heads that are corrections."""


class CorrectedRule:
    """A rule, and the scales of the corrections of its actions; see `ResidualActionWrapper`.

    Args:
        rule: The rule.
        action_spaces_dict: Action space of each sub-step, as the rule knows them.
        scales: Head -> scale of its corrections, in the shape of the action.

    Attributes:
        rule: The rule.
        scales: The scales.
        reads_state: Whether the rule uses the state of the simulation.
        has_networks: Whether the rule is a module of PyTorch.
    """

    def __init__(
        self, rule: Policy, action_spaces_dict: Mapping[Any, spaces.Dict], scales: Mapping[str, Array]
    ) -> None:
        from torch import nn  # only here, so that environments can be used without PyTorch

        from maze_pl.core.policy import MazeStatePolicy  # as above

        self.rule = rule
        self.scales = scales
        self.reads_state = isinstance(rule, MazeStatePolicy)
        self.has_networks = isinstance(rule, nn.Module)
        self._boxes: dict[StepKey, dict[str, Any]] = {}
        for key, space in action_spaces_dict.items():
            self._boxes[key] = {head: box for head, box in space.spaces.items() if head in scales}

    def heads_of(self, key: StepKey) -> dict[str, spaces.Box]:
        """Heads of a sub-step that are corrected, with their spaces."""
        return self._boxes[key]

    def act(
        self,
        key: StepKey,
        observation: dict[str, Array],
        agents: Array,
        states: list[Any] | None,
        seed_of: Callable[[int], int],
    ) -> dict[str, Array]:
        """Actions of the rule, deterministically; if it still draws, as if each row were alone.

        Args:
            key: Key of the sub-step.
            observation: Name -> [B, ...].
            agents: [B] agents of the sub-step.
            states: [B] states of the simulations; None for a rule that does not use them.
            seed_of: Row -> seed of the generator from which the rule may draw.

        Returns:
            Head -> [B, ...].

        Raises:
            ValueError: The rule gives no action to a head, or one that is not finite.
        """
        import torch  # as above

        generator = torch.Generator().manual_seed(seed_of(0))
        if len(agents) == 1:
            return self._acted(key, observation, agents, states, generator)
        unused = generator.get_state()
        acted = self._acted(key, observation, agents, states, generator)
        if torch.equal(generator.get_state(), unused):
            return acted
        rows = []
        for row in range(len(agents)):
            only = slice(row, row + 1)
            observed = {name: values[only] for name, values in observation.items()}
            its_states = None if states is None else states[only]
            generator.manual_seed(seed_of(row))
            rows.append(self._acted(key, observed, agents[only], its_states, generator))
        return {head: np.concatenate([one[head] for one in rows]) for head in acted}

    def _acted(
        self,
        key: StepKey,
        observation: dict[str, Array],
        agents: Array,
        states: list[Any] | None,
        generator: torch.Generator,
    ) -> dict[str, Array]:
        """Actions of the rule, with a source of randomness."""
        from maze_pl.core.policy import PolicyBatch  # as above

        batch = PolicyBatch(key, observation, agents, maze_state=states)
        given = self.rule.act(batch, deterministic=True, generator=generator).action
        for head in self._boxes[key]:
            if head not in given or not np.isfinite(given[head]).all():
                came = f"actions to {sorted(given)} only"
                if head in given:
                    came = "one that is not finite"
                needed = f"must give an action to {head!r} in sub-step {key!r}"
                fault = f"{type(self.rule).__name__}, whose actions are corrected, {needed}"
                raise ValueError(f"{fault}; it gave {came}")
        return {head: given[head] for head in self._boxes[key]}

    def corrected(self, key: StepKey, ruled: Mapping[str, Array], corrections: Mapping[str, Any]) -> dict[str, Array]:
        """Actions of the rule with corrections, within the bounds of their spaces.

        Args:
            key: Key of the sub-step.
            ruled: Head -> [B, ...] actions of the rule.
            corrections: Name of a new head -> [B, ...] corrections in [-1, 1].
        """
        actions = {}
        for head, box in self._boxes[key].items():
            raised = ruled[head] + self.scales[head] * corrections[head + SUFFIX]
            actions[head] = np.clip(raised, box.low, box.high).astype(box.dtype)
        return actions

    def corrections(self, key: StepKey, ruled: Mapping[str, Array], actions: Mapping[str, Any]) -> dict[str, Array]:
        """Corrections that turn the rule's actions into given ones, as far as their scales reach.

        Args:
            key: Key of the sub-step.
            ruled: Head -> [B, ...] actions of the rule.
            actions: Head -> [B, ...] actions.
        """
        found = {}
        for head, box in self._boxes[key].items():
            correction = (np.asarray(actions[head], box.dtype) - ruled[head]) / self.scales[head]
            found[head + SUFFIX] = np.clip(correction, -1, 1).astype(np.float32)
        return found


def seed_of_rule(seed: int) -> int:
    """Seed of the draws of a rule in an episode, from the seed of the episode."""
    return derive_seed(seed, "rule")


def seed_of_act(rule_seed: int, n_acts: int) -> int:
    """Seed of the draws of a rule in one act.

    Args:
        rule_seed: Result of `seed_of_rule`.
        n_acts: Number of earlier acts of the rule in the episode.
    """
    return derive_seed(rule_seed, n_acts)


def make_rule(policy: Any, arguments: Mapping[str, Any], env: StructuredEnv) -> Policy:
    """Make the rule of an environment.

    Args:
        policy: A policy; a class or function that makes one from any of `action_spaces_dict`, `masks`
            and `env`; the class path of either; or None for the environment's `heuristic_policy`.
        arguments: Further arguments of the class or function.
        env: The environment.

    Raises:
        ValueError: The environment has no `heuristic_policy`.
        TypeError: The result is not a policy; or arguments do not fit, or are given to a policy
            that is already made.
    """
    from maze_pl.core.policy import Policy

    if policy is None:
        policy = env.heuristic_policy
    if policy is None:
        raise ValueError(f"{name_of(env)} has no heuristic_policy; name the rule to correct as policy")
    if isinstance(policy, str):
        policy = import_object(policy)
    if callable(policy) and (isinstance(policy, type) or not isinstance(policy, Policy)):
        available = {"action_spaces_dict": env.action_spaces_dict, "masks": env.action_masks_dict, "env": env}
        names = inspect.signature(policy).parameters.keys() & available.keys() - arguments.keys()
        options = {**{name: available[name] for name in names}, **arguments}
        _require_arguments(policy, options, arguments)
        policy = policy(**options)
    elif arguments:
        raise TypeError(f"policy_arguments={dict(arguments)} are for a class or function, not for {policy!r}")
    if not isinstance(policy, Policy):
        raise TypeError(f"policy={policy!r} is not a policy: it has no method act")
    return policy


def _require_arguments(make: Any, options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse arguments that a class or function of a rule does not take, or that are missing.

    Args:
        make: The class or function.
        options: All arguments.
        given: Those of the configuration.

    Raises:
        TypeError: They do not fit; the message names the parameters.
    """
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        name = getattr(make, "__qualname__", str(make))
        rule = f"{name}({', '.join(signature.parameters)})"
        raise TypeError(f"policy_arguments={dict(given)} do not fit {rule}: {error}") from error
