"""Events of one environment: time, message broker and subscribers."""

from __future__ import annotations

import inspect
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar, cast

from maze_pl.events.attribute_values import UNCHANGING, with_copies
from maze_pl.events.topics import BUILT_IN_TOPICS, EventDeclaration, declarations

Topic = TypeVar("Topic")
Event = Callable[..., Any]

_CHECK: Final = (
    "(_maze_pl_type({0}) in _maze_pl_unchanging"
    " or _maze_pl_type({0}) is _maze_pl_tuple and _maze_pl_are_unchanging(_maze_pl_map(_maze_pl_type, {0})))"
)
"""Expression that is true if an argument cannot be changed in place; its names collide with no attribute."""
_NAMES: Final = {
    "_maze_pl_type": type,
    "_maze_pl_tuple": tuple,
    "_maze_pl_map": map,
    "_maze_pl_unchanging": UNCHANGING,
    "_maze_pl_are_unchanging": UNCHANGING.issuperset,
    "_maze_pl_copies": with_copies,
}


class EnvironmentContext:
    """Time and episode of one environment.

    Environment time counts environment steps, not the acts (sub-steps) that they consist of.

    Attributes:
        env_time: Environment steps completed in the running episode. A simulation whose clock does
            not begin at 0 sets it in its `reset`.
        first_env_time: Environment time at which the running episode began; `get_env_time` of
            environments counts from it.
        env_step_incremented: Whether the latest environment step is complete and the next one has
            not begun.
        episode_started: Unix time in seconds at which the running episode began; it distinguishes
            repetitions of an episode, as in evaluations.
        is_logged: Whether events belong in raw logs; False while the environment is stepped only to
            estimate statistics, or to restore the state of a resumed run.
        is_decision: Whether the agents decide on the current act; False while a wrapper makes steps
            by itself.
    """

    def __init__(self) -> None:
        self.is_logged = True
        self.reset_episode()

    def reset_episode(self, seed: int | None = None) -> None:
        """Start an episode at time 0.

        Args:
            seed: Seed that the episode is reset with; None gives an id that is not reproducible.
        """
        self._episode_id: str | None = None
        self._seed, self.episode_started = seed, time.time()
        self.env_time = self.first_env_time = 0
        self.env_step_incremented = False
        self.is_decision = True

    @property
    def episode_id(self) -> str:
        """UUID of the running episode; the same seed gives the same id. Made on first access."""
        if self._episode_id is None:
            seed = self._seed
            self._episode_id = str(uuid.uuid4() if seed is None else uuid.uuid5(uuid.NAMESPACE_OID, f"maze_pl/{seed}"))
        return self._episode_id

    def increment_env_step(self) -> None:
        """Complete an environment step; call this in the act that finishes it."""
        self.env_time += 1
        self.env_step_incremented = True


class EventRecord(NamedTuple):
    """One event that happened.

    Attributes:
        topic: The topic class.
        event: The topic's function, for example `CuttingEvents.valid_cut`.
        attributes: Arguments that the event was fired with, by name. Arrays, tensors, lists, dicts and
            sets are copies; other objects are those of the environment, which may change them later.
        env_time: Environment steps completed in the episode before the step of the event, by the
            clock of the context.
    """

    topic: type
    event: Event
    attributes: dict[str, Any]
    env_time: int


class Subscriber(ABC):
    """Receives the events of its topics, and holds them until the environment step ends.

    Attributes:
        events: Events received since the environment step began.
        pubsub: Pubsub that the subscriber is registered with; set on registration.
    """

    def __init__(self) -> None:
        self.events: list[EventRecord] = []

    @abstractmethod
    def get_interfaces(self) -> list[type]:
        """Topics whose events this subscriber wants; `object` stands for all of them."""

    def join(self, pubsub: Pubsub) -> None:
        """Remember the pubsub that this is registered with; called once."""
        self.pubsub = pubsub

    def notify_event(self, record: EventRecord) -> None:
        """Receive one event."""
        self.events.append(record)

    def query_events(self, events: Event | Iterable[Event]) -> list[EventRecord]:
        """Events of one or several kinds in this environment step, in the order in which they were fired."""
        return select_events(self.events, events)

    def clear_events(self) -> None:
        """Forget the events of the previous environment step."""
        self.events.clear()


class EventTopic:
    """Object with the methods of a topic, each of which fires its event.

    `Pubsub.create_event_topic` returns it. Copies and pickles belong to the copied pubsub: their
    recording functions are made again, on first use.
    """

    def __init__(self, pubsub: Pubsub, topic: type) -> None:
        self._pubsub = pubsub
        self._topic = topic
        self._events = declarations(topic)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._events:
            raise AttributeError(f"{self._topic.__name__} has no event {name!r}; its events are {list(self._events)}")
        record = self._pubsub.recorder(self._events[name])
        self.__dict__[name] = record  # later look-ups find it there directly
        return record

    def __getstate__(self) -> dict[str, Any]:
        return {"_pubsub": self._pubsub, "_topic": self._topic, "_events": self._events}


