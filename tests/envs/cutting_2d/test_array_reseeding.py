"""Reseeded copies of cutting environments in arrays: orders that were not seen are drawn again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.cutting_2d import (
    Cutting2DArrayEnvironment,
    MixedPeriodicDemand,
    StructuredCutting2DArrayEnvironment,
    UniformDemand,
    maze_env_factory,
    struct_env_factory,
)
from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment

DEMANDS: dict[str, Any] = {"independent": UniformDemand((6, 6)), "periodic": MixedPeriodicDemand(2, 6, True)}


def orders_of(env: Any, n_steps: int) -> list[list[float]]:
    """The orders of further steps."""
    found = []
    while len(found) < n_steps:
        key = env.actor_id().step_key
        space = env.action_spaces_dict[key]
        observation, *_ = env.step({head: 0 for head in space.spaces})
        if env.context.env_step_incremented:
            found.append(observation["ordered_piece"].tolist())
    return found


FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "flat": (Cutting2DArrayEnvironment, maze_env_factory),
    "structured": (lambda *args: StructuredCutting2DArrayEnvironment(*args, masked=False), struct_env_factory),
    "tensors": (StructuredCutting2DTensorEnvironment, None),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("n_steps", [3, 9])
def test_orders_that_were_not_seen_are_drawn_again(form: str, demand: str, n_steps: int) -> None:
    make, make_single = FORMS[form]
    arguments = 20, (10, 10), DEMANDS[demand]
    env, copy = ArrayMazeEnv(make(*arguments)), ArrayMazeEnv(make(*arguments))
    for one in (env, copy):
        one.reset(seed=5)
    orders_of(env, n_steps)
    copy.clone_from(env)
    copy.reseed(77)
    shown = env.observation_conversion.maze_to_space(env.get_maze_state())["ordered_piece"]
    np.testing.assert_array_equal(
        copy.observation_conversion.maze_to_space(copy.get_maze_state())["ordered_piece"], shown
    )
    future, other = orders_of(env, 14), orders_of(copy, 14)
    is_known = demand == "periodic" and n_steps > 6  # the whole period was seen
    assert (other == future) == is_known
    if demand == "periodic":
        assert other[6:12] == other[:6]
    if make_single is not None:
        single = make_single(*arguments)
        single.reset(seed=5)
        orders_of(single, n_steps)
        single.reseed(77)
        assert other == orders_of(single, 14)
