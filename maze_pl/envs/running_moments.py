"""Mean and spread of each element of an observation, gathered by several copies of an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from maze_pl.envs.structured_env import Array

LEAST_SHARE: Final = 0.01
"""Share of the first standard deviation that the standard deviation does not fall below."""
ARRAYS: Final = ("mean", "m2", "least_std", "sum", "sum_squares")
"""Names of the arrays in the state of moments, all of which have the same shape."""


class RunningMoments:
    """Common moments of all copies at their last merge, and sums that this copy has gathered since.

    The sums are those of differences from the common mean, so that nothing is lost where the mean is
    large (Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance"):

        mean' = mean + sum / n',    m2' = m2 + sum_squares - sum^2 / n',    n' = n + n_new

    With a window, a larger n' is reduced to it, and m2' in proportion: earlier observations count less
    and less.

    The rows of a table may share their moments [1, ...]. A table then counts as one observation: the
    differences, and their squares, are means over its rows.

    Args:
        state: Result of `state_dict`.

    Attributes:
        window: Number of observations that the moments look back on; 0 for all.
        n: Number of observations at the last merge.
        mean: [...] their mean, in float64.
        m2: [...] the sum of their squared differences from the mean.
        least_std: [...] what the standard deviation does not fall below, and no merge changes.
        n_new: Number of observations since then.
        sum: [...] the sum of their differences from `mean`.
        sum_squares: [...] the sum of the squares of these differences.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.window = int(state["window"])
        self.n = int(state["n"])
        self.mean = np.array(state["mean"], np.float64)
        self.m2 = np.array(state["m2"], np.float64)
        self.least_std = np.array(state["least_std"], np.float64)
        self.n_new = int(state["n_new"])
        self.sum = np.array(state["sum"], np.float64)
        self.sum_squares = np.array(state["sum_squares"], np.float64)

    @classmethod
    def of(cls, n: int, mean: Array, std: Array, window: int) -> RunningMoments:
        """Begin with the moments of n observations.

        Args:
            n: Number of observations.
            mean: [...] their mean.
            std: [...] their standard deviation.
            window: Number of observations that the moments look back on; 0 for all.
        """
        return cls({"window": window, **_without_sums(n, mean, n * std**2, LEAST_SHARE * std)})

    @property
    def statistics(self) -> dict[str, Array]:
        """Mean and standard deviation at the last merge."""
        return {"mean": self.mean, "std": standard_deviation(self.n, self.mean, self.m2, self.least_std)}

    def add(self, value: Array) -> None:
        """Gather an observation, or a table whose rows share their moments."""
        difference = value - self.mean
        self.n_new += 1
        self.sum += mean_of_rows(difference, self.mean.shape)
        self.sum_squares += mean_of_rows(difference * difference, self.mean.shape)

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes; arrays are copied."""
        return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}


def mean_of_rows(values: Array, shape: tuple[int, ...]) -> Array:
    """Return the mean over the rows of tables that share their moments; other values as they are.

    Args:
        values: [..., *observation].
        shape: Shape of the moments; [1, ...] if rows share them, otherwise that of an observation.

    Returns:
        [..., *shape].
    """
    axis = values.ndim - len(shape)
    if not shape or values.shape[axis] == shape[0]:
        return values
    return np.asarray(values.mean(axis, keepdims=True))


def standard_deviation(n: int, mean: Array, m2: Array, least_std: Array) -> Array:
    """Return the standard deviation of a window, above a lower limit.

        std = max(sqrt(m2 / n), least_std, eps * |mean|, tiny)

    A window forgets the spread of an element that stays the same for long. Without `least_std`, its
    first change would be divided by a number near 0. The other limits are the rounding error of the
    mean, and the smallest number, in float32.

    Args:
        n: Number of observations.
        mean: [...] their mean.
        m2: [...] the sum of their squared differences from the mean.
        least_std: [...] a share of the first standard deviation.
    """
    single = np.finfo(np.float32)
    least = np.maximum(least_std, np.maximum(single.eps * np.abs(mean), single.tiny))
    return np.maximum(np.sqrt(m2 / n), least)


def require_all(names: Iterable[str], state: Mapping[str, Any], owner: str) -> None:
    """Refuse statistics that some observations lack.

    Args:
        names: The observations.
        state: Observation -> its statistics.
        owner: Name of the wrapper, for messages.

    Raises:
        ValueError: Some are missing.
    """
    if missing := [name for name in names if name not in state]:
        fault = f"{missing} are not among the statistics of {sorted(state)} that were gathered before"
        raise ValueError(f"{owner}: {fault}")


def require_normalized(names: Iterable[str], state: Mapping[str, Any], owner: str) -> None:
    """Refuse statistics of observations that are not normalised.

    Args:
        names: The observations that are.
        state: Observation -> its statistics.
        owner: Name of the wrapper, for messages.

    Raises:
        ValueError: There are some.
    """
    known = list(names)
    if others := sorted(state.keys() - set(known)):
        raise ValueError(f"{owner}: {others} are not normalised; {known} are")


def require_fitting(shapes: Mapping[str, tuple[int, ...]], state: Mapping[str, Any], owner: str) -> None:
    """Refuse moments of observations that are not normalised, or of another form.

    Args:
        shapes: Observation -> the shape of its moments.
        state: Observation -> result of `RunningMoments.state_dict`.
        owner: Name of the wrapper, for messages.

    Raises:
        ValueError: An observation is not normalised, or its moments do not fit.
    """
    require_normalized(shapes, state, owner)
    for name, moments in state.items():
        title = f"{owner}: observation {name!r}"
        if lacking := [part for part in ("n", "n_new", *ARRAYS) if part not in moments]:
            raise ValueError(f"{title}: its statistics lack {lacking}; take them from a run or `shared_state`")
        for part in ARRAYS:
            shape = tuple(np.shape(moments[part]))
            if shape != shapes[name]:
                raise ValueError(f"{title}: statistic {part!r} has shape {shape}, not {shapes[name]}")


def merged_moments(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the common moments with what each copy has gathered since, in their order.

    Args:
        states: Results of `RunningMoments.state_dict` of the copies.

    Returns:
        The state of a copy after the merge.

    Raises:
        ValueError: The copies do not have the same common moments.
    """
    first = states[0]
    window, n = first["window"], first["n"]
    mean, m2 = first["mean"], first["m2"]
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
    return {"window": window, **_without_sums(total, mean, m2, first["least_std"])}


def rebased_moments(state: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Put what a copy has gathered on top of later common moments.

    Args:
        state: State of a copy that began with earlier moments.
        current: Result of a later merge.
    """
    shift = state["mean"] - current["mean"]
    n_new, sums = state["n_new"], state["sum"]
    squares = state["sum_squares"] + 2 * shift * sums + n_new * shift**2
    common = {name: current[name] for name in ("n", "mean", "m2", "least_std")}
    return {
        **common,
        "window": state["window"],
        "n_new": n_new,
        "sum": sums + n_new * shift,
        "sum_squares": np.maximum(squares, 0.0),
    }


def _without_sums(n: int, mean: Array, m2: Array, least_std: Array) -> dict[str, Any]:
    """Return the state after a merge."""
    merged = {"n": n, "mean": mean, "m2": m2, "least_std": least_std}
    return {**merged, "n_new": 0, "sum": np.zeros_like(mean), "sum_squares": np.zeros_like(mean)}
