from __future__ import annotations

import copy
import pickle
from abc import ABC, abstractmethod
from typing import Any

import pytest

from maze_pl.events import BaseEnvEvents, EnvironmentContext, EventLogFiles, EventRecord, Pubsub, Subscriber
from maze_pl.events.trial_registrations import trial_registrations


class CuttingEvents(ABC):
    @abstractmethod
    def valid_cut(self, piece: tuple[int, int], area: float = 1.0) -> None:
        """A cut."""

    def invalid_cut(self) -> None:
        raise AssertionError("the body of an event is not run")

    @abstractmethod
    def measured(self, *, depth: float) -> None: ...


class InventoryEvents:
    def discarded(self, piece: int) -> None: ...


class FineInventoryEvents(InventoryEvents):
    def polished(self) -> None: ...


class Listener(Subscriber):
    def __init__(self, *interfaces: type) -> None:
        super().__init__()
        self.interfaces = list(interfaces)

    def get_interfaces(self) -> list[type]:
        return self.interfaces


@pytest.fixture
def pubsub() -> Pubsub:
    return Pubsub(EnvironmentContext())


def attributes(records: list[EventRecord]) -> list[dict[str, Any]]:
    return [record.attributes for record in records]


def test_an_event_is_recorded_with_topic_function_attributes_and_time() -> None:
    context = EnvironmentContext()
    pubsub = Pubsub(context)
    topic = pubsub.create_event_topic(CuttingEvents)
    context.increment_env_step()
    topic.valid_cut((3, 2), 6.0)  # in the act that completed the step
    context.env_step_incremented = False
    topic.valid_cut((1, 2), 3.0)
    before, record = pubsub.get_step_events()
    assert before.env_time == 0
    assert record == EventRecord(CuttingEvents, CuttingEvents.valid_cut, {"piece": (1, 2), "area": 3.0}, 1)
    assert isinstance(record, EventRecord)


def test_arguments_may_be_given_by_position_by_name_both_or_by_default(pubsub: Pubsub) -> None:
    topic = pubsub.create_event_topic(CuttingEvents)
    topic.valid_cut((1, 2), 3.0)
    topic.valid_cut((1, 2), area=3.0)
    topic.valid_cut(area=3.0, piece=(1, 2))
    topic.valid_cut((1, 2))
    topic.valid_cut(piece=(1, 2))
    topic.measured(depth=0.5)
    given = {"piece": (1, 2), "area": 3.0}
    default = {"piece": (1, 2), "area": 1.0}
    assert attributes(pubsub.get_step_events()) == [given, given, given, default, default, {"depth": 0.5}]


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((), {}, "missing 1 required positional argument: 'piece'"),
        ((1, 2.0, 3), {}, "takes from 1 to 2 positional arguments but 3 were given"),
        ((1,), {"piece": 1}, "got multiple values for argument 'piece'"),
        ((1,), {"length": 1}, "got an unexpected keyword argument 'length'"),
        ((), {"piece": 1, "length": 1}, "got an unexpected keyword argument 'length'"),
    ],
)
def test_wrong_arguments_raise_and_record_nothing(
    pubsub: Pubsub, arguments: tuple[Any, ...], keywords: dict[str, Any], message: str
) -> None:
    topic: Any = pubsub.create_event_topic(CuttingEvents)
    with pytest.raises(TypeError, match=rf"^CuttingEvents.valid_cut\(\) {message}"):
        topic.valid_cut(*arguments, **keywords)
    assert pubsub.get_step_events() == []


def test_keyword_only_attributes_are_not_taken_by_position(pubsub: Pubsub) -> None:
    topic: Any = pubsub.create_event_topic(CuttingEvents)
    with pytest.raises(TypeError, match=r"measured.* takes 0 positional arguments but 1 was given"):
        topic.measured(0.5)


def test_an_unknown_event_is_refused_with_those_that_exist(pubsub: Pubsub) -> None:
    topic: Any = pubsub.create_event_topic(InventoryEvents)
    with pytest.raises(AttributeError, match=r"InventoryEvents has no event 'lost'; its events are \['discarded'\]"):
        topic.lost()


def test_creating_a_topic_again_gives_the_same_object(pubsub: Pubsub) -> None:
    assert pubsub.create_event_topic(CuttingEvents) is pubsub.create_event_topic(CuttingEvents)
    assert list(pubsub.topics) == [CuttingEvents]


def test_two_topics_of_one_name_are_refused_since_they_would_be_logged_as_one(pubsub: Pubsub) -> None:
    def another(name: str) -> type:
        return type(name, (), {"happened": InventoryEvents.discarded})

    pubsub.create_event_topic(InventoryEvents)
    with pytest.raises(ValueError, match=r"is logged under the same name as .*InventoryEvents; rename one of the two"):
        pubsub.create_event_topic(another("InventoryEvents"))
    with pytest.raises(ValueError, match=r"the same name as maze_pl\.events\.topics\.RewardEvents"):
        pubsub.create_event_topic(another("RewardEvents"))
    assert list(pubsub.topics) == [InventoryEvents]


def test_a_subscriber_of_object_gets_the_events_of_all_topics(pubsub: Pubsub) -> None:
    listener = Listener(object)
    pubsub.register_subscriber(listener)
    pubsub.create_event_topic(CuttingEvents).invalid_cut()
    pubsub.create_event_topic(InventoryEvents).discarded(1)
    assert attributes(listener.events) == [{}, {"piece": 1}]
    assert listener.pubsub is pubsub


