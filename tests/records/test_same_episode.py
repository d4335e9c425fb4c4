"""Records with the same id: which of them are parts of others, compared with a look at each pair."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.datasets import InMemoryDataset
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.records.same_episode import Choices, Parts
from tests.datasets.episodes_of_acts import Act, episode, make_spec


def record(acts: list[tuple[str, int, int]], terminated: bool, number: int = 0) -> SpacesTrajectoryRecord:
    """An episode of acts: sub-step, agent and choice of each."""
    played = [Act(key, agent, time) for time, (key, agent, _) in enumerate(acts)]
    made = episode(played, make_spec(2, 2), number=number, terminated=terminated)
    for key in "ab":
        made.action[key]["choice"] = np.array([choice for other, _, choice in acts if other == key], np.int64)
    return made


ACTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=4)


@pytest.mark.parametrize("max_memory", [0, 1])
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(ACTS, st.booleans(), st.integers(0, 1)), max_size=8))
def test_parts_are_cut_episodes_with_which_a_longer_one_begins(max_memory: int, played: list[Any]) -> None:
    expected = []
    for place, (acts, terminated, number) in enumerate(played):
        others = [other for other, _, its_number in played if its_number == number and len(other) > len(acts)]
        if not terminated and any(other[: len(acts)] == acts for other in others):
            expected.append(place)
    with closing(Parts(max_memory)) as parts:
        for acts, terminated, number in played:
            parts.add(Choices.of(record(acts, terminated, number)))
        assert parts.find() == expected


def test_an_episode_is_part_of_itself_and_of_a_longer_one_if_it_was_cut() -> None:
    acts = [("a", 0, 1), ("b", 1, 0), ("a", 1, 1)]
    whole = Choices.of(record(acts, True))
    for n_acts, terminated in itertools.product((1, 2, 3), (False, True)):
        part = Choices.of(record(acts[:n_acts], terminated))
        assert part.is_part_of(whole) == (n_acts == 3 or not terminated)
        assert (part.identity() == whole.identity()) == (n_acts == 3)
    for others in ([("a", 0, 1), ("b", 0, 0)], [("a", 0, 1), ("b", 1, 1)], [("b", 0, 1)]):
        assert not Choices.of(record(others, False)).is_part_of(whole)
    assert not Choices.of(record(acts[:2], False, number=1)).is_part_of(whole)


def log_of(temperatures: list[float], rewards: list[float], terminated: bool = False) -> SpacesTrajectoryRecord:
    """A log of a machine that is always set to the same; the records of all days have its name."""
    step = StepSpec(
        spaces.Dict(temperature=spaces.Box(-50, 50, (), np.float32), none=spaces.Box(0, 1, (0,), np.float32)),
        spaces.Dict(power=spaces.Discrete(3)),
    )
    acts: list[Any] = []
    for time, (temperature, reward) in enumerate(zip(temperatures, rewards, strict=True)):
        acts.append((0, 0, time, reward, False, {"temperature": temperature, "none": []}, {"power": 1}))
    return SpacesTrajectoryRecord.of_acts("boiler", Spec({0: step}), acts, terminated, True, len(acts), None, {})


def test_equal_actions_from_another_start_or_with_other_rewards_are_other_episodes() -> None:
    one = Choices.of(log_of([20.0, 21.0], [1.0, 2.0]))
    assert Choices.of(log_of([20.0, 21.0], [1.0, 2.0])).identity() == one.identity()
    for other in (log_of([19.0, 21.0], [1.0, 2.0]), log_of([20.0, 21.0], [1.0, 3.0])):
        assert Choices.of(other).identity() != one.identity()


def test_a_short_episode_with_equal_actions_is_no_part_of_a_longer_one_with_another_start() -> None:
    whole = log_of([20.0, 21.0, 22.0], [1.0, 2.0, 3.0], terminated=True)
    days = [log_of([20.0], [1.0]), log_of([19.0], [1.0]), whole]
    with closing(Parts()) as parts:
        for day in days:
            parts.add(Choices.of(day))
        assert parts.find() == [0]
    found = [Choices.of(day).is_part_of(Choices.of(whole)) for day in days]
    assert found == [True, False, True]


def test_shorter_episodes_with_other_rewards_are_no_parts_of_longer_ones() -> None:
    """The days begin equally, at a constant action, and are all truncated, as the machine is switched off."""
    days = []
    for day, n_acts in enumerate((10, 12, 8)):
        times = np.arange(1.0, n_acts + 1.0)
        days.append(log_of([20.0, *(20.0 + day + times[1:])], list(times * day)))
    first, longest, _ = map(Choices.of, days)
    assert not first.is_part_of(longest)
    cut = log_of([20.0, 23.0], [0.0, 0.0])
    assert not Choices.of(log_of([20.0, 23.0], [0.0, 1.0])).is_part_of(Choices.of(cut))  # equally long
    assert Choices.of(cut).is_part_of(first)
    dataset = InMemoryDataset([*days, cut]).load()
    assert (dataset.n_episodes, len(dataset)) == (3, 30)
    assert read_acts([*days, cut], days[0].spec).lengths.tolist() == [10, 12, 8]


def test_days_of_a_machine_at_a_constant_action_are_all_read() -> None:
    days = [log_of([20.0 + day, 21.0], [1.0, 2.0]) for day in range(5)]
    dataset = InMemoryDataset([*days, days[2]]).load()
    assert (dataset.n_episodes, len(dataset)) == (5, 10)
    assert read_acts([*days, days[2]], days[0].spec).n_episodes == 5
