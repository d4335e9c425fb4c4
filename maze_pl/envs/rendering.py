"""What draws an environment: figures that can be shown, saved, logged or joined to a film."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from maze_pl.events.pubsub import EventRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Renderer(ABC):
    """Draws the states of one kind of simulation."""

    @abstractmethod
    def render(
        self, maze_state: Any, maze_action: Any = None, events: Sequence[EventRecord] = (), **arguments: Any
    ) -> Figure:
        """Draw one step; it depends on its arguments alone, so that recorded steps are drawn like live ones.

        Args:
            maze_state: State before the action.
            maze_action: Action that is taken in it, if any.
            events: Events of the step.
            arguments: What the viewer has chosen for the renderer's own arguments.

        Returns:
            A figure of its own, not of pyplot's global state; whoever asked for it owns it.
        """
