"""Interface of search methods."""

from abc import ABC, abstractmethod

from maze_pl.search.decision import Decision, PlannedAct


class SearchMethod(ABC):
    """Finds the next action in simulations."""

    @abstractmethod
    def plan(self, decision: Decision) -> list[PlannedAct]:
        """Return the next act and, from methods that try whole episodes, further ones.

        Args:
            decision: The present state, from which simulations start.
        """
