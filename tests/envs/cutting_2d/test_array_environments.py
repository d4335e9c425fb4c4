"""Cutting-2D over arrays, number for number against environments of single episodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.cutting_2d_mixed.waste_reward import WasteRewardAggregator
from maze_pl.envs.cutting_2d import (
    ChosenPieceMazeState,
    Cutting2DArrayEnvironment,
    CuttingEvents,
    DefaultRewardAggregator,
    MixedPeriodicDemand,
    RawPieceUsageRewardAggregator,
    StructuredCutting2DArrayEnvironment,
    UniformDemand,
)
from tests.envs.arrays.pairs_of_forms import PairOfForms
from tests.envs.cutting_2d.forms import arrays, single
from tests.envs.cutting_2d.instances import CONSTANT, DOCUMENTED, MIXED
from tests.envs.cutting_2d.parts import ServedReward

VARIANTS = ["flat", "struct", "masked"]
AGGREGATORS: list[Any] = [
    None,
    DefaultRewardAggregator(-0.3, -0.7),
    RawPieceUsageRewardAggregator(0.1),
    WasteRewardAggregator(),
]
INSTANCES: list[dict[str, Any]] = [
    DOCUMENTED,
    CONSTANT,
    MIXED,
    {"max_pieces_in_inventory": 4, "raw_piece_size": (6, 5), "static_demand": MixedPeriodicDemand(2, 9, True)},
    {"max_pieces_in_inventory": 1, "raw_piece_size": (3, 2), "static_demand": UniformDemand((3, 2))},
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("instance", INSTANCES, ids=range(5))
def test_documented_instances_equal_single_episodes(variant: str, instance: dict[str, Any]) -> None:
    pair = PairOfForms(arrays(variant, instance), single(variant, instance), 3, seed=5)
    pair.play(70)
    assert pair.n_ended


DEMANDS = st.one_of(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=6),
    st.builds(UniformDemand, st.tuples(st.integers(1, 4), st.integers(1, 4))),
    st.builds(MixedPeriodicDemand, st.integers(1, 3), st.integers(3, 12), st.booleans()),
)
CASES = st.fixed_dictionaries(
    {
        "max_pieces_in_inventory": st.integers(1, 12),
        "raw_piece_size": st.tuples(st.integers(4, 9), st.integers(4, 9)),
        "static_demand": DEMANDS,
    }
)


def check_generated(variant: str, instance: dict[str, Any], aggregator: Any, seed: int) -> None:
    PairOfForms(arrays(variant, instance, aggregator), single(variant, instance, aggregator), 3, seed, 0.1).play(40)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(VARIANTS), CASES, st.sampled_from(AGGREGATORS), st.integers(0, 2**32))
def test_generated_instances_equal_single_episodes(
    variant: str, instance: dict[str, Any], aggregator: Any, seed: int
) -> None:
    check_generated(variant, instance, aggregator, seed)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(st.sampled_from(VARIANTS), CASES, st.sampled_from(AGGREGATORS), st.integers(0, 2**32))
def test_500_generated_instances_equal_single_episodes(
    variant: str, instance: dict[str, Any], aggregator: Any, seed: int
) -> None:
    check_generated(variant, instance, aggregator, seed)


@pytest.mark.parametrize("variant", VARIANTS)
def test_saved_environments_continue_as_they_were(variant: str) -> None:
    instance = INSTANCES[3]
    pair = PairOfForms(arrays(variant, instance), single(variant, instance), 3, seed=5)
    pair.play(11)
    copied: Any = arrays(variant, instance)
    copied.allocate(3)
    copied.load_state_dict(pair.arrays.state_dict())
    pair.arrays = copied
    pair.play(20)


def test_the_state_of_one_environment_is_that_of_the_simulation() -> None:
    pair = PairOfForms(arrays("masked", DOCUMENTED), single("masked", DOCUMENTED), 2, seed=3)
    chosen = []
    for n_acts in (9, 1):
        pair.play(n_acts)
        for n in range(2):
            state = pair.arrays.maze_state(n)
            assert state == pair.singles[n].get_simulation_state()
            chosen.append(isinstance(state, ChosenPieceMazeState))
    assert set(chosen) == {True, False}


class _AreaOnly(DefaultRewardAggregator):
    """Changes rewards of single episodes only."""

    def summarize_reward(self, maze_state: Any = None) -> float:
        return float(len(self.query_events(CuttingEvents.valid_cut)))


def test_parts_without_an_array_form_are_refused() -> None:
    with pytest.raises(TypeError, match="_AreaOnly has no array form; define summarize_rewards"):
        Cutting2DArrayEnvironment(**DOCUMENTED, reward_aggregator=_AreaOnly())
    with pytest.raises(TypeError, match="ServedReward has no array form"):
        Cutting2DArrayEnvironment(**DOCUMENTED, reward_aggregator=ServedReward())
    with pytest.raises(ValueError, match="max_pieces_in_inventory=0"):
        Cutting2DArrayEnvironment(0, (4, 3), (1, 2))
    with pytest.raises(ValueError, match="at most 16777216"):
        Cutting2DArrayEnvironment(2, (2**25, 3), (1, 2))
    with pytest.raises(ValueError, match=r"got \[\(5, 5\)\]"):
        StructuredCutting2DArrayEnvironment(2, (4, 3), (5, 5))


def test_large_pieces_are_exact() -> None:
    instance = {"max_pieces_in_inventory": 3, "raw_piece_size": (2**24, 7), "static_demand": (2**24 - 1, 3)}
    PairOfForms(arrays("masked", instance), single("masked", instance), 2, seed=1).play(12)
