"""Events of environments in tensors have the values of the moment in which they were fired, as in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayVectorEnv
from maze_pl.envs.arrays.array_events import ArrayEvent, ArrayEvents
from maze_pl.envs.cutting_2d import StructuredCutting2DArrayEnvironment
from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.tensors import Outcome, TensorEnv
from maze_pl.events import define_episode_stats, define_epoch_stats, define_stats_grouping, define_step_stats
from maze_pl.modules import PPO


class StockEvents:
    """Events of a stock."""

    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum)
    def before_sale(self, level: float) -> None:
        """A sale is about to happen."""


class Stock(TensorEnv):
    """A stock that sells one unit in each of five steps; the event is fired for what is changed afterwards."""

    def __init__(self) -> None:
        super().__init__(5)
        self.events: Any = self.create_event_topic(StockEvents)

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict(level=spaces.Box(-100, 100, (1,)))}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict(action=spaces.Discrete(2))}

    def make_tensors(self, n_envs: int) -> None:
        self.level = torch.zeros(n_envs, dtype=torch.float64, device=self.device)
        self.is_open = torch.zeros(n_envs, dtype=torch.bool, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.level.masked_fill_(which, 10.0)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"level": self.level.float()[:, None]}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.is_open.fill_(True)
        self.events.before_sale(self.is_open, self.level)
        self.level.sub_(1.0)
        self.is_open.fill_(False)
        return Outcome(torch.zeros_like(self.level))


def test_values_that_the_act_changes_later_are_those_before() -> None:
    spec = Spec.of(Stock())
    vector = TensorVector(Stock(), 2, spec, torch.device("cpu"))
    collector = TensorCollector(vector, 5, torch.Generator().manual_seed(0))
    on_device = collector.collect(PPO(spec=spec).policy).summaries
    arrays = ArrayVectorEnv(Stock, 2)
    arrays.reset()
    for _ in range(5):
        arrays.staging.action[0]["action"][:] = 0
        arrays.step()
    for summaries in (on_device, arrays.drain_summaries()):
        totals = [value for one in summaries for key, value in one.statistics.items() if key[1] == "before_sale"]
        assert totals == [10 + 9 + 8 + 7 + 6] * 2


class DetailedEvents(StockEvents):
    """Events of a stock, with attributes that no statistic needs."""

    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="level")
    @define_stats_grouping("kind")
    def sold(self, level: float, kind: int, frame: Any) -> None:
        """Something was sold."""


@pytest.mark.parametrize("is_for_statistics", [False, True])
def test_only_what_statistics_need_is_copied_while_rollouts_are_collected(is_for_statistics: bool) -> None:
    env = Stock()
    events: Any = env.create_event_topic(DetailedEvents)
    env.fired.is_for_statistics = is_for_statistics
    mask, level, frame = torch.ones(3, dtype=torch.bool), torch.zeros(3), torch.zeros(3, 84, 84)
    events.sold(mask, level, kind=level.long(), frame=frame)
    (event,) = env.fired.drain()
    assert set(event.attributes) == ({"level", "kind"} if is_for_statistics else {"level", "kind", "frame"})
    assert all(tensor.data_ptr() not in (level.data_ptr(), frame.data_ptr()) for tensor in event.attributes.values())


def test_collectors_need_attributes_for_statistics_only() -> None:
    spec = Spec.of(Stock())
    collector = TensorCollector(TensorVector(Stock(), 2, spec, torch.device("cpu")), 5, torch.Generator())
    assert collector.env.fired.is_for_statistics


@pytest.mark.parametrize("value", [np.arange(3.0), [1.0, 2.0, 3.0]], ids=["array", "list"])
def test_values_in_arrays_and_lists_are_refused(value: Any) -> None:
    env = Stock()
    env.allocate(3)
    mask = torch.tensor([True, False, True])
    with pytest.raises(
        TypeError, match=r"level of StockEvents.before_sale is .*; expected a tensor \[N, ...\] or a single"
    ):
        env.events.before_sale(mask, value)
    for single in (2.0, np.float64(2.0), np.array(2.0), (1, 2)):
        env.events.before_sale(mask, single)
        (event,) = env.fired.drain()
        assert event.attributes["level"] == single


@pytest.mark.parametrize("n_pieces", [3, 8])
def test_all_attributes_of_the_cutting_environment_equal_those_in_arrays(
    n_pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[Any] = []
    fire = ArrayEvents.fire

    def noting(self: ArrayEvents, event: ArrayEvent) -> None:
        fire(self, event)
        if isinstance(event.which, np.ndarray):  # handed on as events in arrays
            for place, env in enumerate(event.which.tolist()):
                values = {}
                for name, value in event.attributes.items():
                    values[name] = np.asarray(value[place] if np.ndim(value) else value).tolist()
                fired.append((env, event.declaration.name, values))

    monkeypatch.setattr(ArrayEvents, "fire", noting)
    demand = [(1, 2), (2, 2), (1, 1), (3, 1)]
    found = []
    for form in (StructuredCutting2DArrayEnvironment, StructuredCutting2DTensorEnvironment):
        generator = np.random.default_rng(0)
        vector = ArrayVectorEnv(partial(form, n_pieces, (4, 3), demand), 5, seed=1)
        vector.reset()
        fired.clear()
        for _ in range(60):
            vector.staging.action[0]["piece_idx"][:] = generator.integers(n_pieces, size=5)
            for head in ("cut_rotation", "cut_order"):
                vector.staging.action[1][head][:] = generator.integers(2, size=5)
            vector.step()
        found.append(sorted(fired.copy(), key=lambda one: one[:2]))
    assert len(found[0]) > 300
    assert {name for _, name, _ in found[0]} >= {"valid_cut", "invalid_cut"}
    assert found[0] == found[1]
