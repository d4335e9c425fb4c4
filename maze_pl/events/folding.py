"""Running forms of reductions, so that an episode without end needs a bounded amount of memory."""

import functools
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from maze_pl.core.histogram import Histogram, number_array
from maze_pl.events.attribute_values import widened
from maze_pl.events.topics import Statistic

_LOGGER: Final = logging.getLogger(__name__)
MOST_KEPT_STEPS: Final = 10_000
"""Number of environment steps whose values an episode keeps; of more steps, statistics are folded."""


class RunningReducer:
    """Reduction of a declared statistic that a long episode computes bit by bit.

    It takes the place of a function in `define_episode_stats`. After every 10,001 steps of an
    episode, the values of these steps are added to the state and dropped.

    Args:
        add: Called as `add(state, values)` with the previous state, None at first, and the next
            values, at least one of them. Returns the state after these values, which consists of
            numbers, strings, NumPy arrays, and lists, tuples and dicts of them.
        result: Computes the statistic, one number, from the last state.

    Example:
        >>> import math
        >>> def add(state: float | None, values: list[float]) -> float:
        ...     return (state or 0.0) + sum(value * value for value in values)
        >>> root_sum_of_squares = RunningReducer(add, math.sqrt)
        >>> root_sum_of_squares([3.0, 4.0])
        5.0
    """

    def __init__(self, add: Callable[[Any, Sequence[Any]], Any], result: Callable[[Any], Any] = lambda state: state):
        self.add, self.result = add, result

    def __call__(self, values: Sequence[Any]) -> Any:
        """Reduce all values at once."""
        return self.result(self.add(None, values))


class Fold(ABC):
    """Running form of a reduction; states are made of numbers, arrays, and lists of them."""

    @abstractmethod
    def add(self, state: Any, values: Sequence[Any]) -> Any:
        """State after more values, at least one; the previous state is None if there were none."""

    def add_zeros(self, state: Any, n: int, zero: Any = 0) -> Any:
        """State after n zeros, for steps without events; `zero` is 0, or an array of zeros."""
        for n_before in range(0, n, MOST_KEPT_STEPS):
            state = self.add(state, [zero] * min(MOST_KEPT_STEPS, n - n_before))
        return state

    @abstractmethod
    def result(self, state: Any) -> Any:
        """Reduction of all values that were added, at least one."""


class _Count(Fold):
    def add(self, state: int | None, values: Sequence[Any]) -> int:
        return (state or 0) + len(values)

    def add_zeros(self, state: int | None, n: int, zero: Any = 0) -> int:
        return (state or 0) + n

    def result(self, state: int) -> int:
        return state


class _Sum(Fold):
    """Sum from the first value to the last one, as `sum` adds them."""

    def add(self, state: Any, values: Sequence[Any]) -> Any:
        return sum(widened(values), 0 if state is None else state)

    def add_zeros(self, state: Any, n: int, zero: Any = 0) -> Any:
        return zero if state is None else state

    def result(self, state: Any) -> Any:
        return state


class _Extreme(Fold):
    """The smallest or largest value.

    Args:
        choose: Function that chooses among numbers.
    """

    def __init__(self, choose: Callable[[Sequence[Any]], Any]) -> None:
        self._choose = choose

    def add(self, state: Any, values: Sequence[Any]) -> Any:
        chosen = self._choose(values)
        return chosen if state is None else self._choose([state, chosen])

    def add_zeros(self, state: Any, n: int, zero: Any = 0) -> Any:
        return self.add(state, [zero])

    def result(self, state: Any) -> Any:
        return state


class _ExactSum(Fold):
    """Sum that is rounded only once; the state is numbers that add up to it exactly."""

    def add(self, state: list[float] | None, values: Sequence[Any]) -> list[float]:
        terms = [*(state or []), *_flat(values).tolist()]
        parts: list[float] = []
        try:
            while (total := math.fsum(terms)) and math.isfinite(total):
                parts.append(total)
                terms.append(-total)
        except (OverflowError, ValueError):  # too large, or infinities of both signs
            with np.errstate(all="ignore"):
                total = float(np.sum(terms))
        return [total] if not math.isfinite(total) else parts or [0.0]

    def add_zeros(self, state: list[float] | None, n: int, zero: Any = 0) -> list[float]:
        return state or [0.0]

    def result(self, state: list[float]) -> float:
        return math.fsum(state)


class _Mean(Fold):
    """Mean of all numbers; the state is their count and the parts of their exact sum."""

    def add(self, state: list[Any] | None, values: Sequence[Any]) -> list[Any]:
        count, parts = state or (0, None)
        return [count + _flat(values).size, _EXACT_SUM.add(parts, values)]

    def add_zeros(self, state: list[Any] | None, n: int, zero: Any = 0) -> list[Any]:
        count, parts = state or (0, None)
        return [count + n * np.size(zero), _EXACT_SUM.add_zeros(parts, n)]

    def result(self, state: list[Any]) -> float:
        count, parts = state
        return _EXACT_SUM.result(parts) / count if count else math.nan


