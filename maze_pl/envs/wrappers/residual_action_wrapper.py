"""Corrections of a rule's actions in place of actions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.seeding import derive_seed
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.residual_action_array_wrapper import ResidualActionArrayWrapper
from maze_pl.envs.corrected_rule import SUFFIX, CorrectedRule, make_rule, seed_of_act, seed_of_rule
from maze_pl.envs.structured_env import (
    Action,
    Array,
    Dicts,
    Observation,
    ResetResult,
    StepParts,
    StepResult,
    StructuredEnv,
)
from maze_pl.envs.wrapper import ActionWrapper
from maze_pl.envs.wrappers.observation_normalization_wrapper import normalizers_of

if TYPE_CHECKING:
    from maze_pl.core.policy import Policy


class ResidualActionWrapper(ActionWrapper):
    """Lets an agent correct the actions of a rule, so that training starts from the rule.

        action = clip(action of the rule + scale * correction, low, high)

    Each corrected Box head is replaced by a head `<head>_correction` in [-1, 1]; other heads stay.
    Residual policy learning (Silver et al. 2018, arXiv:1812.06298; Johannink et al. 2019,
    arXiv:1812.03201). The `heuristic` of the wrapped environment plays the rule without corrections;
    where heads are not corrected, the rule must give actions to these, too, and wrappers around this
    one must not change what it observes.

    The rule acts deterministically, and keeps no state between acts. It sees what is observed inside
    of this wrapper, so that normalisation belongs outside, unless the rule was made for it. A
    `MazeStatePolicy` also gets the state of the simulation. A rule that draws random numbers all the
    same must take them from the `generator` of its method `act`, which depends on the seed of the
    episode.

    Args:
        env: The environment to wrap.
        corrections: Head -> scale, the largest correction in units of the head's space: a number, or
            a list in the shape of the action.
        policy: The rule: a policy; a class or function that makes one from any of
            `action_spaces_dict`, `masks` and `env`; the class path of either; or None for the
            `heuristic_policy` of the environment.
        policy_arguments: Further arguments of the class or function.

    Attributes:
        rule: The rule with the scales of its corrections.

    Raises:
        ValueError: A head is unknown, is not a Box, or differs between sub-steps; a scale is not
            positive; or there is no rule.
        TypeError: The rule is not a policy.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = GymMazeEnv("LunarLanderContinuous-v3")
        >>> env = ResidualActionWrapper(env, {"action": 0.3}, "maze_pl.agents.LunarLanderHeuristicPolicy")
        >>> env.action_space
        Dict('action_correction': Box(-1.0, 1.0, (2,), float32))
    """

    def __init__(
        self,
        env: StructuredEnv,
        corrections: Mapping[str, Any],
        policy: str | Policy | Callable[..., Policy] | None = None,
        policy_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(env)
        scales: dict[str, Array] = {}
        self._action_spaces = {}
        for key, space in env.action_spaces_dict.items():
            parts: dict[str, spaces.Space[Any]] = {}
            for head, part in space.spaces.items():
                if head in corrections:
                    scale = _scale_of(head, part, corrections[head])
                    if not np.array_equal(scales.setdefault(head, scale), scale):
                        raise ValueError(f"ResidualActionWrapper: head {head!r} differs between sub-steps")
                    parts[head + SUFFIX] = spaces.Box(-1, 1, part.shape)
                else:
                    parts[head] = part
            self._action_spaces[key] = spaces.Dict(parts)
        if unknown := corrections.keys() - scales.keys():
            known = sorted({head for space in env.action_spaces_dict.values() for head in space.spaces})
            fault = f"corrections of {sorted(unknown)}, but the action heads are {known}"
            raise ValueError(f"ResidualActionWrapper: {fault}")
        made = make_rule(policy, policy_arguments or {}, env)
        self.rule = CorrectedRule(made, env.action_spaces_dict, scales)
        _warn_of_normalization(env, self.rule)
        self._seen: Observation = {}  # the last observation inside of this wrapper
        self._rule_seed = 0  # until the first reset: part of checkpoints, which are the same in equal runs
        self._n_ruled = 0  # acts of the rule in the episode

    @property
    def heuristic_policy(self) -> str:  # type: ignore[override]
        """Policy that plays the rule."""
        heads = {head for space in self.env.action_spaces_dict.values() for head in space.spaces}
        if heads == self.rule.scales.keys():
            return "maze_pl.envs.wrappers.no_correction_policy.NoCorrectionPolicy"
        if self.rule.reads_state:
            return "maze_pl.envs.wrappers.partly_corrected_state_policy.PartlyCorrectedStatePolicy"
        return "maze_pl.envs.wrappers.partly_corrected_policy.PartlyCorrectedPolicy"

    def action(self, action: Action) -> Action:
        """Action of the rule, corrected."""
        step_key, agent_id = self.env.actor_id()
        if not self.rule.heads_of(step_key):
            return action
        state = self.env.get_simulation_state() if self.rule.reads_state else None
        seed = seed_of_act(self._rule_seed, self._n_ruled)
        self._n_ruled += 1
        ruled = self._ruled(step_key, int(agent_id), self._seen, state, seed)
        corrected = self.rule.corrected(step_key, ruled, action)
        new = {head + SUFFIX for head in corrected}
        return {**{head: value for head, value in action.items() if head not in new}, **corrected}

    def _ruled(
        self, step_key: StepKey, agent_id: int, observation: Observation, maze_state: Any, seed: int
    ) -> dict[str, Array]:
        """Actions of the rule for one actor, with a seed for what it draws."""
        rows = {name: np.asarray(value)[np.newaxis] for name, value in observation.items()}
        states = [maze_state] if self.rule.reads_state else None
        acted = self.rule.act(step_key, rows, np.array([agent_id]), states, lambda _: seed)
        return {head: values[0] for head, values in acted.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode."""
        result = super().reset(seed=seed, options=options)
        self._seen = result[0]
        following = derive_seed(self._rule_seed, "episode")
        self._rule_seed = following if seed is None else seed_of_rule(seed)
        self._n_ruled = 0
        return result

    def reseed(self, seed: int) -> None:
        """Make the rest of the episode depend on a seed, also the draws of the rule."""
        self.env.reseed(seed)
        self._rule_seed = seed_of_rule(seed)

    def state_dict(self) -> dict[str, Any]:
        """Seed of the rule's draws in this episode, and the number of its acts."""
        return {"rule_seed": self._rule_seed, "n_ruled": self._n_ruled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._rule_seed = state["rule_seed"]
        self._n_ruled = state["n_ruled"]

    def step(self, action: Action) -> StepResult:
        """Correct the rule's action and step."""
        result = super().step(action)
        self._seen = result[0]
        return result

    def step_in_parts(self, action: Action) -> StepParts:
        """Correct the rule's action and pass it on."""
        result = yield from super().step_in_parts(action)
        self._seen = result[0]
        return result

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action to corrections of what the rule does in this state.

        A rule that draws gets the same generator for all states; its draws were not recorded.

        Raises:
            ValueError: A sub-step has several agents: a recorded state does not tell which one acts.
        """
        converted = self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        observations, actions = converted
        if actions is None or observations is None:
            return converted
        changed: dict[StepKey, Action] = {}
        for key, action in actions.items():
            if self.agent_counts_dict[key] != 1:
                fault = "has several agents, and a recorded state does not tell which one acts"
                found = f"sub-step {key!r} {fault}"
                raise ValueError(f"ResidualActionWrapper cannot turn actions back: {found}")
            heads = self.rule.heads_of(key)
            kept = {head: value for head, value in action.items() if head not in heads}
            ruled = self._ruled(key, 0, observations[key], maze_state, seed=0)
            changed[key] = {**kept, **self.rule.corrections(key, ruled, action)}
        return observations, changed

    def clone_from(self, env: Any) -> None:
        """Copy the state of another stack, except the rule, which keeps no state."""
        rule, other, env.rule = self.rule, env.rule, None
        try:
            super().clone_from(env)
        finally:
            env.rule = other
        self.rule = rule

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return ResidualActionArrayWrapper(env, self.rule, self.action_spaces_dict, self.heuristic_policy)


def _warn_of_normalization(env: StructuredEnv, rule: CorrectedRule) -> None:
    """Warn of wrappers that normalise what a rule observes, unless it may have learned from that."""
    normalizers = [type(wrapper).__name__ for wrapper in normalizers_of(env) if wrapper.strategies]
    if not normalizers or rule.reads_state or rule.has_networks:
        return
    name = type(rule.rule).__name__
    fact = f"{name} observes what {normalizers} inside of ResidualActionWrapper have normalised"
    remedy = "if the rule needs the units of the environment, put ResidualActionWrapper inside of them"
    warnings.warn(f"{fact}: {remedy}", UserWarning, stacklevel=3)


def _scale_of(head: str, space: spaces.Space[Any], given: Any) -> Array:
    """Scale of the corrections of a head, in the shape of its actions."""
    if not isinstance(space, spaces.Box):
        raise ValueError(f"ResidualActionWrapper: head {head!r} is {space}; only a Box can be corrected")
    try:
        scale = np.broadcast_to(np.asarray(given, space.dtype), space.shape)
    except (TypeError, ValueError) as error:
        expected = f"expected a number, or a list of shape {space.shape}"
        raise ValueError(f"ResidualActionWrapper: head {head!r} has the scale {given!r}; {expected}") from error
    if not (np.isfinite(scale) & (scale > 0)).all():
        expected = "expected finite numbers above 0"
        raise ValueError(f"ResidualActionWrapper: head {head!r} has the scale {given!r}; {expected}")
    return scale
