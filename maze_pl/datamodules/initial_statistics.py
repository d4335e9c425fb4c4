"""The wrapper statistics that a fit begins with."""

import weakref
from collections.abc import Callable
from typing import Any


class InitialStatistics:
    """Wrapper statistics before training, and the module that was trained last.

    Statistics that wrappers gather in a fit belong to its module: a fit of another module begins without them.

    Attributes:
        states: State of each wrapper, by name; None if they are still to be estimated.
        are_complete: Whether they cover all wrappers.
    """

    def __init__(self) -> None:
        self.states: dict[str, Any] | None = None
        self.are_complete = False
        self._module: Callable[[], Any] | None = None  # returns the module of the last fit, if it still exists

    def set(self, states: dict[str, Any], are_complete: bool) -> None:
        """Note what the next fit begins with.

        Args:
            states: State of each wrapper, by name.
            are_complete: Whether they cover all wrappers.
        """
        self.states = states
        self.are_complete = are_complete

    def begin_fit(self, module: Any) -> bool:
        """Note the module of a fit; return whether an earlier fit had another one."""
        follows_another = self._module is not None and self._module() is not module
        self._module = weakref.ref(module)
        return follows_another

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and processes, in which there is no module of the last fit."""
        return {**self.__dict__, "_module": self._module and _no_module}


def _no_module() -> None:
    """Return None, as a weak reference does whose object has gone."""
