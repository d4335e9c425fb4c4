"""A coefficient with given values at some points of a run."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from maze_pl.schedules.schedule import Schedule


class Piecewise(Schedule):
    """Values at points of the run, with linear interpolation between them, or steps.

    The value is constant before the first point and after the last one.

    Args:
        points: Pairs of progress and value, in the order of progress, which lies in [0, 1].
        interpolation: `linear` between two points, or `constant`: the value of a point holds until
            the next one.

    Raises:
        ValueError: There is no point, an entry is not a pair, a progress lies outside of [0, 1], or
            the points are not in order.

    Example:
        >>> warm_up = Piecewise([(0.0, 0.0), (0.5, 1.0), (1.0, 0.0)])
        >>> warm_up(0.25), warm_up(0.75)
        (0.5, 0.5)
    """

    def __init__(
        self,
        points: Sequence[tuple[float, float]],
        interpolation: Literal["linear", "constant"] = "linear",
    ) -> None:
        if not points or any(len(point) != 2 for point in points):
            raise ValueError(f"points={points!r} must be pairs of progress and value, at least one")
        if interpolation not in ("linear", "constant"):
            raise ValueError(f"interpolation={interpolation!r} must be 'linear' or 'constant'")
        self.points = [(float(progress), float(value)) for progress, value in points]
        self.interpolation = interpolation
        places = [progress for progress, _ in self.points]
        is_ordered = all(first < second for first, second in pairwise(places))
        if not is_ordered or places[0] < 0.0 or places[-1] > 1.0:
            raise ValueError(f"points={self.points} must be in ascending order of progress, from 0 to 1")

    def __call__(self, progress: float) -> float:
        """Return the value at a progress."""
        after = bisect_right(self.points, progress, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        begin, value = self.points[after - 1]
        if after == len(self.points) or self.interpolation == "constant":
            return value
        end, next_value = self.points[after]
        share = (progress - begin) / (end - begin)
        return value * (1.0 - share) + next_value * share
