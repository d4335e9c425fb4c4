"""The random policy stays within spaces and masks, and repeats itself with the same generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from maze_pl.core import policy
from maze_pl.core.class_path import import_object
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.random_policy import RandomPolicy

ACTIONS = spaces.Dict(
    {
        "one": spaces.Discrete(3, start=5),
        "several": spaces.MultiDiscrete([2, 4]),
        "bits": spaces.MultiBinary(3),
        "box": spaces.Box(np.array([-2.0, 0.0, -np.inf]), np.array([1.0, np.inf, np.inf]), dtype=np.float64),
        "pixels": spaces.Box(0, 3, (2,), np.uint8),
    }
)


def batch(n: int, **observation: np.ndarray) -> PolicyBatch:
    return PolicyBatch(0, observation, np.zeros(n, np.int64))


def test_samples_lie_in_their_spaces_and_reach_every_value() -> None:
    action = RandomPolicy({0: ACTIONS}).act(batch(400), generator=torch.Generator().manual_seed(0)).action
    for i in range(400):
        assert ACTIONS.contains({head: values[i].astype(ACTIONS[head].dtype) for head, values in action.items()})
    assert set(action["one"].tolist()) == {5, 6, 7}
    assert {tuple(row) for row in action["several"].tolist()} == {(a, b) for a in range(2) for b in range(4)}
    assert len({tuple(row) for row in action["bits"].tolist()}) == 8
    assert set(action["pixels"].flatten().tolist()) == {0, 1, 2, 3}
    assert -0.7 < action["box"][:, 0].mean() < -0.3


def test_multi_discrete_actions_begin_at_the_start_of_their_space() -> None:
    start = np.array([[3, -2], [0, 7]])
    space = spaces.MultiDiscrete([[2, 3], [1, 2]], start=start)
    actions = spaces.Dict({"several": space})
    observation = {"mask": np.tile(np.array([1, 1, 0, 1, 1, 1, 0, 1], np.int8), (200, 1))}
    free = RandomPolicy({0: actions}).act(batch(200)).action["several"]
    masked = RandomPolicy({0: actions}, {0: {"several": "mask"}}).act(batch(200, **observation)).action["several"]
    assert free.dtype == masked.dtype == space.dtype and all(space.contains(one) for one in (*free, *masked))
    for values, expected in ((free, [{3, 4}, {-2, -1, 0}, {0}, {7, 8}]), (masked, [{3, 4}, {-1, 0}, {0}, {8}])):
        assert [set(column.tolist()) for column in values.reshape(200, 4).T] == expected


def test_masks_are_kept() -> None:
    masks = {0: {"one": "m1", "several": "m2", "bits": "m3"}}
    observation = {
        "m1": np.tile(np.array([0, 1, 1], np.int8), (100, 1)),
        "m2": np.tile(np.array([0, 1, 1, 0, 0, 1], np.int8), (100, 1)),
        "m3": np.tile(np.array([1, 0, 1], np.int8), (100, 1)),
    }
    action = RandomPolicy({0: ACTIONS}, masks).act(batch(100, **observation)).action
    assert set(action["one"].tolist()) == {6, 7}
    assert {tuple(row) for row in action["several"].tolist()} == {(1, 0), (1, 3)}
    assert not action["bits"][:, 1].any() and action["bits"][:, 0].any()


def test_a_choice_of_which_nothing_is_allowed_is_made_among_all_entries() -> None:
    observation = {"m1": np.zeros((200, 3), np.int8), "m2": np.tile(np.array([0, 0, 0, 1, 1, 0], np.int8), (200, 1))}
    policy = RandomPolicy({0: ACTIONS}, {0: {"one": "m1", "several": "m2"}})
    action = policy.act(batch(200, **observation)).action
    assert set(action["one"].tolist()) == {5, 6, 7}
    assert {tuple(row) for row in action["several"].tolist()} == {(0, 1), (0, 2), (1, 1), (1, 2)}


def test_the_same_generator_state_gives_the_same_actions() -> None:
    policy = RandomPolicy({0: ACTIONS})
    one = policy.act(batch(9), generator=torch.Generator().manual_seed(4)).action
    other = policy.act(batch(9), generator=torch.Generator().manual_seed(4)).action
    for head in one:
        np.testing.assert_array_equal(one[head], other[head])


BOXES = {
    "bounded": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)),
    "unbounded": spaces.Box(-np.inf, np.inf, (2, 3)),
    "from_below": spaces.Box(np.array([-2.0, 1.0]), np.inf, dtype=np.float64),
    "from_above": spaces.Box(-np.inf, np.array([-2.0, 1.0]), dtype=np.float64),
    "small_integers": spaces.Box(-3, 2, (2,), np.int8),
    "integers": spaces.Box(-3, 2**40, (2,), np.int64),
    "scalar": spaces.Box(-1.0, 1.0, ()),
}


@pytest.mark.parametrize("name", BOXES)
def test_boxes_with_bounds_of_one_kind_have_the_numbers_of_samples_one_by_one(name: str) -> None:
    box, n = BOXES[name], 50
    policy = RandomPolicy({0: spaces.Dict({"box": box})})
    for seed, n_actions in ((3, n), (4, n), (5, 7)):
        found = policy.act(batch(n_actions), generator=torch.Generator().manual_seed(seed)).action["box"]
        one = RandomPolicy({0: spaces.Dict({"box": box})}).action_spaces_dict[0]["box"]
        one.seed(int(torch.randint(2**31, (), generator=torch.Generator().manual_seed(seed))))
        expected = np.stack([one.sample() for _ in range(n_actions)])
        assert found.dtype == expected.dtype == box.dtype
        np.testing.assert_array_equal(found, expected)


def test_coordinates_of_different_kinds_have_the_distributions_of_gymnasium() -> None:
    low = np.array([-2.0, 0.5, -np.inf, -np.inf])
    box = spaces.Box(low, np.array([1.0, np.inf, -3.0, np.inf]), dtype=np.float64)
    found = RandomPolicy({0: spaces.Dict({"box": box})}).act(batch(4000), generator=torch.Generator()).action["box"]
    box.seed(0)
    expected = np.stack([box.sample() for _ in range(4000)])
    shares = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(np.quantile(found, shares, 0), np.quantile(expected, shares, 0), atol=0.15)
    correlations = np.corrcoef(found.T)
    assert np.abs(correlations - np.eye(4)).max() < 0.06


def test_spaces_of_several_numbers_of_actors_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def noted(space: spaces.Space[Any], n: int) -> Any:
        made.append(n)
        return batch_space(space, n)

    monkeypatch.setattr("maze_pl.core.random_policy.batch_space", noted)
    policy = RandomPolicy({0: spaces.Dict({"box": BOXES["bounded"]})})
    for _ in range(3):
        for n in (4, 7):  # as of two groups of environments that take turns
            policy.act(batch(n))
    assert made == [4, 7]
    for n in range(1000):
        policy.act(batch(n))
    assert len(policy._boxes) <= 64


def test_boxes_are_sampled_by_one_call_for_all_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, shapes = spaces.Box.sample, []

    def noted(box: spaces.Box, *arguments: Any) -> Any:
        shapes.append(box.shape)
        return sample(box, *arguments)

    monkeypatch.setattr(spaces.Box, "sample", noted)
    RandomPolicy({0: spaces.Dict({"box": BOXES["bounded"]})}).act(batch(1024))
    assert shapes == [(1024, 2)]


def test_configurations_of_earlier_versions_find_it() -> None:
    assert import_object("maze_pl.core.policy.RandomPolicy") is RandomPolicy
    assert import_object("maze_pl.agents.RandomPolicy") is RandomPolicy
    with pytest.raises(AttributeError, match=r"'maze_pl\.core\.policy' has no attribute 'RandomPolicyy'"):
        policy.RandomPolicyy  # type: ignore[attr-defined]  # noqa: B018
