"""The cutting environment in tensors equals the one in arrays; its random orders have the same probabilities."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs import ArrayVectorEnv
from maze_pl.envs.cutting_2d import (
    MixedPeriodicDemand,
    RawPieceUsageRewardAggregator,
    StaticDemand,
    StructuredCutting2DArrayEnvironment,
    UniformDemand,
)
from maze_pl.envs.cutting_2d.demand import DemandGenerator
from maze_pl.envs.cutting_2d.events import CuttingEvents, InventoryEvents
from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.cutting_2d.tensor_orders import TensorOrders
from maze_pl.envs.tensors.tensor_streams import uniform
from maze_pl.events.topics import declarations
from tests.equality import assert_equal
from tests.nondeterministic import RefuseCumulativeSums

DEMAND = [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)]
CPU = torch.device("cpu")


@pytest.mark.parametrize("n_pieces", [3, 6, 50])
def test_for_the_same_orders_and_actions_all_numbers_equal_those_in_arrays(n_pieces: int) -> None:
    n_envs = 32
    generator = np.random.default_rng(0)
    forms = StructuredCutting2DArrayEnvironment, StructuredCutting2DTensorEnvironment
    arrays, tensors = (ArrayVectorEnv(partial(form, n_pieces, (4, 3), DEMAND), n_envs, seed=1) for form in forms)
    for vector in (arrays, tensors):
        vector.reset()
    for step in range(250):
        keys = arrays.staging.next_key
        assert np.array_equal(keys, tensors.staging.next_key)
        for key in (0, 1):
            rows = np.flatnonzero(keys == key)
            for name, seen in arrays.staging.observation[key].items():
                assert np.array_equal(seen[rows], tensors.staging.observation[key][name][rows]), (step, key, name)
        allowed = arrays.staging.observation[0]["inventory_mask"]
        fitting = (allowed * generator.random(allowed.shape)).argmax(1)
        chosen = generator.integers(n_pieces, size=n_envs) if step % 4 < 2 else fitting
        cuts = {head: generator.integers(2, size=n_envs) for head in ("cut_rotation", "cut_order")}
        for vector in (arrays, tensors):
            vector.staging.action[0]["piece_idx"][:] = chosen
            for head, values in cuts.items():
                vector.staging.action[1][head][:] = values
            vector.step()
        assert np.array_equal(arrays.staging.reward, tensors.staging.reward)
        assert np.array_equal(arrays.staging.terminated, tensors.staging.terminated)
    expected, found = arrays.drain_summaries(), tensors.drain_summaries()
    assert np.array_equal(found.reward, expected.reward)
    assert found.kpis.keys() == expected.kpis.keys()
    assert all(np.array_equal(found.kpis[name], expected.kpis[name]) for name in expected.kpis)
    assert_equal(found.statistics, expected.statistics)
    names = {name for _, name, _, _ in found.statistics}
    assert names >= {*declarations(CuttingEvents), *declarations(InventoryEvents)} or not len(found)
    assert len(found) > 50 or n_pieces > 3


def test_mixed_orders_fill_the_raw_pieces_and_have_the_probabilities_of_those_of_single_episodes() -> None:
    demand, raw, n_episodes = MixedPeriodicDemand(3, 10, rotate=True), (8, 6), 4000
    orders = TensorOrders(demand, raw, CPU).period(torch.arange(n_episodes) * 7919)
    assert orders.prod(2).sum(1).unique().tolist() == [3 * 8 * 6]
    assert int(orders.min()) == 1
    singles = np.array([demand.period(raw, np.random.default_rng(seed), []) for seed in range(n_episodes)])
    for summary in (np.mean, np.var):
        assert summary(orders.numpy()) == pytest.approx(summary(singles), rel=0.02)
        assert summary(orders.prod(2).numpy()) == pytest.approx(summary(singles.prod(2)), rel=0.04)
    by_place = orders.mean((0, 2))
    assert float(by_place.max() / by_place.min()) < 1.05, "they are shuffled"


def mixed_orders_by_hand(demand: MixedPeriodicDemand, raw: tuple[int, int], numbers: list[float]) -> list[list[int]]:
    """The orders of an episode before they are shuffled, with exact weights."""
    pieces = [list(raw) for _ in range(demand.n_raw_pieces)]
    for number in range(demand.m_demanded_pieces - demand.n_raw_pieces):
        extents = [extent for piece in pieces for extent in piece]
        weights = [Fraction(extent - 1, extent) for extent in extents]
        threshold = Fraction(numbers[2 * number]) * sum(weights)
        chosen = next(place for place in range(len(weights)) if sum(weights[: place + 1]) > threshold)
        piece, axis = pieces[chosen // 2], chosen % 2
        cut = 1 + int(numbers[2 * number + 1] * (piece[axis] - 1))
        pieces.append(list(piece))
        pieces[-1][axis] -= cut
        piece[axis] = cut
    return pieces


def test_mixed_orders_are_those_of_a_slow_reference_and_need_no_sums_that_differ_on_a_gpu() -> None:
    demand, raw, n_episodes = MixedPeriodicDemand(2, 9, rotate=False), (11, 7), 60
    seeds = torch.arange(n_episodes) * 7919
    with RefuseCumulativeSums():
        orders = TensorOrders(demand, raw, CPU).period(seeds)
    for order, numbers in zip(orders.int().tolist(), uniform(seeds, 14).tolist(), strict=True):
        assert sorted(order) == sorted(mixed_orders_by_hand(demand, raw, numbers))


def test_uniform_orders_are_uniform() -> None:
    orders = TensorOrders(UniformDemand((3, 2)), (8, 6), CPU)
    found = orders.independent(torch.arange(6000), torch.full((6000,), 5))
    counts = np.unique(found.numpy(), axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert counts == pytest.approx(np.full(6, 1000), rel=0.12)
    assert not torch.equal(found, orders.independent(torch.arange(6000), torch.full((6000,), 6)))


def test_orders_are_shown_in_a_cycle() -> None:
    env = StructuredCutting2DTensorEnvironment(50, (4, 3), StaticDemand([(1, 2), (2, 2)]))
    env.allocate(1)
    env.begin(torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.int64))
    shown = []
    for _ in range(3):
        shown.append(env.observe(0)["ordered_piece"][0].tolist())
        env.act(0, {"piece_idx": torch.tensor([0])})
        env.act(1, {"cut_rotation": torch.tensor([0]), "cut_order": torch.tensor([0])})
    assert shown == [[1.0, 2.0], [2.0, 2.0], [1.0, 2.0]]


class OwnDemand(DemandGenerator):
    """A generator that tensors do not know."""

    def period(self, raw_piece_size: Any, generator: Any, last: Any) -> Any:
        return [(1, 1)]


def test_what_has_no_form_for_tensors_is_refused() -> None:
    with pytest.raises(TypeError, match="OwnDemand has no form for tensors"):
        StructuredCutting2DTensorEnvironment(5, (4, 3), OwnDemand())
    with pytest.raises(TypeError, match="RawPieceUsageRewardAggregator has no form for tensors; use Default"):
        StructuredCutting2DTensorEnvironment(5, (4, 3), (1, 1), RawPieceUsageRewardAggregator(1.0))
    with pytest.raises(ValueError, match="cannot be cut into m_demanded_pieces=100"):
        StructuredCutting2DTensorEnvironment(5, (4, 3), MixedPeriodicDemand(1, 100))
