"""A coefficient that does not change."""

from maze_pl.schedules.schedule import Schedule


class Constant(Schedule):
    """The same value during the whole run.

        c(p) = value

    Args:
        value: The value.

    Example:
        >>> Constant(0.2)(0.5)
        0.2
    """

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, progress: float) -> float:
        """Return the value."""
        return self.value
