"""A coefficient that changes at a constant rate."""

from maze_pl.schedules.schedule import Schedule


class Linear(Schedule):
    """Linear interpolation from `start` to `end`, which is reached at `until` and kept from then on.

        c(p) = start * (1 - q) + end * q,   q = min(p / until, 1)

    Args:
        start: Value at the beginning of the run.
        end: Value from `until` on.
        until: Progress at which `end` is reached: 1 is the end of the run.

    Raises:
        ValueError: `until` is not in (0, 1].

    Example:
        >>> Linear(1.0, 0.0, until=0.5)(0.25)
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
        return self.start * (1.0 - share) + self.end * share
