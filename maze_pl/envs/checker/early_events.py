"""Detection of events that are fired before the environment step that they belong to."""

from maze_pl.core.actor_id import StepKey
from maze_pl.events import EventRecord, Subscriber


class EarlyEvents(Subscriber):
    """Events that are fired in an act before the environment step that it belongs to has begun.

    Attributes:
        lost: For each sub-step, the names of events that were forgotten when its step began.
        unbegun: For each sub-step in which no environment step began although the previous one was
            complete, the names of the events fired in it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost: dict[StepKey, set[str]] = {}
        self.unbegun: dict[StepKey, set[str]] = {}
        self._is_waiting = False  # True until the environment step of the running act begins
        self._step_key: StepKey = 0

    def get_interfaces(self) -> list[type]:
        """Receive all events."""
        return [object]

    def begin_act(self, step_key: StepKey) -> None:
        """Begin an act of a sub-step."""
        self._step_key = step_key
        self._is_waiting = self.pubsub.context.env_step_incremented
        self.events.clear()

    def end_act(self) -> None:
        """End the act."""
        if self._is_waiting:
            self._add_names(self.unbegun)
        self._is_waiting = False
        self.events.clear()

    def notify_event(self, record: EventRecord) -> None:
        """Keep an event if its environment step has not begun."""
        if self._is_waiting:
            self.events.append(record)

    def clear_events(self) -> None:
        """Note that an environment step begins: the events before it are lost."""
        if self._is_waiting and self.events:
            self._add_names(self.lost)
        self._is_waiting = False
        self.events.clear()

    def _add_names(self, names: dict[StepKey, set[str]]) -> None:
        fired = {f"{record.topic.__name__}.{record.event.__name__}" for record in self.events}
        names.setdefault(self._step_key, set()).update(fired)
