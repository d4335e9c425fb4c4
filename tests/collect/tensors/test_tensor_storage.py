"""What is stored of environments in tensors: invalid numbers are refused, as those of environments in arrays are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.collect.collector import Collector
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_storage import smallest_type
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayVectorEnv
from maze_pl.envs.tensors import Outcome, TensorEnv
from maze_pl.modules import PPO

FIRST = 10


class Counter(TensorEnv):
    """Counts the acts of an episode, which may end; observes NaN after the last one in environments with odd numbers.

    Args:
        n_acts: Acts of an episode.
        terminates: Whether episodes end after so many acts.
        max_episode_steps: See `TensorEnv`.
    """

    def __init__(self, n_acts: int, terminates: bool, max_episode_steps: int | None = None) -> None:
        super().__init__(max_episode_steps)
        self.n_acts = n_acts
        self.terminates = terminates

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"count": spaces.Box(0.0, 100.0, ())})}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"move": spaces.Discrete(2)})}

    def make_tensors(self, n_envs: int) -> None:
        self.count = torch.zeros(n_envs, device=self.device)
        self.is_odd = torch.arange(n_envs, device=self.device) % 2 == 1

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.count.masked_fill_(which, 0.0)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"count": torch.where(self.is_odd & (self.count >= self.n_acts), torch.nan, self.count)}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.count.add_(1)
        return Outcome(self.count, (self.count >= self.n_acts) & self.terminates)


def collectors_of(make: Any, n_steps: int) -> list[Any]:
    """Collectors of the form in tensors and of that in arrays."""
    spec = Spec.of(make())
    arrays = ArrayVectorEnv(make, 3, spec=spec, first_env_index=FIRST)
    tensors = TensorVector(make(), 3, spec, torch.device("cpu"), first_env_index=FIRST)
    return [
        TensorCollector(tensors, n_steps, torch.Generator().manual_seed(1)),
        Collector(arrays, n_steps, torch.Generator().manual_seed(1)),
    ]


def random_policy(make: Any) -> RandomPolicy:
    return RandomPolicy(dict(make().action_spaces_dict))


@pytest.mark.parametrize(("limit", "n_steps"), [(4, 9), (None, 4)], ids=["at the time limit", "after the last row"])
def test_observations_that_follow_rows_are_refused_if_they_are_invalid(limit: int | None, n_steps: int) -> None:
    make = partial(Counter, 4, False, limit)
    for collector, fault in zip(collectors_of(make, n_steps), ["NaN or infinite", "not finite"], strict=True):
        with pytest.raises(ValueError, match=rf"observation 'count' .*environment 11 is {fault}"):
            collector.collect(random_policy(make))


@pytest.mark.parametrize("limit", [4, None])
def test_observations_after_terminated_episodes_are_unread(limit: int | None) -> None:
    make = partial(Counter, 4, True, limit)
    for collector in collectors_of(make, 8):
        assert collector.collect(random_policy(make)).rows.terminated[[3, 7]].all()


class Whole(TensorEnv):
    """Observes integers of a wider type than that of its space, from `start` on, for five steps."""

    def __init__(self, start: int, dtype: Any = np.int8, observed: torch.dtype = torch.int64) -> None:
        super().__init__(max_episode_steps=5)
        self.space = spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, (2,), dtype)
        self.start = start
        self.observed = observed

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"whole": self.space})}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"move": spaces.Discrete(2)})}

    def make_tensors(self, n_envs: int) -> None:
        self.number = torch.zeros(n_envs, dtype=torch.int64, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.number.masked_fill_(which, self.start)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"whole": torch.stack([self.number, torch.zeros_like(self.number)], 1).to(self.observed)}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.number.add_(1)
        return Outcome(self.number)


REFUSED = r"of environment 10.* cannot hold"


@pytest.mark.parametrize(
    ("start", "dtype", "observed", "n_steps", "fault"),
    [
        (122, np.int8, torch.int64, 7, ""),  # at most 127, after the last act
        (123, np.int8, torch.int64, 7, REFUSED),
        (126, np.int8, torch.int64, 2, REFUSED),  # after the last row
        (250, np.uint8, torch.uint8, 7, ""),
        (100, np.int8, torch.uint8, 7, ""),
        (100, np.uint8, torch.int64, 7, "observation 'whole' of sub-step 0 of .*type"),
    ],
)
def test_integers_that_the_type_of_their_space_cannot_hold_are_refused(
    start: int, dtype: Any, observed: torch.dtype, n_steps: int, fault: str
) -> None:
    make = partial(Whole, start, dtype, observed)
    for collector in collectors_of(make, n_steps):
        if fault:
            with pytest.raises(ValueError, match=fault):
                collector.collect(random_policy(make))
        else:
            whole = collector.collect(random_policy(make)).segments[0].observation["whole"][..., 0]
            assert whole[:, 0].tolist() == [start + t % 5 for t in range(n_steps)]


class Forbidding(TensorEnv):
    """Chooses from two and from three options, of which masks allow none in environment 1 in the third step."""

    def __init__(self, space: spaces.Space[Any], allowed: list[int]) -> None:
        super().__init__(max_episode_steps=5)
        self.space = space
        self.allowed = allowed

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"way_mask": spaces.Box(0, 1, (5,), np.int8)})}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"way": self.space})}

    @property
    def action_masks_dict(self) -> Mapping[Any, Mapping[str, str]]:
        return {0: {"way": "way_mask"}}

    def make_tensors(self, n_envs: int) -> None:
        self.count = torch.zeros(n_envs, dtype=torch.int64, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.count.masked_fill_(which, 0)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        mask = torch.ones(len(self.count), 5, dtype=torch.int8)
        is_meant = (self.count == 2) & (torch.arange(len(self.count)) == 1)
        return {"way_mask": torch.where(is_meant[:, None], torch.tensor(self.allowed, dtype=torch.int8), mask)}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.count.add_(1)
        return Outcome(self.count)


@pytest.mark.parametrize(
    ("space", "allowed", "is_refused"),
    [
        (spaces.Discrete(5), [0, 0, 0, 0, 0], True),
        (spaces.Discrete(5), [0, 0, 0, 0, 1], False),
        (spaces.MultiDiscrete([2, 3]), [1, 1, 0, 0, 0], True),
        (spaces.MultiDiscrete([2, 3]), [0, 0, 0, 1, 0], True),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 0, 1, 0], False),
        (spaces.MultiDiscrete([[2], [3]]), [0, 0, 0, 1, 0], True),
        (spaces.MultiDiscrete([[2], [3]]), [0, 1, 0, 1, 0], False),
        (spaces.MultiBinary(5), [0, 0, 0, 0, 0], False),
    ],
    ids=str,
)
def test_masks_that_allow_nothing_are_refused(space: spaces.Space[Any], allowed: list[int], is_refused: bool) -> None:
    make = partial(Forbidding, space, allowed)
    policy = PPO(spec=Spec.of(make())).policy
    for collector in collectors_of(make, 4):
        if is_refused:
            with pytest.raises(ValueError, match=r"'way_mask' of .*environment 11.* allows no action"):
                len(collector.collect(policy).summaries)
        else:
            assert len(collector.collect(policy).summaries) == 0


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (spaces.Discrete(128), torch.int8),
        (spaces.Discrete(129), torch.int16),
        (spaces.Discrete(10, start=-130), torch.int16),
        (spaces.Discrete(70_000), torch.int32),
        (spaces.Discrete(2**40), None),
        (spaces.MultiDiscrete([3, 200]), torch.int16),
        (spaces.MultiDiscrete([[3, 4], [5, 6]]), torch.int8),
        (spaces.MultiBinary(4), None),
        (spaces.Box(0, 1, (2,)), None),
    ],
    ids=str,
)
def test_discrete_actions_take_the_smallest_type(space: Any, dtype: torch.dtype | None) -> None:
    assert smallest_type(space) == dtype


def test_indices_of_episodes_beyond_32_bits_are_kept() -> None:
    make = partial(Counter, 2, True)
    vector = TensorVector(make(), 2, Spec.of(make()), torch.device("cpu"), seed=3)
    collector = TensorCollector(vector, 2, torch.Generator())
    collector.start([2**32 + 5] * 2)
    summaries = collector.collect(PPO(spec=Spec.of(make())).policy).summaries
    assert [summary.episode_index for summary in summaries] == [2**32 + 5] * 2
