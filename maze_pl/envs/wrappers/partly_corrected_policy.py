"""A rule as it is, under a `ResidualActionWrapper` that corrects some of its action heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.rule_heads import require_heads
from maze_pl.core.spaces import no_value
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.arrays.array_wrapper_statistics import array_wrappers_of
from maze_pl.envs.arrays.residual_action_array_wrapper import ResidualActionArrayWrapper
from maze_pl.envs.contract import name_of
from maze_pl.envs.corrected_rule import SUFFIX
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers.residual_action_wrapper import ResidualActionWrapper

if TYPE_CHECKING:
    import torch


class PartlyCorrectedPolicy(MazeStatePolicy):
    """Corrects nothing, and plays what the rule does in the heads that are not corrected.

    For these, the rule observes what is observed outside of the wrappers.

    Args:
        env: The environment with its wrappers.

    Raises:
        ValueError: No wrapper corrects a rule, or other wrappers replace its heads.
    """

    def __init__(self, env: StructuredEnv) -> None:
        wrapper = _correcting(env)
        self.rule = wrapper.rule
        self._action_spaces_dict = dict(wrapper.action_spaces_dict)
        for key, space in env.action_spaces_dict.items():
            require_heads(self, space, self._action_spaces_dict[key].spaces)

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Corrections of 0, and the rule's actions in the other heads.

        Raises:
            ValueError: The rule does not give an action to one of these.
        """
        key, n = batch.step_key, len(batch.agent_id)
        heads = self._action_spaces_dict[key].spaces
        action: dict[str, Any] = {}
        for head in self.rule.heads_of(key):
            box = heads[head + SUFFIX]
            action[head + SUFFIX] = np.zeros((n, *(box.shape or ())), box.dtype)
        others = heads.keys() - action.keys()
        if not others:
            return PolicyStep(action)
        rule = self.rule.rule
        given = rule.act(batch, deterministic=deterministic, temperature=temperature, generator=generator).action
        for head in sorted(others):
            if head not in given or no_value(heads[head], given[head], n):
                fault = f"{type(rule).__name__} gives no value of {heads[head]} to {head!r} in sub-step {key!r}"
                raise ValueError(f"{fault}; the heuristic needs a rule that decides all heads")
            action[head] = given[head]
        return PolicyStep(action)


def _correcting(env: StructuredEnv) -> ResidualActionWrapper | ResidualActionArrayWrapper:
    """Return the outermost wrapper that corrects a rule, in the form for single episodes or for arrays.

    Raises:
        ValueError: There is none.
    """
    for wrapper in wrappers_of(env):
        if issubclass(type(wrapper), ResidualActionWrapper):
            return wrapper  # type: ignore[return-value]
    inner: Any = env
    if isinstance(inner.unwrapped, ArrayMazeEnv):
        for array_wrapper in array_wrappers_of(inner.unwrapped.array_env):
            if isinstance(array_wrapper, ResidualActionArrayWrapper):
                return array_wrapper
    raise ValueError(f"no wrapper of {name_of(env)} corrects a rule; play the rule itself")
