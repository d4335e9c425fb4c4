"""A coefficient that follows half a period of a cosine."""

import math

from maze_pl.schedules.schedule import Schedule


class Cosine(Schedule):
    """Half a period of a cosine from `start` to `end`, which is reached at `until` and kept from then on.

        c(p) = end + (start - end) * (1 + cos(pi * q)) / 2,   q = min(p / until, 1)

    Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, without restarts.

    Args:
        start: Value at the beginning of the run.
        end: Value from `until` on.
        until: Progress at which `end` is reached: 1 is the end of the run.

    Raises:
        ValueError: `until` is not in (0, 1].

    Example:
        >>> round(Cosine(1.0, 0.0)(0.5), 6)
        0.5
    """

    def __init__(self, start: float, end: float, until: float = 1.0) -> None:
        if not 0.0 < until <= 1.0:
            raise ValueError(f"until={until} must be greater than 0 and at most 1, the end of the run")
        self.start = start
        self.end = end
        self.until = until

    def __call__(self, progress: float) -> float:
        """Return the value at a progress."""
        share = min(progress / self.until, 1.0)
        return self.end + (self.start - self.end) * (1.0 + math.cos(math.pi * share)) / 2.0
