"""Events of many environments at once: which of them, and which values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from maze_pl.envs.arrays.array_step import AnyArray
from maze_pl.events.topics import EventDeclaration, declarations

Topic = TypeVar("Topic")


class ArrayEvent(NamedTuple):
    """Events of one kind, at most one in each place of `which`.

    Attributes:
        declaration: Declaration of the event and its statistics.
        which: [n] int64, the environment of each event; an environment may occur several times. On a device,
            [N] bool, whether the event happened in each environment; see `TensorEnv.create_event_topic`.
        attributes: Name -> [n, ...] the values of the events; anything that is not an array counts for all.
    """

    declaration: EventDeclaration
    which: AnyArray
    attributes: dict[str, Any]


class ArrayEvents:
    """Events that environments have fired since the last call of `drain`.

    Attributes:
        topics: The topics whose events can be fired.
    """

    def __init__(self) -> None:
        self.topics: list[type] = []
        self._fired: list[ArrayEvent] = []

    def create_event_topic(self, topic: type[Topic]) -> Topic:
        """Return an object that fires the events of a topic.

        Its methods are those of the topic, with the numbers of the environments, [n], as an
        additional first argument. Values are arrays [n, ...], or single values that count for all.

        Args:
            topic: The topic class, as for `Pubsub.create_event_topic`.

        Example:
            >>> import numpy as np
            >>> from maze_pl.events import RewardShareEvents
            >>> events = ArrayEvents()
            >>> shares = events.create_event_topic(RewardShareEvents)
            >>> shares.share(np.array([0, 3]), name="fuel", value=np.array([-0.5, -0.25]))
            >>> [(event.which.tolist(), event.attributes["name"]) for event in events.drain()]
            [([0, 3], 'fuel')]
        """
        if topic not in self.topics:
            self.topics.append(topic)
        return cast(Topic, ArrayTopic(topic, self.fire))

    def fire(self, event: ArrayEvent) -> None:
        """Fire events."""
        self._fired.append(event)

    def drain(self) -> list[ArrayEvent]:
        """Return the events since the last call, in the order in which they were fired."""
        fired = self._fired.copy()
        self._fired.clear()
        return fired


class ArrayTopic:
    """Object with the methods of a topic, each of which fires its event for several environments.

    Args:
        topic: The topic class.
        record: Called with each event.
    """

    def __init__(self, topic: type, record: Callable[[ArrayEvent], None]) -> None:
        self._record = record
        self._declarations = declarations(topic)
        self._topic = topic

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return the function that fires an event."""
        if name.startswith("_") or name not in self._declarations:
            known = list(self._declarations)
            raise AttributeError(f"{self._topic.__name__} has no event {name!r}; its events are {known}")
        declaration = self._declarations[name]
        bind = declaration.signature.bind

        def fire(which: AnyArray, *values: Any, **named_values: Any) -> None:
            """Fire the event for the environments `which`, [n]."""
            if len(which) == 0:
                return
            bound = bind(*values, **named_values)
            bound.apply_defaults()
            attributes = dict(bound.arguments)
            for attribute, value in attributes.items():
                if getattr(value, "ndim", 0) and len(value) != len(which):
                    label = f"{self._topic.__name__}.{name}"
                    fault = f"{attribute} of {label} has shape {tuple(value.shape)} for {len(which)} environments"
                    raise ValueError(f"{fault}; give one value for each, or a single one for all")
            self._record(ArrayEvent(declaration, which, attributes))

        vars(self)[name] = fire
        return fire
