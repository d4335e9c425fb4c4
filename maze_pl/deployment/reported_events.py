"""Events of a real system, which also fires some before the first state of an episode."""

from collections.abc import Callable
from functools import partial
from typing import Any

from maze_pl.events.pubsub import Pubsub
from maze_pl.events.topics import EventDeclaration, declarations


class ReportedEvents:
    """Fires events in the running episode; while there is none, they wait for the next one.

    They then count in its first step, like events that a simulation fires in `reset`.

    Args:
        pubsub: Pubsub of the environment.
    """

    def __init__(self, pubsub: Pubsub) -> None:
        self._pubsub = pubsub
        self._waiting: list[Callable[[], object]] = []
        self._is_running = False

    def topic(self, topic: type) -> Any:
        """Return an object with the events of a topic, for the caller to fire."""
        return _ReportedTopic(self, topic, self._pubsub.create_event_topic(topic))

    def begin_episode(self) -> None:
        """Fire the events that have waited, once the episode has begun for the pubsub."""
        self._is_running = True
        waiting, self._waiting = self._waiting, []
        for fire in waiting:
            fire()

    def end_episode(self) -> None:
        """Let events wait from now on."""
        self._is_running = False

    def fire(
        self,
        declaration: EventDeclaration,
        fire: Callable[..., object],
        /,
        *arguments: Any,
        **named: Any,
    ) -> None:
        """Fire an event, now or later.

        Args:
            declaration: The event.
            fire: Fires it.
            arguments: Its arguments.
            named: Its arguments by name.

        Raises:
            TypeError: They are not arguments of the event.
        """
        if self._is_running:
            fire(*arguments, **named)
            return
        try:
            declaration.signature.bind(*arguments, **named)
        except TypeError as error:
            event = f"{declaration.topic.__name__}.{declaration.name}{declaration.signature}"
            raise TypeError(f"{error}; it is {event}") from None
        self._waiting.append(partial(fire, *arguments, **named))


class _ReportedTopic:
    """Object with the events of a topic.

    Args:
        events: Fires them.
        topic: The topic.
        original: Object that fires them immediately.
    """

    def __init__(self, events: ReportedEvents, topic: type, original: Any) -> None:
        self._events = events
        self._declarations = declarations(topic)
        self._original = original

    def __getattr__(self, name: str) -> Callable[..., None]:
        fire = getattr(self._original, name)  # refuses names of other events
        event = partial(self._events.fire, self._declarations[name], fire)
        vars(self)[name] = event  # later look-ups find it there directly
        return event
