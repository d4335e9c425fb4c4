"""Time limits over arrays, against time limits of single episodes."""

from __future__ import annotations

from typing import Any

import pytest

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.arrays import ArrayWrapper, PendulumArrayEnv, TimeLimitArrayWrapper
from maze_pl.envs.cutting_2d import StructuredCutting2DArrayEnvironment, masked_struct_env_factory
from maze_pl.envs.wrappers import TimeLimitWrapper
from tests.envs.arrays.pairs_of_forms import PairOfForms
from tests.envs.cutting_2d.instances import CONSTANT
from tests.structured import hierarchy
from tests.structured.arrays import TabularArrayEnv

TIGHT: dict[str, Any] = {**CONSTANT, "max_pieces_in_inventory": 2}


@pytest.mark.parametrize("limit", [1, 7])
def test_structured_episodes_end_as_single_ones_do(limit: int) -> None:
    arrays = TimeLimitArrayWrapper(StructuredCutting2DArrayEnvironment(**TIGHT), limit)
    pair = PairOfForms(arrays, lambda: TimeLimitWrapper(masked_struct_env_factory(**TIGHT), limit), 3, 1, cut_short=0.0)
    pair.play(60)
    assert pair.n_ended > 6


def test_the_shorter_of_two_limits_counts() -> None:
    for limit in (5, 30):
        arrays = TimeLimitArrayWrapper(TabularArrayEnv(hierarchy), limit)
        pair = PairOfForms(arrays, lambda: TimeLimitWrapper(hierarchy.make_env(), limit), 3, 1)  # noqa: B023
        pair.play(90)
        assert pair.n_ended


def test_flat_episodes_end_as_single_ones_do() -> None:
    arrays = TimeLimitArrayWrapper(PendulumArrayEnv(), 9)
    PairOfForms(arrays, lambda: TimeLimitWrapper(GymMazeEnv("Pendulum-v1"), 9), 3, seed=1, cut_short=0.0).play(40)


def test_saved_times_continue() -> None:
    def make() -> TimeLimitArrayWrapper:
        return TimeLimitArrayWrapper(StructuredCutting2DArrayEnvironment(**TIGHT), 7)

    pair = PairOfForms(make(), lambda: TimeLimitWrapper(masked_struct_env_factory(**TIGHT), 7), 3, 1, cut_short=0.0)
    pair.play(9)
    copied = make()
    copied.allocate(3)
    copied.load_state_dict(pair.arrays.state_dict())
    pair.arrays = copied
    pair.play(20)


def test_everything_else_is_forwarded() -> None:
    env = StructuredCutting2DArrayEnvironment(**TIGHT)
    wrapper = ArrayWrapper(env)
    wrapper.allocate(2)
    assert env.n_envs == wrapper.n_envs == 2
    assert wrapper.array_events is env.array_events
    assert wrapper.kpi_names == env.kpi_names
    assert wrapper.heuristic_policy == env.heuristic_policy
    assert wrapper.action_masks_dict == env.action_masks_dict
    wrapper.close()


def test_what_cannot_be_limited_is_refused() -> None:
    with pytest.raises(ValueError, match="max_episode_steps=0"):
        TimeLimitArrayWrapper(PendulumArrayEnv(), 0)
    with pytest.raises(TypeError, match="TimeLimitArrayWrapper wraps array environments"):
        TimeLimitArrayWrapper(GymMazeEnv("Pendulum-v1"), 3)  # type: ignore[arg-type]
