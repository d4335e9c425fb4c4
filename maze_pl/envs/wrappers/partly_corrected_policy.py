"""A rule as it is, under a `ResidualActionWrapper` that corrects some of its action heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.rule_heads import require_heads
from maze_pl.core.spaces import no_value
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.arrays.array_wrapper_statistics import array_wrappers_of
from maze_pl.envs.arrays.observation_array_wrapper import ObservationArrayWrapper
from maze_pl.envs.arrays.residual_action_array_wrapper import ResidualActionArrayWrapper
from maze_pl.envs.contract import name_of
from maze_pl.envs.corrected_rule import SUFFIX
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper, wrappers_of
from maze_pl.envs.wrappers.residual_action_wrapper import ResidualActionWrapper
from maze_pl.envs.wrappers.sorted_spaces_wrapper import SortedSpacesWrapper

if TYPE_CHECKING:
    import torch

_Correcting = ResidualActionWrapper | ResidualActionArrayWrapper
_Changing = ObservationWrapper | ObservationArrayWrapper


class PartlyCorrectedPolicy:
    """Corrects nothing, and plays what the rule does in the heads that are not corrected.

    The rule acts deterministically, as in the wrapper. It observes what is observed outside of all
    wrappers. `PartlyCorrectedStatePolicy` is for rules that use the state of the simulation.

    Args:
        env: The environment with its wrappers.

    Raises:
        ValueError: No wrapper corrects a rule, other wrappers replace its heads, or wrappers around
            it change the observations of a rule that does not use the state.
    """

    def __init__(self, env: StructuredEnv) -> None:
        outer, wrapper = _correcting(env)
        self.rule = wrapper.rule
        changing = [other for other in outer if _changes_observations(other)]
        if changing and not self.rule.reads_state:
            names = [type(other).__name__ for other in changing]
            rule, corrected = type(self.rule.rule).__name__, sorted(self.rule.scales)
            fault = f"{names} around ResidualActionWrapper change the observations"
            reason = f"{fault} from which {rule} decides all heads"
            remedy = f"correct all heads instead of {corrected}, or write the rule as a MazeStatePolicy"
            raise ValueError(f"the rule without corrections cannot be played: {reason}; {remedy}")
        self._action_spaces_dict = dict(wrapper.action_spaces_dict)
        for key, space in env.action_spaces_dict.items():
            if key not in self._action_spaces_dict or not isinstance(space, spaces.Dict):
                fault = f"wrappers around ResidualActionWrapper make {space} of sub-step {key!r}"
                known = f"the rule decides {self._action_spaces_dict}"
                raise ValueError(f"the rule without corrections cannot be played: {fault}, and {known}")
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
        given = rule.act(batch, deterministic=True, generator=generator).action  # as the wrapper asks it
        for head in sorted(others):
            if head not in given or no_value(heads[head], given[head], n):
                fault = f"{type(rule).__name__} gives no value of {heads[head]} to {head!r} in sub-step {key!r}"
                raise ValueError(f"{fault}; the heuristic needs a rule that decides all heads")
            action[head] = given[head]
        return PolicyStep(action)


def _correcting(env: StructuredEnv) -> tuple[Sequence[object], _Correcting]:
    """Return the outermost wrapper that corrects a rule, after the wrappers around it.

    Raises:
        ValueError: There is none.
    """
    outer: list[object] = []
    for wrapper in wrappers_of(env):
        if issubclass(type(wrapper), ResidualActionWrapper):
            return outer, wrapper  # type: ignore[return-value]
        outer.append(wrapper)
    inner: Any = env
    if isinstance(inner.unwrapped, ArrayMazeEnv):
        for array_wrapper in array_wrappers_of(inner.unwrapped.array_env):
            if isinstance(array_wrapper, ResidualActionArrayWrapper):
                return outer, array_wrapper
            outer.append(array_wrapper)
    raise ValueError(f"no wrapper of {name_of(env)} corrects a rule; play the rule itself")


def _changes_observations(wrapper: Any) -> bool:
    """True if a wrapper may change observations, or does not pass all of them on."""
    kind = type(wrapper)  # isinstance would see through to inner wrappers
    if issubclass(kind, _Changing) and not issubclass(kind, SortedSpacesWrapper):
        return True
    outer_spaces = wrapper.observation_spaces_dict
    for key, inner in wrapper.env.observation_spaces_dict.items():
        if not _keeps_all_parts(inner, outer_spaces.get(key)):
            return True
    return False


def _keeps_all_parts(inner: spaces.Space[Any], outer: spaces.Space[Any] | None) -> bool:
    """True if observations of a space outside of a wrapper have all parts of those inside of it."""
    if not isinstance(inner, spaces.Dict) or not isinstance(outer, spaces.Dict):
        return inner == outer
    return all(outer.spaces.get(name) == space for name, space in inner.spaces.items())
