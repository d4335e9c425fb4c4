"""Discrete actions in place of boxes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Array, StructuredEnv
from maze_pl.envs.wrappers.replaced_heads_wrapper import ReplacedHeadsWrapper


class DiscretizeActionsWrapper(ReplacedHeadsWrapper):
    """Turns Box action heads into Discrete ones (one entry) or MultiDiscrete ones (several).

    Bin i of an entry stands for the value low + i * (high - low) / (num_bins - 1): evenly spaced, both ends included.
    In a Box of integers it is rounded to the nearest one, and up from the middle between two.

    Args:
        env: The environment to wrap.
        discretization_config: Head -> `num_bins`, at least 2, and optionally `low` and `high`: numbers, or lists in the
            shape of the action. By default they are the bounds of the head's space.

    Attributes:
        bins: Head -> [entries, bins] values, and the shape of the head.

    Raises:
        ValueError: A head is not a Box, is unknown, or has different spaces in two sub-steps; or
            the bounds are infinite, outside the space, or not in order; or two bins of integers have
            the same value.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = DiscretizeActionsWrapper(GymMazeEnv("Pendulum-v1"), discretization_config={"action": {"num_bins": 5}})
        >>> env.action_space["action"], env.action({"action": 1})["action"]
        (Discrete(5), array([-1.], dtype=float32))
    """

    def __init__(self, env: StructuredEnv, discretization_config: Mapping[str, Mapping[str, Any]]) -> None:
        self.bins: dict[str, tuple[Array, tuple[int, ...]]] = {}
        super().__init__(env, discretization_config)

    def replacement(self, head: str, space: Any, entry: Any) -> dict[str, spaces.Space[Any]]:
        """Discrete or MultiDiscrete space with one choice per entry of the Box."""
        if not isinstance(space, spaces.Box):
            raise ValueError(f"DiscretizeActionsWrapper: head {head!r} is {space}; only a Box can be discretised")
        values = bin_values(space, **entry)
        if np.issubdtype(space.dtype, np.integer):
            values = np.floor(values + 0.5)
            if (np.diff(values) == 0).any():
                came = f"several bins of {entry} for {head!r} have the same value"
                remedy = "use at most as many bins as there are integers between the bounds"
                raise ValueError(f"discretization_config: {came}; {remedy}")
        values = values.astype(space.dtype)
        self.bins[head] = (values, space.shape)
        n_entries, num_bins = values.shape
        if n_entries == 1:
            return {head: spaces.Discrete(num_bins)}
        return {head: spaces.MultiDiscrete([num_bins] * n_entries)}

    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """Values that the bins stand for."""
        table, shape = self.bins[head]
        return table[np.arange(len(table)), np.reshape(values[head], -1)].reshape(shape)

    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """Bins whose values are nearest."""
        bins = np.abs(self.bins[head][0] - np.reshape(value, (-1, 1))).argmin(-1)
        return {head: bins if len(bins) > 1 else int(bins[0])}


def bin_values(space: spaces.Box, num_bins: int, low: Any = None, high: Any = None) -> Array:
    """Values that the bins stand for, [number of entries, num_bins].

    Raises:
        ValueError: The bounds are infinite, outside the space, or not in order, or there are too
            few bins.
    """
    ends = [space.low if low is None else low, space.high if high is None else high]
    low, high = (np.broadcast_to(np.asarray(end, np.float64), space.shape).ravel() for end in ends)
    fits = (space.low.ravel() <= low) & (low < high) & (high <= space.high.ravel()) & np.isfinite([low, high]).all()
    if num_bins < 2 or not fits.all():
        wrong = f"num_bins={num_bins}, low={low}, high={high} do not fit {space}"
        raise ValueError(f"discretization_config: {wrong}; use at least 2 bins and finite bounds within the space")
    return np.linspace(low, high, num_bins, axis=-1)