class _Variance(Fold):
    """Variance, or standard deviation, of all numbers.

    The state is their count, their mean, and the sum of squared deviations from it. Two states are
    combined by the formula of Chan, Golub and LeVeque (1979), which cancels no digits.

    Args:
        of_variance: Function of the variance that is the result.
    """

    def __init__(self, of_variance: Callable[[float], float]) -> None:
        self._of_variance = of_variance

    def add(self, state: list[Any] | None, values: Sequence[Any]) -> list[Any]:
        numbers = _flat(values)
        with np.errstate(all="ignore"):  # the variance of infinities is NaN, without a warning
            mean = float(numbers.mean())
            squares = float(np.square(numbers - mean).sum())
        return self._combined(state, numbers.size, mean, squares)

    def add_zeros(self, state: list[Any] | None, n: int, zero: Any = 0) -> list[Any]:
        return self._combined(state, n * np.size(zero), 0.0, 0.0)

    def result(self, state: list[Any]) -> float:
        count, _, squares = state
        return self._of_variance(squares / count)

    @staticmethod
    def _combined(state: list[Any] | None, n: int, mean: float, squares: float) -> list[Any]:
        if state is None:
            return [n, mean, squares]
        count, previous_mean, previous_squares = state
        total, difference = count + n, mean - previous_mean
        squares += previous_squares + difference * difference * (count * n / total)
        return [total, previous_mean + difference * (n / total), squares]


class _Distribution(Fold):
    """Histogram of all numbers, of bounded size; the state is its values and counts."""

    def add(self, state: list[Any] | None, values: Sequence[Any]) -> list[Any]:
        return self._merged(state, Histogram.of(values))

    def add_zeros(self, state: list[Any] | None, n: int, zero: Any = 0) -> list[Any]:
        return self._merged(state, Histogram(np.zeros(1, np.int64), np.array([n * np.size(zero)])))

    def result(self, state: list[Any]) -> Histogram:
        return Histogram(*state)

    @staticmethod
    def _merged(state: list[Any] | None, more: Histogram) -> list[Any]:
        whole = more if state is None else Histogram.merged([Histogram(*state), more])
        whole = whole.coarsened()
        return [whole.values, whole.counts]


class _OfUser(Fold):
    """Running form that a user has declared."""

    def __init__(self, reducer: RunningReducer) -> None:
        self._reducer = reducer

    def add(self, state: Any, values: Sequence[Any]) -> Any:
        return self._reducer.add(state, widened(values))

    def result(self, state: Any) -> Any:
        return self._reducer.result(state)


class Kept(Fold):
    """All values, of a reduction without a running form."""

    def __init__(self, reduce: Callable[..., Any] | None) -> None:
        self._reduce = number_array if reduce is None else reduce

    def add(self, state: list[Any] | None, values: Sequence[Any]) -> list[Any]:
        """All values; `state` is extended in place."""
        kept = [] if state is None else state
        kept.extend(values)
        return kept

    def result(self, state: list[Any]) -> Any:
        """Reduction of all values."""
        return self._reduce(state if self._reduce is number_array else widened(state))


_EXACT_SUM: Final = _ExactSum()
DISTRIBUTION: Final = _Distribution()
"""Running form of keeping all values for a histogram."""
_FOLDS: Final[dict[Any, Fold]] = {
    len: _Count(),
    sum: _Sum(),
    math.fsum: _EXACT_SUM,
    np.sum: _EXACT_SUM,
    np.mean: _Mean(),
    np.std: _Variance(math.sqrt),
    np.var: _Variance(float),
    **{choose: _Extreme(choose) for choose in (min, max, np.min, np.max, np.amin, np.amax)},
}


def running_form(reduce: Callable[..., Any]) -> Fold | None:
    """Running form of a reduction; None if all values must be kept."""
    if isinstance(reduce, RunningReducer):
        return _OfUser(reduce)
    return _FOLDS.get(reduce)


@functools.cache
def tell_of_kept_values(topic: type, event: str, statistic: Statistic) -> None:
    """Warn once that an episode keeps all values of a statistic."""
    place = f"the episode statistic {statistic.output_name!r} of {topic.__name__}.{event}"
    if statistic.reduce is None:
        remedy = "an epoch statistic or a plot needs all of them; only histograms are computed bit by bit"
    else:
        name = getattr(statistic.reduce, "__name__", statistic.reduce)
        remedy = f"{name} needs all of them; declare a maze_pl.events.RunningReducer in its place"
    cost = f"keeps a value of each step, also of an episode of more than {MOST_KEPT_STEPS:,} steps"
    _LOGGER.warning(f"{place} {cost}: {remedy}")


def _flat(values: Sequence[Any]) -> np.ndarray:
    """Numbers in any nesting as a vector of float64."""
    return number_array(values).astype(np.float64, copy=False).ravel()
