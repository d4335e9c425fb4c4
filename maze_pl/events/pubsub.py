"""Pubsub: environments fire events, subscribers such as reward aggregators and the statistics receive them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar, cast

from maze_pl.events.context import EnvironmentContext
from maze_pl.events.declaration import EventDeclaration, declarations
from maze_pl.events.topics import BUILT_IN_TOPICS

Topic = TypeVar("Topic")
Event = Callable[..., Any]


class EventRecord(NamedTuple):
    """One event that happened.

    Attributes:
        topic: The topic class.
        event: The topic's function, for example `CuttingEvents.valid_cut`.
        attributes: What the event was fired with, by name.
        env_time: Environment steps completed in the episode before the one that it belongs to.
    """

    topic: type
    event: Event
    attributes: dict[str, Any]
    env_time: int


class Subscriber(ABC):
    """Receives the events of the topics that it names, and holds those of the current environment step.

    Attributes:
        events: Events received since the environment step began.
        pubsub: Whose events these are, once it is registered there.
    """

    def __init__(self) -> None:
        self.events: list[EventRecord] = []

    @abstractmethod
    def get_interfaces(self) -> list[type]:
        """Topics whose events this subscriber wants; `object` stands for all of them."""

    def join(self, pubsub: Pubsub) -> None:
        """Be told, once, which pubsub this is registered with."""
        self.pubsub = pubsub

    def notify_event(self, record: EventRecord) -> None:
        """Receive one event."""
        self.events.append(record)

    def query_events(self, events: Event | Iterable[Event]) -> list[EventRecord]:
        """Events of one or several kinds in this environment step, in the order in which they were fired."""
        return select_events(self.events, events)

    def clear_events(self) -> None:
        """Forget the events of the last environment step."""
        self.events.clear()


class EventTopic:
    """What `Pubsub.create_event_topic` returns: an object with the topic's methods, each of which fires its event.

    Copies and pickles belong to the copied pubsub: the recording functions are made anew, on first use.
    """

    def __init__(self, pubsub: Pubsub, topic: type) -> None:
        self._pubsub, self._topic, self._events = pubsub, topic, declarations(topic)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._events:
            raise AttributeError(f"{self._topic.__name__} has no event {name!r}; its events are {list(self._events)}")
        record = self._pubsub.recorder(self._events[name])
        self.__dict__[name] = record  # found there without this detour from now on
        return record

    def __getstate__(self) -> dict[str, Any]:
        return {"_pubsub": self._pubsub, "_topic": self._topic, "_events": self._events}


class Pubsub:
    """Message broker of one environment.

    Args:
        context: The environment's context, which tells the time.

    Attributes:
        context: The same.
        subscribers: Subscribers registered so far.
    """

    def __init__(self, context: EnvironmentContext) -> None:
        self.context = context
        self._records: list[EventRecord] = []  # recorders hold on to this very list
        self._step_start = 0  # records from here on belong to the current environment step
        self._drained = 0  # records up to here have been drained
        self._keep_undrained = False
        self._topics: dict[type, EventTopic] = {}
        self.subscribers: tuple[Subscriber, ...] = ()
        self._routes: dict[type, list[Subscriber]] = {}

    @property
    def topics(self) -> tuple[type, ...]:
        """Topics created so far."""
        return tuple(self._topics)

    def create_event_topic(self, topic: type[Topic]) -> Topic:
        """Make the object through which events of a topic are fired; the same one each time.

        Args:
            topic: Class whose public methods are the events.

        Returns:
            An object with the topic's methods. Calling one takes about a microsecond and records an `EventRecord`;
            wrong arguments raise TypeError. The method's own body is not run.

        Raises:
            ValueError: Another topic has the same name, under which both would be logged.
        """
        if topic not in self._topics:
            made = EventTopic(self, topic)
            for known in (*self._topics, *BUILT_IN_TOPICS):
                if known is not topic and known.__name__ == topic.__name__:
                    one, other = (f"{given.__module__}.{given.__qualname__}" for given in (topic, known))
                    raise ValueError(f"topic {one} is logged under the same name as {other}; rename one of the two")
            self._topics[topic] = made
            self._routes[topic] = [s for s in self.subscribers if issubclass(topic, tuple(s.get_interfaces()))]
        return cast(Topic, self._topics[topic])

    def register_subscriber(self, subscriber: Subscriber) -> None:
        """Send events of the subscriber's topics, created before or afterwards, to it. Twice is the same as once."""
        if any(known is subscriber for known in self.subscribers):
            return
        self.subscribers += (subscriber,)
        for topic, route in self._routes.items():
            if issubclass(topic, tuple(subscriber.get_interfaces())):
                route.append(subscriber)
        subscriber.join(self)

    def get_step_events(self) -> list[EventRecord]:
        """All events of the current environment step, in the order in which they were fired."""
        return self._records[self._step_start :]

    def query_events(self, events: Event | Iterable[Event]) -> list[EventRecord]:
        """Events of one or several kinds in the current environment step."""
        return select_events(self.get_step_events(), events)

    def clear(self) -> None:
        """Begin an environment step: forget the last one's events, and let subscribers forget theirs.

        Once somebody drains, events that were not drained yet are kept for the next `drain`.
        """
        if self._keep_undrained:
            del self._records[: self._drained]
        else:
            self._records.clear()  # faster
        self._drained = 0
        self._step_start = len(self._records)
        for subscriber in self.subscribers:
            subscriber.clear_events()

    def drain(self) -> list[EventRecord]:
        """Events fired since the last `drain`, each exactly once, also across several environment steps.

        For whoever steps the outermost environment. Events of the current step can still be queried afterwards.
        """
        self._keep_undrained = True
        records = self._records[self._drained :]
        self._drained = len(self._records)
        return records

    def discard(self) -> None:
        """Forget the events that were not drained: what they were fired in has not happened for anybody outside."""
        del self._records[self._drained :]
        self._step_start = self._drained

    def take_records(self, other: Pubsub) -> None:
        """Take over the events of another pubsub, those that are not drained yet included; its subscribers' own not."""
        self._records[:] = other._records
        self._step_start, self._drained = other._step_start, other._drained
        self._keep_undrained = other._keep_undrained

    def recorder(self, declaration: EventDeclaration) -> Callable[..., None]:
        """Make the function that fires one event."""
        topic, event, signature = declaration.topic, declaration.event, declaration.signature
        parameters = signature.parameters.values()
        positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        names = frozenset(signature.parameters)
        context, append, route = self.context, self._records.append, self._routes[topic]
        make = tuple.__new__  # a third faster than EventRecord(...), which checks nothing more

        def refuse(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            try:
                signature.bind(*arguments, **keywords)  # slow, but knows what is wrong
            except TypeError as error:
                raise TypeError(f"{topic.__name__}.{declaration.name}{signature}: {error}") from None

        def record(*arguments: Any, **keywords: Any) -> None:
            attributes = keywords
            if arguments:
                attributes = dict(zip(positional, arguments, strict=False))
                attributes |= keywords
                if len(attributes) != len(arguments) + len(keywords):  # too many, or one given twice
                    refuse(arguments, keywords)
            if attributes.keys() != names:
                attributes = defaults | attributes
                if attributes.keys() != names:
                    refuse(arguments, keywords)
            env_time = context.env_time - context.env_step_incremented  # a step that is complete has not ended yet
            entry = make(EventRecord, (topic, event, attributes, env_time))
            append(entry)
            for subscriber in route:
                subscriber.notify_event(entry)

        return record


def select_events(records: Iterable[EventRecord], events: Event | Iterable[Event]) -> list[EventRecord]:
    """Records of one or several kinds of events, in their order."""
    wanted = [events] if callable(events) else list(events)
    return [record for record in records if record.event in wanted]