class Pubsub:
    """Message broker of one environment.

    Args:
        context: The environment's context, which keeps the time.

    Attributes:
        context: The same.
        topics: Topics created so far, with the objects through which their events are fired.
        subscribers: Subscribers registered so far.
    """

    def __init__(self, context: EnvironmentContext) -> None:
        self.context = context
        self._records: list[EventRecord] = []  # recorders keep a reference to this list
        self._step_start = 0  # records from here on belong to the current environment step
        self._drained = 0  # records up to here have been drained
        self._keep_undrained = False
        self._backlogs: dict[int, list[EventRecord]] = {}  # for each reader, records that others drained before it
        self._is_shared = False  # whether the backlogs may hold records
        self.topics: dict[type, EventTopic] = {}
        self.subscribers: tuple[Subscriber, ...] = ()
        self._routes: dict[type, list[Subscriber]] = {}

    def create_event_topic(self, topic: type[Topic]) -> Topic:
        """Create the object that fires the events of a topic; repeated calls return the same one.

        Args:
            topic: Class whose public methods are the events.

        Returns:
            An object with the topic's methods. Calling one takes about a microsecond and records an `EventRecord`;
            wrong arguments raise TypeError. The body of the method is not run.

        Raises:
            ValueError: Another topic has the same name, under which both would be logged.
        """
        if topic not in self.topics:
            made = EventTopic(self, topic)
            for known in (*self.topics, *BUILT_IN_TOPICS):
                if known is not topic and known.__name__ == topic.__name__:
                    one = f"{topic.__module__}.{topic.__qualname__}"
                    other = f"{known.__module__}.{known.__qualname__}"
                    raise ValueError(f"topic {one} is logged under the same name as {other}; rename one of the two")
            self.topics[topic] = made
            self._routes[topic] = [s for s in self.subscribers if issubclass(topic, tuple(s.get_interfaces()))]
        return cast(Topic, self.topics[topic])

    def register_subscriber(self, subscriber: Subscriber) -> None:
        """Send the events of its topics to a subscriber, whether created before or afterwards.

        Registering a subscriber twice has no further effect.

        Raises:
            ValueError: It receives the events of another environment, which it could not tell apart.
        """
        if any(known is subscriber for known in self.subscribers):
            return
        owner = vars(subscriber).get("pubsub")
        if owner is not None and any(known is subscriber for known in owner.subscribers):
            shared = (
                f"the same {type(subscriber).__name__} was given to two environments, and would mix up their events"
            )
            raise ValueError(f"{shared}; make another one in the function that makes the environment")
        self.subscribers += (subscriber,)
        for topic, route in self._routes.items():
            if issubclass(topic, tuple(subscriber.get_interfaces())):
                route.append(subscriber)
        subscriber.join(self)

    def remove_subscriber(self, subscriber: Subscriber) -> None:
        """Stop sending events to a subscriber; do nothing if it is not registered."""
        self.subscribers = tuple(known for known in self.subscribers if known is not subscriber)
        for route in self._routes.values():  # recorders keep references to these lists
            route[:] = [known for known in route if known is not subscriber]

    def get_step_events(self) -> list[EventRecord]:
        """All events of the current environment step, in the order in which they were fired."""
        return self._records[self._step_start :]

    def query_events(self, events: Event | Iterable[Event]) -> list[EventRecord]:
        """Events of one or several kinds in the current environment step."""
        return select_events(self.get_step_events(), events)

    def clear(self) -> None:
        """Begin an environment step: forget the events of the previous one, also in subscribers.

        After the first `drain`, events that were not drained yet are kept for the next one.
        Wrappers that split a step begin it by `begin_env_step` of the environment.
        """
        del self._records[: self._drained if self._keep_undrained else None]
        self._drained = 0
        self._step_start = len(self._records)
        for subscriber in self.subscribers:
            subscriber.clear_events()
        self.context.env_step_incremented = False

    def add_reader(self) -> int:
        """Register a reader that drains all events of an episode, whatever other readers drain.

        Returns:
            Number to pass to `drain`.
        """
        reader = next(number for number in count() if number not in self._backlogs)
        self._backlogs[reader] = []
        self._is_shared = len(self._backlogs) > 1
        return reader

    @property
    def readers(self) -> frozenset[int]:
        """Numbers of the readers."""
        return frozenset(self._backlogs)

    def remove_reader(self, reader: int) -> None:
        """Stop keeping events for a reader, which drains no more of them; do nothing if there is none.

        Args:
            reader: Number from `add_reader`.
        """
        self._backlogs.pop(reader, None)
        self._is_shared = len(self._backlogs) > 1 or any(self._backlogs.values())

    def drain(self, reader: int | None = None) -> list[EventRecord]:
        """Events fired since the last `drain`, each exactly once, also across several environment steps.

        Meant for the code that steps the outermost environment. Events of the current step can
        still be queried afterwards.

        Args:
            reader: Number from `add_reader`; each reader receives each event of an episode exactly
                once, whatever others drain. None is for a single consumer: it returns the events
                that no reader has drained.
        """
        self._keep_undrained = True
        records = self._records[self._drained :]
        self._drained = len(self._records)
        return self._shared(records, reader) if self._is_shared or reader is None else records

    def _shared(self, records: list[EventRecord], reader: int | None) -> list[EventRecord]:
        """Keep new events for all readers; return those for `reader`, or the new ones if None."""
        self._is_shared = bool(self._backlogs)
        for backlog in self._backlogs.values():
            backlog += records
        if reader not in self._backlogs:  # None, or one that was removed
            return records
        records, self._backlogs[reader] = self._backlogs[reader], []
        return records

    def begin_episode(self) -> None:
        """Begin the first step of an episode; readers lose undrained events of the previous one."""
        for backlog in self._backlogs.values():
            backlog.clear()
        self.clear()

    def discard(self) -> None:
        """Forget undrained events: to the outside, the steps that fired them never happened."""
        del self._records[self._drained :]
        self._step_start = self._drained

    def counterparts(self, other: Pubsub) -> list[tuple[Subscriber, Subscriber]]:
        """Return each subscriber with that of another pubsub in the same place.

        The other pubsub may have more, which were registered later, such as those of wrappers that
        record.

        Raises:
            TypeError: The subscribers are not of the same classes.
        """
        pairs = list(zip(self.subscribers, other.subscribers, strict=False))
        if len(pairs) < len(self.subscribers) or any(type(one) is not type(two) for one, two in pairs):
            ours = [type(subscriber).__name__ for subscriber in self.subscribers]
            theirs = [type(subscriber).__name__ for subscriber in other.subscribers]
            raise TypeError(
                f"an environment with the subscribers {ours} cannot take over the state of one with {theirs}"
            )
        return pairs

    def take_records(self, other: Pubsub) -> None:
        """Take over all events of another pubsub, drained or not, but not those of its subscribers.

        If it has other readers, their events are left out.
        """
        if self._backlogs.keys() != other._backlogs.keys():
            self._records[:] = other.get_step_events()
            self._step_start = self._drained = 0
            self._keep_undrained = False
            for backlog in self._backlogs.values():
                backlog.clear()
            return
        self._records[:] = other._records
        self._step_start, self._drained = other._step_start, other._drained
        self._keep_undrained, self._is_shared = other._keep_undrained, other._is_shared
        for reader, backlog in self._backlogs.items():
            backlog[:] = other._backlogs[reader]

    def recorder(self, declaration: EventDeclaration) -> Callable[..., None]:
        """Make the function that fires one event."""
        topic = declaration.topic
        event = declaration.event
        context = self.context
        attributes_of = _binding(declaration)
        append = self._records.append
        route = self._routes[topic]
        make = tuple.__new__  # a third faster than EventRecord(...), which checks nothing more

        def record(*arguments: Any, **keywords: Any) -> None:
            try:
                attributes = attributes_of(*arguments, **keywords)
            except TypeError as error:
                raise TypeError(f"{error}; it is {declaration.name}{declaration.signature}") from None
            env_time = context.env_time - context.env_step_incremented  # a step that is complete has not ended yet
            entry = make(EventRecord, (topic, event, attributes, env_time))
            append(entry)
            for subscriber in route:
                subscriber.notify_event(entry)

        return record


def _binding(declaration: EventDeclaration) -> Callable[..., dict[str, Any]]:
    """Compile a function that returns its arguments by name, so that Python checks them.

    Arguments that could be changed in place are copied.
    """
    bare = [p.replace(annotation=p.empty, default=p.empty) for p in declaration.signature.parameters.values()]
    body = f"{{{', '.join(f'{one.name!r}: {one.name}' for one in bare)}}}"
    if bare:
        checks = [_CHECK.format(one.name) for one in bare]
        body = f"{body} if {' and '.join(checks)} else _maze_pl_copies({body})"
    bind: Any = eval(f"lambda {str(inspect.Signature(bare))[1:-1]}: {body}", dict(_NAMES))
    bind.__defaults__, bind.__kwdefaults__ = declaration.event.__defaults__, declaration.event.__kwdefaults__
    bind.__qualname__ = f"{declaration.topic.__name__}.{declaration.name}"  # for its messages
    return bind  # type: ignore[no-any-return]


def select_events(records: Iterable[EventRecord], events: Event | Iterable[Event]) -> list[EventRecord]:
    """Records of one or several kinds of events, in their order."""
    wanted = [events] if callable(events) else list(events)
    return [record for record in records if record.event in wanted]
