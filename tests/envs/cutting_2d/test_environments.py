"""The flat, the structured and the masked environment: what is seen, done, credited and converted."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from maze_pl.collect.episodes import play_episodes
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.checker import check_env
from maze_pl.envs.cutting_2d import (
    ActionConversion,
    Cutting2DCoreEnvironment,
    Cutting2DEnvironment,
    Cutting2DMazeAction,
    Cutting2DMazeState,
    GreedyCuttingPolicy,
    InventoryEvents,
    MaskedStructuredCutting2DEnvironment,
    ObservationConversion,
    StructuredCutting2DEnvironment,
    UniformDemand,
    masked_structured_environment,
    maze_env_factory,
    struct_env_factory,
    structured_environment,
)
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv
from maze_pl.envs.wrappers import LogStatsWrapper, RewardScalingWrapper, TimeLimitWrapper
from tests.envs.cutting_2d.instances import CYCLE, DOCUMENTED, FACTORIES, MIXED, acts, choose, valid_cuts
from tests.envs.cutting_2d.parts import WithArea

# A stock of 8 is full most of the time, and invalid choices happen as often as valid ones.
SMALL: dict[str, Any] = {
    "max_pieces_in_inventory": 8,
    "raw_piece_size": (7, 5),
    "static_demand": UniformDemand((4, 4)),
}
every_variant = pytest.mark.parametrize("variant", list(FACTORIES))


def play(env: Any, n_steps: int = 60, seed: int = 0) -> list[tuple[Any, ...]]:
    """Acts at random, with masks if there are any."""
    return list(acts(env, RandomPolicy(env.action_spaces_dict, env.action_masks_dict), n_steps, seed))


def as_lists(log: list[tuple[Any, ...]]) -> list[Any]:
    def plain(value: Any) -> Any:
        return {name: np.asarray(item).tolist() for name, item in value.items()} if isinstance(value, dict) else value

    return [tuple(plain(entry) for entry in act) for act in log]


# ------------------------------------------------------------------------------------------------------------- spaces


def test_what_the_flat_environment_sees_and_does() -> None:
    env = maze_env_factory(max_pieces_in_inventory=10, raw_piece_size=(100, 80), static_demand=(30, 15))
    assert list(env.observation_space) == ["inventory", "inventory_size", "ordered_piece"]
    assert env.action_space == spaces.Dict(
        piece_idx=spaces.Discrete(10), cut_rotation=spaces.Discrete(2), cut_order=spaces.Discrete(2)
    )
    observation, _ = env.reset(seed=0)
    assert observation["inventory"].tolist() == [[100, 80]] + [[0, 0]] * 9
    assert observation["inventory_size"].tolist() == [1]
    assert observation["ordered_piece"].tolist() == [30, 15]
    assert all(array.dtype == np.float32 for array in observation.values())


@pytest.mark.parametrize("variant", ["struct", "masked"])
def test_what_both_sub_steps_of_the_structured_environments_see_and_do(variant: str) -> None:
    env = FACTORIES[variant](max_pieces_in_inventory=200, raw_piece_size=(100, 100), static_demand=[(30, 15)])
    masks = (["inventory_mask"], ["cutting_mask"]) if variant == "masked" else ([], [])
    first, _ = env.reset()
    assert env.action_space == spaces.Dict(piece_idx=spaces.Discrete(200))
    assert list(env.observation_space) == list(first) == ["inventory", "inventory_size", "ordered_piece", *masks[0]]
    second, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert (reward, terminated, truncated) == (0, False, False)
    assert env.action_space == spaces.Dict(cut_rotation=spaces.Discrete(2), cut_order=spaces.Discrete(2))
    assert set(env.observation_space) == set(second) == {"selected_piece", "ordered_piece", *masks[1]}
    assert second["selected_piece"].shape == (2,)
    env.step(env.action_space.sample())
    assert env.actor_id() == (0, 0)
    assert env.agent_counts_dict == {0: 1, 1: 1}


@every_variant
def test_observations_are_in_their_spaces_and_share_no_memory(variant: str) -> None:
    env = FACTORIES[variant](**SMALL)
    log = play(env)
    seen = [(key, observation) for key, observation, *_ in log]
    for key, observation in seen:
        assert env.observation_spaces_dict[key].contains(observation), observation
    for (_, earlier), (_, later) in pairwise(seen):
        assert not any(np.shares_memory(a, b) for a in earlier.values() for b in later.values())
    copies = as_lists(log)
    play(env, seed=1)
    assert as_lists(log) == copies  # nothing was written into later on


@every_variant
def test_the_specification_survives_being_written(variant: str) -> None:
    spec = Spec.of(FACTORIES[variant](**DOCUMENTED))
    assert Spec.from_dict(spec.to_dict()) == spec
    assert spec.is_flat == (variant == "flat")


def test_conversions_leave_the_state_alone_and_show_the_true_size() -> None:
    state = Cutting2DMazeState([(4, 3), (1, 2)], 5, (1, 2), (4, 3))
    observation = ObservationConversion((4, 3), 5).maze_to_space(state)
    assert state == Cutting2DMazeState([(4, 3), (1, 2)], 5, (1, 2), (4, 3))
    assert observation["inventory_size"].tolist() == [2]
    assert observation["inventory"].tolist() == [[4, 3], [1, 2], [0, 0], [0, 0], [0, 0]]
    empty = ObservationConversion((4, 3), 2).maze_to_space(Cutting2DMazeState([], 2, (1, 2), (4, 3)))
    assert empty["inventory"].tolist() == [[0, 0], [0, 0]]


def test_actions_are_turned_into_the_simulations_and_back() -> None:
    conversion = ActionConversion(5)
    for piece in range(5):
        for rotation in (0, 1):
            for order in (0, 1):
                action = {"piece_idx": piece, "cut_rotation": rotation, "cut_order": order}
                maze_action = conversion.space_to_maze(action, None)  # type: ignore[arg-type]
                assert maze_action == Cutting2DMazeAction(piece, bool(rotation), bool(order))
                assert conversion.maze_to_space(maze_action) == action


# ----------------------------------------------------------------------------------------------------- steps and time


@every_variant
def test_the_same_seed_gives_the_same_episode_and_another_one_another(variant: str) -> None:
    first, second = FACTORIES[variant](**SMALL), FACTORIES[variant](**SMALL)
    play(second, seed=7)
    assert as_lists(play(first, seed=3)) == as_lists(play(second, seed=3)) != as_lists(play(first, seed=4))


@every_variant
def test_sampled_actions_depend_on_the_seed_alone(variant: str) -> None:
    def sampled(env: Any, seed: int) -> list[Any]:
        env.reset(seed=seed)
        return [env.action_spaces_dict[key].sample() for key in env.action_spaces_dict for _ in range(20)]

    env = FACTORIES[variant](**DOCUMENTED)
    assert sampled(env, 1) == sampled(FACTORIES[variant](**DOCUMENTED), 1) == sampled(env, 1) != sampled(env, 2)


def test_the_structured_environment_does_what_the_flat_one_does() -> None:
    flat, struct, masked = (factory(**SMALL) for factory in FACTORIES.values())
    taken = [act for act in play(struct, 80) if act[0] == 1]
    pieces = [act[2] for act in play(struct, 80) if act[0] == 0]
    flat.reset(seed=0)
    for (_, _, cuts, observation, reward, *_), piece in zip(taken, pieces, strict=True):
        seen, received, *_ = flat.step(piece | cuts)
        assert received == reward
        np.testing.assert_equal(seen, observation)
    masked.reset(seed=0)
    for (_, _, cuts, observation, reward, *_), piece in zip(taken, pieces, strict=True):
        masked.step(piece)
        seen, received, terminated, *_ = masked.step(cuts)
        assert received == reward
        np.testing.assert_equal({name: seen[name] for name in observation}, observation)
        if terminated:
            break


@pytest.mark.parametrize("variant", ["struct", "masked"])
def test_time_moves_and_both_actors_are_credited_when_the_piece_is_cut(variant: str) -> None:
    env = FACTORIES[variant](**DOCUMENTED)
    env.reset(seed=0)
    for time, reward in enumerate((-2, 0, 0)):
        env.step({"piece_idx": 0})
        assert (env.get_env_time(), env.actor_id(), env.is_actor_done()) == (time, (1, 0), False)
        assert not env.context.env_step_incremented
        _, received, *_ = env.step({"cut_rotation": 0, "cut_order": 0})
        assert (env.get_env_time(), env.actor_id(), received) == (time + 1, (0, 0), reward)
        assert env.context.env_step_incremented
        assert env.get_actor_rewards().tolist() == [reward / 2, reward / 2]


@pytest.mark.parametrize("variant", ["struct", "masked"])
def test_events_belong_to_an_environment_step_and_those_of_the_reset_to_the_first(variant: str) -> None:
    env = FACTORIES[variant](**DOCUMENTED)

    def names() -> list[str]:
        return [record.event.__name__ for record in env.get_step_events()]

    env.reset(seed=0)
    assert names() == ["piece_replenished"]
    env.step({"piece_idx": 0})
    assert names() == ["piece_replenished"]
    env.step({"cut_rotation": 0, "cut_order": 0})
    assert names() == ["piece_replenished", "valid_cut", "piece_replenished", "pieces_in_inventory", "reward"]
    env.step({"piece_idx": 9})
    assert names() == []
    env.step({"cut_rotation": 0, "cut_order": 0})
    assert names() == ["invalid_piece_selected", "pieces_in_inventory", "reward"]


@every_variant
def test_a_time_limit_counts_environment_steps(variant: str) -> None:
    env = LogStatsWrapper(TimeLimitWrapper(FACTORIES[variant](**DOCUMENTED), max_episode_steps=180))
    log = list(acts(env, GreedyCuttingPolicy(env.action_spaces_dict), 180, seed=0))
    assert len(log) == (180 if variant == "flat" else 360)
    assert [act[6] for act in log] == [False] * (len(log) - 1) + [True]
    (summary,) = env.drain_episode_summaries()
    assert summary.env_steps == 180
    assert summary.reward == -31
    assert summary.kpis == {"raw_piece_usage_per_step": 31 / 180, "raw_pieces_per_order_served": 31 / 180}


@every_variant
def test_a_step_without_an_episode_is_refused(variant: str) -> None:
    with pytest.raises(ResetNeeded, match="called before reset"):
        FACTORIES[variant](**DOCUMENTED).step({"piece_idx": 0, "cut_rotation": 0, "cut_order": 0})


@pytest.mark.parametrize("variant", ["struct", "masked"])
def test_a_reset_between_the_sub_steps_begins_with_the_first_one(variant: str) -> None:
    env = FACTORIES[variant](**DOCUMENTED)
    env.reset(seed=0)
    env.step({"piece_idx": 0})
    observation, _ = env.reset(seed=0)
    assert env.actor_id() == (0, 0)
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("variant", ["struct", "masked"])
@pytest.mark.parametrize("index", [1, 49, 50, -1])
def test_choosing_no_piece_costs_the_order_and_a_penalty(variant: str, index: int) -> None:
    env = FACTORIES[variant](**DOCUMENTED)
    env.reset(seed=0)
    observation, *_ = env.step({"piece_idx": index})
    assert observation["selected_piece"].tolist() == [0, 0]
    assert env.observation_space.contains(observation)
    observation, reward, terminated, truncated, info = env.step({"cut_rotation": 0, "cut_order": 0})
    assert (reward, terminated, truncated) == (-3, False, False)  # -1 for the raw piece of the reset
    assert info == {"error": "piece_id_out_of_bounds"}
    assert env.core_env._order_index == 1


def test_the_last_slot_is_not_reached_from_behind() -> None:
    env = struct_env_factory(1, (4, 3), (1, 2))
    env.reset(seed=0)
    assert env.step({"piece_idx": -1})[0]["selected_piece"].tolist() == [0, 0]


# -------------------------------------------------------------------------------------------------------------- masks


def test_masks_allow_exactly_the_valid_cuts() -> None:
    env = FACTORIES["masked"](**{**MIXED, "max_pieces_in_inventory": 30})
    assert env.action_masks_dict == {0: {"piece_idx": "inventory_mask"}, 1: {"cut_rotation": "cutting_mask"}}
    n_rejected = 0
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        generator = np.random.default_rng(seed)
        for _ in range(150):
            cuts = {(cut.piece_id, int(cut.rotate)) for cut in valid_cuts(env.get_maze_state())}
            pieces = np.flatnonzero(observation["inventory_mask"])
            assert set(pieces.tolist()) == {piece for piece, _ in cuts}
            piece = int(generator.choice(pieces))
            observation, *_ = env.step({"piece_idx": piece})
            rotations = np.flatnonzero(observation["cutting_mask"])
            assert {(piece, rotation) for rotation in rotations.tolist()} == {cut for cut in cuts if cut[0] == piece}
            n_rejected += 2 - len(rotations)
            action = {"cut_rotation": int(generator.choice(rotations)), "cut_order": int(generator.integers(2))}
            observation, _, terminated, _, info = env.step(action)
            assert info == {"msg": "valid_cut"}
            if terminated:
                break
    assert n_rejected > 20


# Orders (2, 3), (2, 1) and (1, 1) in turns; the third cut pushes the raw piece out of a stock of 2.
DEAD_END: dict[str, Any] = {
    "max_pieces_in_inventory": 2,
    "raw_piece_size": (4, 3),
    "static_demand": [(2, 3), (2, 1), (1, 1)],
}


@pytest.mark.parametrize("limit", ["inside", "outside"])
def test_where_nothing_fits_any_more_the_masked_environment_terminates(limit: str) -> None:
    flat: Any = maze_env_factory(**DEAD_END)
    if limit == "inside":
        env: Any = MaskedStructuredCutting2DEnvironment(TimeLimitWrapper(flat, max_episode_steps=3))
    else:
        env = TimeLimitWrapper(MaskedStructuredCutting2DEnvironment(flat), max_episode_steps=3)
    env.reset(seed=0)
    for piece, ended in ((0, False), (0, False), (1, True)):
        env.step({"piece_idx": piece})
        observation, _, terminated, truncated, _ = env.step({"cut_rotation": 0, "cut_order": 0})
        assert (terminated, truncated) == (ended, False)
    assert env.get_maze_state().inventory == [(1, 2), (1, 1)]
    assert observation["inventory_mask"].tolist() == [0, 0]
    (record,) = env.pubsub.query_events(InventoryEvents.no_piece_fits)
    assert record.attributes == {"current_demand": (2, 3)}
    assert env.get_step_events()[-1] == record


def test_without_masks_the_episode_goes_on_where_nothing_fits() -> None:
    env = FACTORIES["struct"](**DEAD_END)
    env.reset(seed=0)
    for piece in (0, 0, 1, 0):
        env.step({"piece_idx": piece})
        _, reward, terminated, truncated, _ = env.step({"cut_rotation": 0, "cut_order": 0})
        assert not terminated and not truncated
    assert reward == -2


# ------------------------------------------------------------------------------------------- conversions and wrapping


@every_variant
def test_recorded_states_and_actions_become_what_was_seen_and_done(variant: str) -> None:
    env, converter = FACTORIES[variant](**SMALL), FACTORIES[variant](**SMALL)
    policy = RandomPolicy(env.action_spaces_dict, env.action_masks_dict)
    observation, _ = env.reset(seed=2)
    for time in range(40):
        state, seen, done = env.get_maze_state(), {}, {}
        while env.get_env_time() == time:
            key = env.actor_id().step_key
            seen[key], done[key] = observation, choose(env, policy, observation)
            observation, *_ = env.step(done[key])
        action = env.get_maze_action()
        converted = converter.get_observation_and_action_dicts(state, action, first_step_in_episode=time == 0)
        np.testing.assert_equal(converted, (seen, done))
        assert converter.get_observation_and_action_dicts(None, action, False) == (None, done)
        seen.pop(1, None)  # which piece was chosen is not known without the action
        np.testing.assert_equal(converter.get_observation_and_action_dicts(state, None, False), (seen, None))


@every_variant
@pytest.mark.parametrize("how", ["pickle", "clone"])
def test_a_copy_goes_on_like_the_original(variant: str, how: str) -> None:
    env, copy = FACTORIES[variant](**SMALL), FACTORIES[variant](**SMALL)
    play(env, 30)
    if variant != "flat":  # also between the sub-steps
        env.step({"piece_idx": 0})
    if how == "pickle":
        copy = pickle.loads(pickle.dumps(env))
    else:
        copy.clone_from(env)
    for _ in range(60):
        action = env.action_space.sample()
        np.testing.assert_equal(copy.step(action), env.step(action))
        assert copy.actor_id() == env.actor_id()
        assert copy.get_step_events() == env.get_step_events()


def test_isinstance_sees_the_whole_stack() -> None:
    env = TimeLimitWrapper(RewardScalingWrapper(FACTORIES["masked"](**DOCUMENTED), scale=0.1), max_episode_steps=9)
    assert isinstance(env, MaskedStructuredCutting2DEnvironment)
    assert isinstance(env, StructuredCutting2DEnvironment)
    assert isinstance(env, Cutting2DEnvironment)
    assert isinstance(env, MazeEnv)
    assert not isinstance(struct_env_factory(**DOCUMENTED), MaskedStructuredCutting2DEnvironment)
    env.reset(seed=0)
    env.step({"piece_idx": 0})
    _, reward, *_ = env.step({"cut_rotation": 0, "cut_order": 0})
    assert reward == pytest.approx(-0.2)
    np.testing.assert_allclose(env.get_actor_rewards(), [-0.1, -0.1])


@pytest.mark.parametrize("outer", [StructuredCutting2DEnvironment, MaskedStructuredCutting2DEnvironment])
def test_wrappers_may_lie_inside_and_other_environments_may_not(outer: type[StructuredCutting2DEnvironment]) -> None:
    env = outer(TimeLimitWrapper(maze_env_factory(**DOCUMENTED), max_episode_steps=2))
    log = play(env, 2)
    assert [act[6] for act in log] == [False, False, False, True]
    for wrong in (GymMazeEnv("CartPole-v1"), struct_env_factory(**DOCUMENTED)):
        with pytest.raises(ValueError, match=f"{outer.__name__} wraps the flat cutting environment, with .*; got"):
            outer(wrong)


def test_further_observations_of_the_flat_environment_are_seen_in_the_first_sub_step() -> None:
    core_env = Cutting2DCoreEnvironment(5, (4, 3), CYCLE)
    env = MaskedStructuredCutting2DEnvironment(Cutting2DEnvironment(core_env, ActionConversion(5), WithArea((4, 3), 5)))
    observation, _ = env.reset(seed=0)
    assert observation["area"] == 2
    assert env.observation_space.contains(observation)
    assert set(env.observation_spaces_dict[1]) == {"selected_piece", "ordered_piece", "cutting_mask"}


def test_examples_in_docstrings_are_true() -> None:
    results = [doctest.testmod(module) for module in (structured_environment, masked_structured_environment)]
    assert [(result.failed, result.attempted) for result in results] == [(0, 6), (0, 2)]


def test_environments_are_imported_without_torch_and_matplotlib() -> None:
    code = (
        "import sys, maze_pl.envs.cutting_2d;"
        "print([name for name in ('torch', 'matplotlib', 'jsonargparse') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@every_variant
def test_the_doctor_finds_nothing_wrong(variant: str) -> None:
    report = check_env(TimeLimitWrapper(FACTORIES[variant](**SMALL), max_episode_steps=40), n_steps=200)
    assert report.ok, report


@every_variant
def test_environments_in_processes_of_their_own_play_the_same_episodes(variant: str) -> None:
    def play_six(kind: type[SequentialVectorEnv | SubprocVectorEnv]) -> list[dict[str, Any]]:
        make = partial(
            make_wrapped, partial(FACTORIES[variant], **SMALL), [partial(TimeLimitWrapper, max_episode_steps=30)]
        )
        vector = kind([make] * 2, seed=4, autoreset=False)
        try:
            steps = vector.spec.steps.items()
            policy = RandomPolicy(
                {key: step.action_space for key, step in steps}, {key: step.masks for key, step in steps}
            )
            generator = torch.Generator().manual_seed(0)
            groups = [range(first, first + 2) for first in (0, 2, 4)]
            played = [
                play_episodes(vector, policy, group, deterministic=False, generator=generator) for group in groups
            ]
            return [asdict(summary) for summaries in played for summary in summaries]
        finally:
            vector.close()

    summaries = play_six(SequentialVectorEnv)
    assert [summary["env_steps"] for summary in summaries] == [30] * 6
    np.testing.assert_equal(summaries, play_six(SubprocVectorEnv))