def test_events_can_be_queried_until_the_next_step_begins(pubsub: Pubsub) -> None:
    cutting, inventory = pubsub.create_event_topic(CuttingEvents), pubsub.create_event_topic(InventoryEvents)
    cutting.invalid_cut()
    inventory.discarded(4)
    inventory.discarded(5)
    assert attributes(pubsub.query_events(InventoryEvents.discarded)) == [{"piece": 4}, {"piece": 5}]
    assert len(pubsub.query_events([CuttingEvents.invalid_cut, InventoryEvents.discarded])) == 3
    pubsub.clear()
    assert pubsub.get_step_events() == []


def test_draining_gives_each_event_once_and_leaves_the_step_to_be_queried(pubsub: Pubsub) -> None:
    inventory = pubsub.create_event_topic(InventoryEvents)
    inventory.discarded(1)
    assert attributes(pubsub.drain()) == [{"piece": 1}]
    inventory.discarded(2)
    assert attributes(pubsub.drain()) == [{"piece": 2}]
    assert pubsub.drain() == []
    assert len(pubsub.get_step_events()) == 2


def test_events_of_several_steps_are_kept_for_whoever_drains(pubsub: Pubsub) -> None:
    inventory = pubsub.create_event_topic(InventoryEvents)
    pubsub.drain()
    for piece in range(3):
        pubsub.clear()
        inventory.discarded(piece)
    assert attributes(pubsub.get_step_events()) == [{"piece": 2}]
    assert attributes(pubsub.drain()) == [{"piece": 0}, {"piece": 1}, {"piece": 2}]
    pubsub.clear()
    assert (pubsub.get_step_events(), pubsub.drain()) == ([], [])


def test_events_that_nobody_drains_do_not_pile_up(pubsub: Pubsub) -> None:
    inventory = pubsub.create_event_topic(InventoryEvents)
    for piece in range(3):
        pubsub.clear()
        inventory.discarded(piece)
    assert attributes(pubsub.drain()) == [{"piece": 2}]


def test_subscribers_get_the_events_of_their_topics_whichever_came_first(pubsub: Pubsub) -> None:
    early, late = Listener(InventoryEvents), Listener(InventoryEvents, CuttingEvents)
    pubsub.register_subscriber(early)
    cutting, inventory = pubsub.create_event_topic(CuttingEvents), pubsub.create_event_topic(InventoryEvents)
    pubsub.register_subscriber(late)
    pubsub.register_subscriber(late)
    cutting.invalid_cut()
    inventory.discarded(1)
    assert attributes(early.events) == [{"piece": 1}]
    assert attributes(late.query_events([CuttingEvents.invalid_cut, InventoryEvents.discarded])) == [{}, {"piece": 1}]
    pubsub.clear()
    assert (early.events, late.events) == ([], [])


def test_a_subscriber_of_two_environments_is_refused_since_it_would_mix_up_their_events(pubsub: Pubsub) -> None:
    listener = Listener(CuttingEvents)
    pubsub.register_subscriber(listener)
    pubsub.register_subscriber(listener)  # of the same one
    other = Pubsub(EnvironmentContext())
    with pytest.raises(ValueError, match=r"the same Listener was given to two environments.*make another one"):
        other.register_subscriber(listener)
    pubsub.remove_subscriber(listener)
    other.register_subscriber(listener)
    assert other.subscribers == (listener,)


def test_subscribers_of_a_topic_get_the_events_of_its_subclasses(pubsub: Pubsub) -> None:
    listener = Listener(InventoryEvents)
    pubsub.register_subscriber(listener)
    fine = pubsub.create_event_topic(FineInventoryEvents)
    fine.discarded(1)
    fine.polished()
    assert len(listener.query_events(InventoryEvents.discarded)) == 1
    assert len(listener.events) == 2


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copied_environment_records_to_its_own_pubsub(pubsub: Pubsub, duplicate: Any) -> None:
    listener = Listener(InventoryEvents)
    pubsub.register_subscriber(listener)
    topic = pubsub.create_event_topic(InventoryEvents)
    topic.discarded(1)
    for order in (1, -1):
        things = [topic, pubsub, listener][::order]
        copied_topic, copied_pubsub, copied_listener = duplicate(things)[::order]
        copied_topic.discarded(2)
        assert attributes(copied_pubsub.get_step_events()) == [{"piece": 1}, {"piece": 2}]
        assert len(copied_listener.events) == 2
        assert copied_pubsub.create_event_topic(InventoryEvents) is copied_topic
    assert attributes(pubsub.get_step_events()) == [{"piece": 1}]


def test_a_reader_that_is_removed_keeps_no_events() -> None:
    pubsub = Pubsub(EnvironmentContext())
    topic = pubsub.create_event_topic(BaseEnvEvents)
    first, second, third = (pubsub.add_reader() for _ in range(3))
    topic.reward(value=1.0)
    assert len(pubsub.drain(second)) == 1
    pubsub.remove_reader(first)
    pubsub.remove_reader(second)
    assert pubsub.readers == {third}
    assert [record.attributes["value"] for record in pubsub.drain(third)] == [1.0], "what others drained before"
    topic.reward(value=2.0)
    assert [record.attributes["value"] for record in pubsub.drain(third)] == [2.0]
    assert pubsub.add_reader() == first, "numbers are used again, so that stacks that are made alike have the same"


def test_registrations_on_trial_are_removed() -> None:
    pubsub = Pubsub(EnvironmentContext())
    kept, tried = EventLogFiles(), EventLogFiles()
    pubsub.register_subscriber(kept)
    reader = pubsub.add_reader()
    with trial_registrations(pubsub):
        pubsub.register_subscriber(tried)
        assert pubsub.add_reader() != reader
    assert pubsub.subscribers == (kept,)
    assert pubsub.readers == {reader}
