"""Base class of schedules."""

from abc import ABC, abstractmethod


class Schedule(ABC):
    """A coefficient as a function of the progress of a run.

    A subclass stores its arguments under their names, and computes the value from them alone, so
    that a resumed run and all ranks get the same numbers.
    """

    @abstractmethod
    def __call__(self, progress: float) -> float:
        """Return the value of the coefficient.

        Args:
            progress: Share of the run that is done, from 0 (its first batch) to 1 (its end).
        """

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))
