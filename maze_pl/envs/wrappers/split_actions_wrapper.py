"""Makes parts of an action vector action heads, each with a distribution, or a wrapper, of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrappers.replaced_heads_wrapper import ReplacedHeadsWrapper


class SplitActionsWrapper(ReplacedHeadsWrapper):
    """Splits action heads into several, each with some of the entries.

    Args:
        env: The environment to wrap.
        split_config: Head -> new head -> `{indices: [...]}`, the entries that it has; each entry of the old head must
            belong to exactly one new head. Heads are a Box, MultiDiscrete or MultiBinary with one axis.

    Raises:
        ValueError: A head is of another kind, unknown, or would be there twice, or an entry belongs to none or several
            new heads.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> split = {"action": {"main": {"indices": [0]}, "side": {"indices": [1]}}}
        >>> env = SplitActionsWrapper(GymMazeEnv("LunarLanderContinuous-v3"), split_config=split)
        >>> list(env.action_space)
        ['main', 'side']
    """

    def __init__(
        self, env: StructuredEnv, split_config: Mapping[str, Mapping[str, Mapping[str, Sequence[int]]]]
    ) -> None:
        heads = split_config.items()
        self._indices = {head: {name: list(one["indices"]) for name, one in parts.items()} for head, parts in heads}
        super().__init__(env, split_config)

    def replacement(self, head: str, space: Any, entry: Any) -> dict[str, spaces.Space[Any]]:
        """Vectors of some of the entries."""
        parts, kinds = self._indices[head], spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
        indices = sorted(index for part in parts.values() for index in part)
        if not isinstance(space, kinds) or indices != list(range(*space.shape)):
            expected = "a vector with each of its entries in exactly one part"
            raise ValueError(f"SplitActionsWrapper: head {head!r}, {space}, must be {expected}; indices are {parts}")
        return {name: _part(space, indices) for name, indices in parts.items()}

    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """One vector of all parts."""
        parts = self._indices[head]
        whole = np.empty(sum(map(len, parts.values())), np.asarray(next(iter(values.values()))).dtype)
        for name, indices in parts.items():
            whole[indices] = values[name]
        return whole

    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """The parts of a vector."""
        return {name: np.asarray(value)[indices] for name, indices in self._indices[head].items()}


def _part(space: Any, indices: list[int]) -> spaces.Space[Any]:
    """The space of some entries of a vector."""
    if isinstance(space, spaces.Box):
        return spaces.Box(space.low[indices], space.high[indices], dtype=space.low.dtype.type)
    return spaces.MultiDiscrete(space.nvec[indices]) if hasattr(space, "nvec") else spaces.MultiBinary(len(indices))
