"""Mean and spread of each element of an observation, gathered by several copies of an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maze_pl.envs.structured_env import Array


class RunningMoments:
    """Common moments of all copies at their last merge, and sums that this copy has gathered since.

    The sums are those of differences from the common mean, so that nothing is lost where the mean is
    large (Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance"):

        mean' = mean + sum / n',    m2' = m2 + sum_squares - sum^2 / n',    n' = n + n_new

    With a window, a larger n' is reduced to it, and m2' in proportion: earlier observations count less
    and less.

    Args:
        state: Result of `state_dict`.

    Attributes:
        window: Number of observations that the moments look back on; 0 for all.
        n: Number of observations at the last merge.
        mean: [...] their mean, in float64.
        m2: [...] the sum of their squared differences from the mean.
        n_new: Number of observations since then.
        sum: [...] the sum of their differences from `mean`.
        sum_squares: [...] the sum of the squares of these differences.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.window, self.n, self.n_new = (int(state[name]) for name in ("window", "n", "n_new"))
        self.mean, self.m2, self.sum, self.sum_squares = (
            np.array(state[name], np.float64) for name in ("mean", "m2", "sum", "sum_squares")
        )

    @classmethod
    def of(cls, n: int, mean: Array, std: Array, window: int) -> RunningMoments:
        """Begin with the moments of n observations.

        Args:
            n: Number of observations.
            mean: [...] their mean.
            std: [...] their standard deviation.
            window: Number of observations that the moments look back on; 0 for all.
        """
        return cls({"window": window, **_without_sums(n, mean, n * std**2)})

    @property
    def statistics(self) -> dict[str, Array]:
        """Mean and standard deviation at the last merge."""
        return {"mean": self.mean, "std": standard_deviation(self.n, self.mean, self.m2)}

    def add(self, value: Array) -> None:
        """Gather an observation."""
        difference = value - self.mean
        self.n_new += 1
        self.sum += difference
        self.sum_squares += difference * difference

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes; arrays are copied."""
        return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}


def standard_deviation(n: int, mean: Array, m2: Array) -> Array:
    """Return the standard deviation, at least the rounding error of the mean in float32.

    Elements that stay the same are thus divided by a number that is not 0.

    Args:
        n: Number of observations.
        mean: [...] their mean.
        m2: [...] the sum of their squared differences from the mean.
    """
    single = np.finfo(np.float32)
    return np.maximum(np.sqrt(m2 / n), np.maximum(single.eps * np.abs(mean), single.tiny))


def merged_moments(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the common moments with what each copy has gathered since, in their order.

    Args:
        states: Results of `RunningMoments.state_dict` of the copies.

    Returns:
        The state of a copy after the merge.

    Raises:
        ValueError: The copies do not have the same common moments.
    """
    window, n, mean, m2 = (states[0][name] for name in ("window", "n", "mean", "m2"))
    for state in states:
        is_same = state["mean"] is mean or np.array_equal(state["mean"], mean)
        if state["n"] != n or not is_same:
            raise ValueError("the copies start from different statistics; give all of them the same shared state first")
    total = n + sum(state["n_new"] for state in states)
    sums = np.stack([state["sum"] for state in states]).sum(0)
    squares = np.stack([state["sum_squares"] for state in states]).sum(0)
    m2 = np.maximum(m2 + squares - sums**2 / total, 0.0)  # rounding may make it negative
    mean = mean + sums / total
    if 0 < window < total:
        m2, total = m2 * (window / total), window
    return {"window": window, **_without_sums(total, mean, m2)}


def rebased_moments(state: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Put what a copy has gathered on top of later common moments.

    Args:
        state: State of a copy that began with earlier moments.
        current: Result of a later merge.
    """
    shift = state["mean"] - current["mean"]
    n_new, sums = state["n_new"], state["sum"]
    squares = state["sum_squares"] + 2 * shift * sums + n_new * shift**2
    common = {name: current[name] for name in ("n", "mean", "m2")}
    return {
        **common,
        "window": state["window"],
        "n_new": n_new,
        "sum": sums + n_new * shift,
        "sum_squares": np.maximum(squares, 0.0),
    }


def _without_sums(n: int, mean: Array, m2: Array) -> dict[str, Any]:
    """Return the state after a merge."""
    return {"n": n, "mean": mean, "m2": m2, "n_new": 0, "sum": np.zeros_like(mean), "sum_squares": np.zeros_like(mean)}
