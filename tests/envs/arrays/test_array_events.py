"""Events of array environments: what may be given, and what is refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs.arrays import ArrayEvent, ArrayEvents
from maze_pl.envs.arrays.event_columns import column_of, numbered_groups
from maze_pl.events import (
    RewardShareEvents,
    define_episode_stats,
    define_epoch_stats,
    define_stats_grouping,
    define_step_stats,
)


def topic_of(n_envs: int | None = 3) -> tuple[ArrayEvents, Any]:
    """Events of three environments, and the topic that fires them."""
    events = ArrayEvents()
    events.n_envs = n_envs
    return events, events.create_event_topic(RewardShareEvents)


def fired(which: Any, **attributes: Any) -> ArrayEvent:
    """The event after it was fired."""
    events, topic = topic_of()
    topic.share(which, **attributes)
    (event,) = events.drain()
    return event


def test_what_is_changed_afterwards_stays_as_it_was_fired() -> None:
    which, value, tensor = np.array([0, 2]), np.array([1.0, 2.0]), torch.tensor([3.0, 4.0])
    events, topic = topic_of()
    topic.share(which, name="fuel", value=value)
    topic.share(which, name="fuel", value=tensor)
    which += 1
    value -= 5.0
    tensor.zero_()
    one, other = events.drain()
    assert one.which.tolist() == other.which.tolist() == [0, 2]
    assert one.attributes["value"].tolist() == [1.0, 2.0]
    assert other.attributes["value"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("value", [[1.0, 2.0], torch.tensor([1.0, 2.0]), np.array([1.0, 2.0])])
@pytest.mark.parametrize("which", [[0, 2], (0, 2), torch.tensor([0, 2]), np.array([0, 2], np.uint8)])
def test_lists_and_tensors_hold_a_value_for_each_environment(which: Any, value: Any) -> None:
    event = fired(which, name=["fuel", "toll"], value=value)
    assert event.which.dtype == np.int64
    assert event.which.tolist() == [0, 2]
    assert column_of(event, "value").tolist() == [1.0, 2.0]
    assert [labels for labels, _ in groups_of(event)] == [("fuel",), ("toll",)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_groups_of_floats_have_the_names_of_single_events(dtype: Any) -> None:
    event = fired(np.array([0, 1, 2]), name=np.array([0.1, 2.5, 0.1], dtype), value=1.0)
    groups = [(labels, places.tolist()) for labels, places in groups_of(event)]
    assert groups == [((str(dtype(0.1)),), [0, 2]), (("2.5",), [1])]


def groups_of(event: ArrayEvent) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """Groups with the positions of their events."""
    groups, numbers = numbered_groups(event)
    return [(labels, np.flatnonzero(numbers == number)) for number, labels in enumerate(groups)]


class Named:
    """A name that counts its comparisons."""

    n_comparisons = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        type(self).n_comparisons += 1
        return isinstance(other, Named) and other.number == self.number

    def __str__(self) -> str:
        return f"name {self.number}"


def test_groups_are_found_in_one_pass() -> None:
    events, topic = topic_of(1000)
    topic.share(np.arange(1000), name=[Named(number % 100) for number in range(1000)], value=1.0)
    (event,) = events.drain()
    Named.n_comparisons = 0
    groups = dict(groups_of(event))
    assert Named.n_comparisons <= 2000
    assert list(groups) == [(f"name {number}",) for number in range(100)]
    assert all(places.tolist() == list(range(number, 1000, 100)) for number, places in enumerate(groups.values()))


class Routes:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(len)
    @define_stats_grouping("start", "end")
    def driven(self, start: Any, end: Any) -> None: ...


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (np.array([2, 1, 2, 1]), "b", {("2", "b"): [0, 2], ("1", "b"): [1, 3]}),
        (
            np.array([2, 1, 2, 2]),
            np.array(["x", "y", "x", "y"]),
            {("2", "x"): [0, 2], ("1", "y"): [1], ("2", "y"): [3]},
        ),
        ([1, True, 1, "1"], "b", {("1", "b"): [0, 2, 3], ("True", "b"): [1]}),
        (
            [1, True, 1, True],
            np.array([0.0, -0.0, 0.5, 0.5]),
            {
                ("1", "0.0"): [0],
                ("True", "0.0"): [1],
                ("1", "0.5"): [2],
                ("True", "0.5"): [3],
            },
        ),
    ],
)
def test_groups_are_those_of_equal_labels_in_the_order_of_their_first_events(
    start: Any, end: Any, expected: dict[tuple[str, ...], list[int]]
) -> None:
    events = ArrayEvents()
    events.n_envs = 4
    events.create_event_topic(Routes).driven(np.arange(4), start=start, end=end)
    (event,) = events.drain()
    found = {labels: places.tolist() for labels, places in groups_of(event)}
    assert found == expected
    assert list(found) == list(expected)


@pytest.mark.parametrize("is_object", [False, True])
def test_events_are_not_grouped_one_by_one(is_object: bool) -> None:
    n_events, n_lines = 1000, 0
    numbers = np.arange(n_events)
    start = numbers % 7
    end = np.array(list("abcde"))[numbers % 5]
    events = ArrayEvents()
    events.n_envs = n_events
    topic: Any = events.create_event_topic(Routes)
    topic.driven(numbers, start=start.astype(object) if is_object else start, end=end)
    (event,) = events.drain()

    def count(frame: Any, kind: str, argument: Any) -> Any:
        nonlocal n_lines
        n_lines += kind == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        groups, group = numbered_groups(event)
    finally:
        sys.settrace(before)
    assert groups == [(str(number % 7), "abcde"[number % 5]) for number in range(35)]
    assert np.array_equal(group, numbers % 35)
    assert n_lines < 2 * n_events


@pytest.mark.parametrize("value", [[1, "a"], [None, 2], [np.float32(0.5), "c"]])
def test_values_of_different_kinds_stay_as_they_are(value: list[Any]) -> None:
    assert column_of(fired(np.array([0, 2]), name="fuel", value=value), "value").tolist() == value


@pytest.mark.parametrize("value", [(1, [2, 3]), {"x": 1}, {4}, None, b"a\0", 2**70])
def test_a_single_value_of_any_kind_counts_for_all_environments(value: Any) -> None:
    column = column_of(fired(np.array([0, 2]), name="fuel", value=value), "value")
    assert column.tolist() == [value, value]


@pytest.mark.parametrize("value", [1.5, np.float32(1.5), np.array(1.5), torch.tensor(1.5)])
def test_a_single_value_counts_for_all_environments(value: Any) -> None:
    event = fired(np.array([0, 2]), name="fuel", value=value)
    assert column_of(event, "value").tolist() == [1.5, 1.5]


@pytest.mark.parametrize("which", [[], np.zeros(0), torch.zeros(0, dtype=torch.int64)])
def test_an_event_of_no_environment_is_none(which: Any) -> None:
    events, topic = topic_of()
    topic.share(which, name="fuel", value=[])
    assert events.drain() == []


@pytest.mark.parametrize("which", [[], np.array([0, 2])])
def test_wrong_attributes_are_named_even_for_no_environment(which: Any) -> None:
    _, topic = topic_of()
    its = r"after the numbers of the environments, its arguments are \(name: str, value: float\)"
    with pytest.raises(TypeError, match=rf"^RewardShareEvents.share: missing a required argument: 'value'; {its}$"):
        topic.share(which, name="fuel", valu=[])
    with pytest.raises(TypeError, match=r"RewardShareEvents.share: got an unexpected keyword argument 'unit'"):
        topic.share(which, name="fuel", value=[], unit="kg")


@pytest.mark.parametrize(
    ("which", "came"),
    [
        (np.array([True, False, True]), r"an array of shape \(3,\) and type bool"),
        (torch.tensor([True, False, True]), r"an array of shape \(3,\) and type bool"),
        (np.array([1.0]), r"an array of shape \(1,\) and type float64"),
        (np.array([[0, 1]]), r"an array of shape \(1, 2\) and type int64"),
        (slice(None), "'slice"),
        (1, "'1' of type int"),
        (None, "None"),
    ],
)
def test_anything_but_numbers_of_environments_is_refused(which: Any, came: str) -> None:
    _, topic = topic_of()
    expected = r"expected the numbers of its environments \[n\], integers from 0 to 2: use self.numbers_of"
    with pytest.raises(TypeError, match=f"RewardShareEvents.share was fired for {came}.*; {expected}"):
        topic.share(which, name="fuel", value=1.0)


@pytest.mark.parametrize(("which", "wrong"), [([0, 3], 3), ([-1, 1], -1)])
def test_numbers_of_no_environment_are_refused(which: list[int], wrong: int) -> None:
    _, topic = topic_of()
    with pytest.raises(ValueError, match=f"was fired for environment {wrong}; expected .* from 0 to 2"):
        topic.share(which, name="fuel", value=1.0)
    if wrong < 0:
        _, topic = topic_of(None)
        with pytest.raises(ValueError, match="from 0 to N - 1"):
            topic.share(which, name="fuel", value=1.0)


@pytest.mark.parametrize("value", [[1.0], np.zeros(3), torch.zeros(3), np.zeros((1, 2))])
def test_values_for_other_environments_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"value of RewardShareEvents.share has shape .* for 2 environments"):
        fired(np.array([0, 2]), name="fuel", value=value)


@pytest.mark.parametrize(
    "value",
    [
        [(1, 2), (3, 4)],
        [None, (1, 2)],
        [(1,), (1, 2)],
        [[1.0], [1.0, 2.0]],
        [[1, 2], [3, 4]],
        [{1}, {2}],
        [b"a\0", b"b"],
    ],
)
def test_values_that_are_neither_numbers_nor_texts_stay_what_they_are(value: list[Any]) -> None:
    column = column_of(fired(np.array([0, 2]), name="fuel", value=value), "value")
    assert column.shape == (2,)
    assert column.tolist() == value
    assert [type(entry) for entry in column.tolist()] == [type(entry) for entry in value]


def test_arrays_and_tensors_in_a_list_are_stacked_if_they_have_one_shape() -> None:
    which = np.array([0, 2])
    same = column_of(fired(which, name="fuel", value=[np.ones(2), torch.zeros(2)]), "value")
    assert same.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    single = column_of(fired(which, name="fuel", value=[torch.tensor(1.5), np.array(2.0)]), "value")
    assert single.dtype == np.float64 and single.tolist() == [1.5, 2.0]
    different = column_of(fired(which, name="fuel", value=[np.ones(1), np.ones(2)]), "value")
    assert [entry.tolist() for entry in different] == [[1.0], [1.0, 1.0]]


def test_masks_of_environments_on_a_device_stay_tensors() -> None:
    events, topic = topic_of(None)
    mask, value = torch.tensor([True, False]), torch.tensor([1.0, 2.0])
    topic.share(mask, name="fuel", value=value)
    (event,) = events.drain()
    assert isinstance(event.which, torch.Tensor) and event.which.tolist() == [True, False]
    assert isinstance(event.attributes["value"], torch.Tensor) and event.attributes["value"].tolist() == [1.0, 2.0]
