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

from maze_pl.collect.tensor_collector import TensorCollector, TensorVector
from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayVectorEnv
from maze_pl.envs.arrays.array_events import ArrayEvent, ArrayEvents
from maze_pl.envs.cutting_2d import StructuredCutting2DArrayEnvironment
from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.tensors import Outcome, TensorEnv
from maze_pl.events import define_episode_stats, define_epoch_stats, define_step_stats
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
