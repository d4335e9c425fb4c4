"""A rule under wrappers that replace action heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.core.policy import MazeStatePolicy, Policy, PolicyBatch, PolicyStep
from maze_pl.core.spaces import no_value
from maze_pl.envs.contract import name_of
from maze_pl.envs.corrected_rule import make_rule
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers.replaced_heads_wrapper import ReplacedHeadsWrapper

if TYPE_CHECKING:
    import torch


class TranslatedRulePolicy(MazeStatePolicy):
    """Plays a rule of the environment inside of wrappers that replace action heads, and translates its actions.

    `DiscretizeActionsWrapper` takes the nearest bins, and `SplitActionsWrapper` parts of the vectors.
    `heuristic` does the same under these wrappers. The rule observes what is observed outside of
    the wrappers, gets states of the simulation, and keeps no state between acts.

    Args:
        env: The environment with its wrappers.
        policy: The rule: a policy; a class or function that makes one from any of
            `action_spaces_dict`, `masks` and `env`; the class path of either; or None for the
            `heuristic_policy` of the environment inside.
        policy_arguments: Further arguments of the class or function.

    Raises:
        ValueError: No wrapper replaces action heads, or there is no rule.
        TypeError: The rule is not a policy.
    """

    def __init__(
        self,
        env: StructuredEnv,
        policy: str | Policy | Callable[..., Policy] | None = None,
        policy_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        replacing = [wrapper for wrapper in wrappers_of(env) if issubclass(type(wrapper), ReplacedHeadsWrapper)]
        if not replacing:
            raise ValueError(f"no wrapper of {name_of(env)} replaces action heads; play the rule itself")
        if policy is None:
            del replacing[1:]  # the heuristic of the environment inside is translated by further ones
        inside = replacing[-1].env
        self.rule = make_rule(policy, policy_arguments or {}, inside)
        self._action_spaces_dict = dict(inside.action_spaces_dict)
        self._translations: list[Any] = [wrapper.without_env() for wrapper in reversed(replacing)]

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Let the rule act, and translate its actions.

        Raises:
            ValueError: The rule does not give actions of the environment inside.
        """
        step = self.rule.act(batch, deterministic=deterministic, temperature=temperature, generator=generator)
        n = len(batch.agent_id)
        heads = self._action_spaces_dict[batch.step_key].spaces
        fits = heads.keys() == step.action.keys()
        if not fits or any(no_value(space, step.action[head], n) for head, space in heads.items()):
            raise ValueError(f"{type(self.rule).__name__} gave {step.action}, which are not {n} actions of {heads}")
        rows: list[Any] = [{head: values[row] for head, values in step.action.items()} for row in range(n)]
        for translation in self._translations:
            rows = [translation.reverse_action(row) for row in rows]
        return PolicyStep({head: np.stack([row[head] for row in rows]) for head in rows[0]})
