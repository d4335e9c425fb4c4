"""The flat environment with a mask: valid cuts, the same results as without it, and its end."""

from __future__ import annotations

import doctest
from itertools import product
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs.checker import check_env
from maze_pl.envs.cutting_2d import (
    GreedyCuttingPolicy,
    InventoryEvents,
    MaskedCutting2DEnvironment,
    masked_env_factory,
    masked_environment,
    maze_env_factory,
    struct_env_factory,
)
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from tests.envs.cutting_2d.instances import DOCUMENTED, MIXED, acts, choose, valid_cuts


def choices_of(cut: int) -> dict[str, int]:
    """Choices of a cut, from a list of all of them."""
    piece, rotation, order = list(product(range(100), range(2), range(2)))[cut]
    return {"piece_idx": piece, "cut_rotation": rotation, "cut_order": order}


def test_mask_allows_exactly_the_valid_cuts() -> None:
    env = masked_env_factory(**{**MIXED, "max_pieces_in_inventory": 30})
    n_rejected = 0
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        policy = RandomPolicy(env.action_spaces_dict, env.action_masks_dict)
        for _, seen, action, observation, _, terminated, _, info in acts(env, policy, 150, seed):
            assert info == {"msg": "valid_cut"}
            if not terminated:
                allowed = [choices_of(cut) for cut in np.flatnonzero(observation["cut_mask"]).tolist()]
                valid = valid_cuts(env.get_maze_state())
                wanted = [(cut.piece_id, int(cut.rotate), int(cut.reverse_cutting_order)) for cut in valid]
                assert sorted(tuple(one.values()) for one in allowed) == sorted(wanted)
                n_rejected += 120 - len(allowed)
            assert seen["cut_mask"][action["cut"]] == 1
    assert n_rejected > 1000


def test_steps_equal_those_of_the_flat_environment_without_a_mask() -> None:
    masked, flat = masked_env_factory(**MIXED), maze_env_factory(**MIXED)
    flat.reset(seed=4)
    generator = np.random.default_rng(0)
    seen, _ = masked.reset(seed=4)
    for _ in range(100):
        cut = int(
            generator.integers(400) if generator.random() < 0.3 else generator.choice(np.flatnonzero(seen["cut_mask"]))
        )
        seen, *result, info = masked.step({"cut": cut})
        other, *expected, expected_info = flat.step(choices_of(cut))
        assert (result, info) == (expected, expected_info)
        np.testing.assert_equal({name: seen[name] for name in other}, other)
        assert masked.get_maze_state() == flat.get_maze_state()


def test_greedy_policy_needs_31_raw_pieces() -> None:
    env = LogStatsWrapper(TimeLimitWrapper(masked_env_factory(**DOCUMENTED), max_episode_steps=180))
    log = list(acts(env, GreedyCuttingPolicy(env.action_spaces_dict), 180, seed=0))
    assert len(log) == 180
    (summary,) = env.drain_episode_summaries()
    assert summary.reward == -31


def test_greedy_policy_cuts_as_in_the_structured_environment() -> None:
    flat, structured = masked_env_factory(**MIXED), struct_env_factory(**MIXED)
    policies = [GreedyCuttingPolicy(env.action_spaces_dict) for env in (flat, structured)]
    seen, other = flat.reset(seed=1)[0], structured.reset(seed=1)[0]
    for _ in range(100):
        action = choose(flat, policies[0], seen)
        chosen = choose(structured, policies[1], other)
        other, *_ = structured.step(chosen)
        chosen |= choose(structured, policies[1], other)
        other, *_ = structured.step(chosen)
        seen, *_ = flat.step(action)
        assert choices_of(action["cut"]) == chosen


def test_episode_ends_if_the_order_fits_into_no_piece() -> None:
    env = masked_env_factory(2, (4, 3), [(2, 3), (2, 1), (1, 1)])
    env.reset(seed=0)
    for cut, ended in ((0, False), (0, False), (4, True)):
        observation, _, terminated, truncated, _ = env.step({"cut": cut})
        assert (terminated, truncated) == (ended, False)
    assert not observation["cut_mask"].any()
    (record,) = env.pubsub.query_events(InventoryEvents.no_piece_fits)
    assert record.attributes == {"current_demand": (2, 3)}


def test_recorded_states_and_actions_are_converted() -> None:
    env, converter = masked_env_factory(**MIXED), masked_env_factory(**MIXED)
    observation, _ = env.reset(seed=2)
    for index in range(20):
        state = env.get_maze_state()
        cut = int(np.flatnonzero(observation["cut_mask"])[-1])
        maze_action = env.action_conversion_dict[0].space_to_maze(choices_of(cut), state)
        observations, actions = converter.get_observation_and_action_dicts(state, maze_action, index == 0)
        assert observations is not None
        np.testing.assert_equal(observations[0], observation)
        assert actions == {0: {"cut": cut}}
        observation, *_ = env.step({"cut": cut})


def test_specification_survives_being_written_and_is_flat() -> None:
    spec = Spec.of(masked_env_factory(**DOCUMENTED))
    assert Spec.from_dict(spec.to_dict()) == spec
    assert spec.is_flat


def test_check_of_environments_finds_nothing() -> None:
    report = check_env(TimeLimitWrapper(masked_env_factory(**MIXED), max_episode_steps=40), n_steps=200)
    assert report.ok, report


def test_other_environments_and_missing_resets_are_refused() -> None:
    structured: Any = struct_env_factory(**DOCUMENTED)
    with pytest.raises(ValueError, match="MaskedCutting2DEnvironment wraps the flat cutting environment"):
        MaskedCutting2DEnvironment(structured)
    with pytest.raises(ResetNeeded, match="before reset"):
        masked_env_factory(**DOCUMENTED).step({"cut": 0})


def test_examples_of_the_docstring() -> None:
    result = doctest.testmod(masked_environment)
    assert result.attempted and not result.failed
