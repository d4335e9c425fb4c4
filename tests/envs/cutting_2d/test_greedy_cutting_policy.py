"""What the greedy policy chooses."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.cutting_2d import (
    GreedyCuttingPolicy,
    Inventory,
    InventoryEvents,
    masked_env_factory,
)
from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.wrapper import ObservationWrapper
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from maze_pl.events import EnvironmentContext, Pubsub
from maze_pl.runs.rollout import rollout
from tests.envs.cutting_2d.forms import arrays
from tests.envs.cutting_2d.instances import (
    DOCUMENTED,
    FACTORIES,
    MIXED,
    Cutting2DMazeAction,
    Cutting2DMazeState,
    acts,
    valid_cuts,
)

Piece = tuple[int, int]
N_SLOTS = 6


def decide(*cases: tuple[list[Piece], Piece], variant: str = "flat") -> list[tuple[int, ...]]:
    """Piece, rotation and cutting order for each case: pieces in stock, and the order."""
    env = FACTORIES[variant](N_SLOTS, (10, 8), (1, 1))
    policy = GreedyCuttingPolicy(env.action_spaces_dict)
    states = [Cutting2DMazeState(pieces, N_SLOTS, order, (10, 8)) for pieces, order in cases]
    agents = np.zeros(len(cases), np.int64)
    action = policy.act(PolicyBatch(0, {}, agents, maze_state=states)).action
    assert set(action) == set(env.action_spaces_dict[0])
    if variant != "flat":
        chosen = zip(states, action["piece_idx"].tolist(), strict=True)
        states = [state.with_choice(piece) for state, piece in chosen]
        cuts = policy.act(PolicyBatch(1, {}, agents, maze_state=states)).action
        assert set(cuts) == set(env.action_spaces_dict[1])
        action |= cuts
    return list(zip(*(action[head].tolist() for head in ("piece_idx", "cut_rotation", "cut_order")), strict=True))


BY_HAND = [
    # the smallest piece by area that fits, not the first one
    (([(10, 8), (4, 4), (3, 5)], (2, 2)), 2),
    # the first one of two with the same area
    (([(10, 8), (4, 3), (6, 2)], (1, 1)), 1),
    (([(6, 2), (4, 3)], (1, 1)), 0),
    # too small by area or by one side
    (([(1, 7), (2, 2), (5, 3)], (3, 2)), 2),
    # fits only if turned
    (([(10, 8), (2, 5)], (4, 1)), 1),
    (([(5, 2)], (2, 5)), 0),
]
CUTS_BY_HAND = [
    # 10 x 8, order 3 x 2: x first leaves 7 x 8 = 56; y first 10 x 6 = 60; turned: x first 8 x 8 = 64, y first 50
    ((10, 8), (3, 2), (1, 0)),
    # 10 x 8, order 2 x 3: x first leaves 8 x 8 = 64
    ((10, 8), (2, 3), (0, 0)),
    # 4 x 3, order 1 x 2: x first leaves 3 x 3 = 9; y first 4 x 1; turned: x first 2 x 3, y first 4 x 2 = 8
    ((4, 3), (1, 2), (0, 0)),
    # 8 x 10, order 2 x 3: x first 6 x 10 = 60; y first 8 x 7 = 56; turned: y first 8 x 8 = 64
    ((8, 10), (2, 3), (1, 1)),
    # 8 x 10, order 3 x 2: y first 8 x 8 = 64
    ((8, 10), (3, 2), (0, 1)),
    # a square: all four leave 9 x 7 or 7 x 9 and the like; the first way wins
    ((9, 9), (2, 2), (0, 0)),
    # x first and y first leave the same: 6 x 9 = 54 = 9 x 6, and turned as well
    ((9, 9), (3, 3), (0, 0)),
    # 5 x 5, order 1 x 2: x first leaves 4 x 5 = 20, turned and y first 5 x 4 = 20, too: not turned
    ((5, 5), (1, 2), (0, 0)),
    # 5 x 5, order 2 x 1: y first leaves 5 x 4 = 20; turned and x first 4 x 5 = 20, too: not turned
    ((5, 5), (2, 1), (0, 1)),
    # fits only if turned, and then leaves nothing: the cutting order that is not reversed
    ((2, 5), (5, 2), (1, 0)),
    # fits only upright
    ((2, 6), (2, 5), (0, 0)),
]
every_variant = pytest.mark.parametrize("variant", list(FACTORIES))


@every_variant
def test_the_smallest_piece_that_fits_is_chosen(variant: str) -> None:
    cases, pieces = zip(*BY_HAND, strict=True)
    assert [choice[0] for choice in decide(*cases, variant=variant)] == list(pieces)


@every_variant
def test_the_cuts_leave_the_largest_rectangle(variant: str) -> None:
    cases = [([piece], order) for piece, order, _ in CUTS_BY_HAND]
    assert decide(*cases, variant=variant) == [(0, *cuts) for *_, cuts in CUTS_BY_HAND]


def test_where_nothing_fits_the_first_option_is_chosen() -> None:
    assert decide(([(2, 2), (3, 3)], (4, 1)), ([], (1, 1))) == [(0, 0, 0)] * 2


side = st.integers(1, 6)


@settings(max_examples=50)
@given(pieces=st.lists(st.tuples(side, side), min_size=1, max_size=N_SLOTS), order=st.tuples(side, side))
def test_what_it_chooses_is_what_trying_everything_out_gives(pieces: list[Piece], order: Piece) -> None:
    cuts = valid_cuts(Cutting2DMazeState(pieces, N_SLOTS, order, (10, 8)))
    (choice,) = decide((pieces, order))
    if not cuts:
        assert choice == (0, 0, 0)
        return
    smallest = min((pieces[cut.piece_id][0] * pieces[cut.piece_id][1], cut.piece_id) for cut in cuts)[1]

    def largest_rest(rotate: bool, reverse: bool) -> int:
        stock = Inventory(N_SLOTS + 2, (10, 8), Pubsub(EnvironmentContext()).create_event_topic(InventoryEvents))
        stock.pieces = [pieces[smallest]]
        possible = stock.cut(Cutting2DMazeAction(0, rotate, reverse), order)
        return max((x * y for x, y in stock.pieces), default=0) if possible else -1

    best = max(product((False, True), repeat=2), key=lambda way: largest_rest(*way))
    assert choice == (smallest, *best)


def test_it_plays_the_same_episode_in_all_variants() -> None:
    logs = []
    for factory in FACTORIES.values():
        env = factory(**MIXED)
        log = list(acts(env, GreedyCuttingPolicy(env.action_spaces_dict, env.action_masks_dict), 60, seed=3))
        logs.append([(reward, info) for *_, reward, _, _, info in log if info])
    assert len(logs[0]) == 60
    assert logs[0] == logs[1] == logs[2]


def test_statistics_can_be_estimated_with_it() -> None:
    env = ObservationNormalizationWrapper(
        FACTORIES["masked"](**DOCUMENTED),
        sampling_policy="maze_pl.envs.cutting_2d.GreedyCuttingPolicy",
        exclude=["inventory_mask", "cutting_mask"],
    )
    env.estimate(200, seed=0)
    observation, _ = env.reset(seed=0)
    assert all(np.isfinite(array).all() for array in observation.values())


class Useless(ObservationWrapper):
    """Shows nothing but noise, so that no rule could play by observations."""

    def observation(self, observation: Observation) -> Observation:
        noise = np.random.default_rng(1)
        return {name: noise.random(array.shape).astype(array.dtype) for name, array in observation.items()}


FORMS = {
    **FACTORIES,
    "masked flat": masked_env_factory,
    **{f"arrays {name}": lambda name=name, **settings: ArrayMazeEnv(arrays(name, settings)) for name in FACTORIES},
    "tensors": lambda **settings: ArrayMazeEnv(StructuredCutting2DTensorEnvironment(**settings)),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_wrappers_of_observations_do_not_matter(form: str) -> None:
    def returns(*wrappers: Any) -> list[float]:
        played = rollout(lambda: FORMS[form](**MIXED), "heuristic", 2, 3, max_steps=12, record=(), wrappers=wrappers)
        return [one.summary.reward for one in played]

    assert returns(Useless) == returns()


def test_all_forms_have_the_same_returns() -> None:
    same_orders = [form for form in FORMS if form != "tensors"]  # which draw others
    found = {}
    for form in same_orders:
        played = rollout(lambda form=form: FORMS[form](**MIXED), "heuristic", 2, 5, max_steps=30, record=())
        found[form] = [one.summary.reward for one in played]
    assert all(returns == found["flat"] for returns in found.values()), found


def test_the_state_of_tensors_is_that_of_arrays() -> None:
    tensors, others = StructuredCutting2DTensorEnvironment(**DOCUMENTED), arrays("masked", DOCUMENTED)
    rng = np.random.default_rng(0)
    for env in (tensors, others):
        env.allocate(3)
        env.reset(np.arange(3), np.arange(3))
    states = []
    for _ in range(40):
        states.append([env.maze_state(n) for env in (tensors, others) for n in range(3)])
        assert states[-1][:3] == states[-1][3:]
        sizes = [len(state.inventory) for state in states[-1][:3]]
        cuts = {head: rng.integers(0, 2, 3) for head in ("cut_rotation", "cut_order")}
        actions = {0: {"piece_idx": rng.integers(0, sizes)}, 1: cuts}
        for env in (tensors, others):
            env.step(actions, np.arange(3))


@pytest.mark.parametrize("head", [spaces.Discrete(N_SLOTS - 1), spaces.MultiDiscrete([N_SLOTS, 2])])
def test_heads_of_another_meaning_are_refused(head: spaces.Space[Any]) -> None:
    policy = GreedyCuttingPolicy({0: spaces.Dict(piece_idx=head)})
    state = Cutting2DMazeState([(10, 8)], N_SLOTS, (1, 1), (10, 8))
    with pytest.raises(ValueError, match=r"GreedyCuttingPolicy gives actions of .*; play it without wrappers"):
        policy.act(PolicyBatch(0, {}, np.zeros(1, np.int64), maze_state=[state]))
