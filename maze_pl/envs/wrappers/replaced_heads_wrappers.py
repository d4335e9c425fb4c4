"""Other action heads in the place of an environment's own, for policies that need another kind of choice."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Action, Array, ResetResult, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper

Parts = Mapping[str, Mapping[str, Sequence[int]]]
"""New head -> `indices` -> which entries of the old one it has."""


class ReplacedHeadsWrapper(ActionWrapper):
    """Replaces action heads, by name and in every sub-step that has them, each by one or several others.

    Args:
        env: The environment to wrap.
        config: Head -> what to do with it.

    Raises:
        ValueError: A head is unknown, is not the same in all sub-steps, or would be there twice.
    """

    def __init__(self, env: StructuredEnv, config: Mapping[str, Any]) -> None:
        super().__init__(env)
        old = {head: part for space in env.action_spaces_dict.values() for head, part in space.items()}
        differing = {h for space in env.action_spaces_dict.values() for h, part in space.items() if part != old[h]}
        name = type(self).__name__
        if wrong := set(config) - (set(old) - differing):
            raise ValueError(f"{name}: {sorted(wrong)} are not the same in all sub-steps, or not among {sorted(old)}")
        self._new = {head: self.replacement(head, old[head], entry) for head, entry in config.items()}
        self._action_spaces = {}
        for key, space in env.action_spaces_dict.items():
            parts = [item for head, part in space.items() for item in self._new.get(head, {head: part}).items()]
            if len(dict(parts)) != len(parts):
                raise ValueError(f"{name}: some of the action heads {[head for head, _ in parts]} have the same name")
            self._action_spaces[key] = spaces.Dict(dict(parts))

    @abstractmethod
    def replacement(self, head: str, space: spaces.Space[Any], entry: Any) -> dict[str, spaces.Space[Any]]:
        """New heads, with their spaces, for an old one."""

    @abstractmethod
    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """Value of an old head from those of the new ones."""

    @abstractmethod
    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """Values of the new heads from that of the old one."""

    def action(self, action: Action) -> Action:
        """With the old heads."""
        changed = dict(action)
        for head, parts in self._new.items():
            if parts.keys() <= action.keys():  # otherwise it is another sub-step's
                changed[head] = self.joined(head, {name: changed.pop(name) for name in parts})
        return changed

    def reverse_action(self, action: Action) -> Action:
        """With the new heads."""
        changed = dict(action)
        for head in self._new.keys() & action.keys():
            changed |= self.divided(head, changed.pop(head))
        return changed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the seed also determines what the new spaces sample."""
        for space in () if seed is None else (self._action_spaces or {}).values():
            space.seed(seed)
        return self.env.reset(seed=seed, options=options)


class DiscretizeActionsWrapper(ReplacedHeadsWrapper):
    """Turns Box action heads into Discrete ones (one entry) or MultiDiscrete ones (several).

    Bin i of an entry stands for the value low + i * (high - low) / (num_bins - 1): evenly spaced, both ends included.

    Args:
        env: The environment to wrap.
        discretization_config: Head -> `num_bins`, at least 2, and optionally `low` and `high`: numbers, or lists in the
            shape of the action. By default they are the bounds of the head's space.

    Raises:
        ValueError: A head is no Box, is unknown, or has different spaces in two sub-steps, or the bounds are infinite,
            outside of the space, or not in order.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = DiscretizeActionsWrapper(GymMazeEnv("Pendulum-v1"), discretization_config={"action": {"num_bins": 5}})
        >>> env.action_space["action"], env.action({"action": 1})["action"]
        (Discrete(5), array([-1.], dtype=float32))
    """

    def __init__(self, env: StructuredEnv, discretization_config: Mapping[str, Mapping[str, Any]]) -> None:
        self._bins: dict[str, tuple[Array, tuple[int, ...]]] = {}  # [entries, bins] values, and the shape of the head
        super().__init__(env, discretization_config)

    def replacement(self, head: str, space: Any, entry: Any) -> dict[str, spaces.Space[Any]]:
        """As many choices as there are entries."""
        if not isinstance(space, spaces.Box):
            raise ValueError(f"DiscretizeActionsWrapper: head {head!r} is {space}; only a Box can be discretised")
        values = bin_values(space, **entry).astype(space.dtype)
        self._bins[head], (n_entries, num_bins) = (values, space.shape), values.shape
        return {head: spaces.Discrete(num_bins) if n_entries == 1 else spaces.MultiDiscrete([num_bins] * n_entries)}

    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """The values that bins stand for."""
        table, shape = self._bins[head]
        return table[np.arange(len(table)), np.reshape(values[head], -1)].reshape(shape)

    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """The bins whose values are nearest."""
        bins = np.abs(self._bins[head][0] - np.reshape(value, (-1, 1))).argmin(-1)
        return {head: bins if len(bins) > 1 else int(bins[0])}


def bin_values(space: spaces.Box, num_bins: int, low: Any = None, high: Any = None) -> Array:
    """[number of entries, num_bins] the values that bins stand for.

    Raises:
        ValueError: The bounds are infinite, outside of the space, or not in order, or there are too few bins.
    """
    ends = [space.low if low is None else low, space.high if high is None else high]
    low, high = (np.broadcast_to(np.asarray(end, np.float64), space.shape).ravel() for end in ends)
    fits = (space.low.ravel() <= low) & (low < high) & (high <= space.high.ravel()) & np.isfinite([low, high]).all()
    if num_bins < 2 or not fits.all():
        wrong = f"num_bins={num_bins}, low={low}, high={high} do not fit {space}"
        raise ValueError(f"discretization_config: {wrong}; use at least 2 bins and finite bounds within the space")
    return np.linspace(low, high, num_bins, axis=-1)


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

    def __init__(self, env: StructuredEnv, split_config: Mapping[str, Parts]) -> None:
        self._indices: dict[str, dict[str, list[int]]] = {}
        super().__init__(env, split_config)

    def replacement(self, head: str, space: Any, entry: Any) -> dict[str, spaces.Space[Any]]:
        """Vectors of some of the entries."""
        kinds = spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
        parts = self._indices[head] = {name: list(part["indices"]) for name, part in entry.items()}
        indices = sorted(index for part in parts.values() for index in part)
        if not isinstance(space, kinds) or indices != list(range(*space.shape)):
            raise ValueError(f"split_config: {head!r}, {space}, is no vector with each entry in exactly one of {parts}")
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
