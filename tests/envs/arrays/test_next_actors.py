"""Array environments name the next actor of each environment, and only actors that are declared."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import RewardScalingWrapper
from tests.envs.arrays.yard import YardArrayEnv

N = 3
SCALE = partial(RewardScalingWrapper, scale=0.5)


class ChangedYard(YardArrayEnv):
    """Replaces attributes of its results.

    Args:
        in_reset: Whether also after a reset.
        changes: Attribute -> value.
    """

    def __init__(self, in_reset: bool, **changes: Any) -> None:
        super().__init__()
        self.in_reset = in_reset
        self.changes = changes

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        result = super().reset(which, seeds)
        return self.changed(result) if self.in_reset else result

    def step(self, actions: Any, which: Any) -> ArrayStep:
        return self.changed(super().step(actions, which))

    def changed(self, result: ArrayStep) -> ArrayStep:
        for name, value in self.changes.items():
            setattr(result, name, None if value is None else np.full(self.n_envs, value))
        return result


class ChangedCartPole(CartPoleArrayEnv):
    """Names an actor that it does not have, in its second act."""

    def __init__(self, **changes: int) -> None:
        super().__init__()
        self.changes = changes
        self.n_acts = 0

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        self.n_acts += 1
        for name, value in self.changes.items() if self.n_acts == 2 else ():
            setattr(result, name, np.full(self.n_envs, value))
        return result


FAULTS = [
    ({"next_key": None}, "returned no next_key, but there are sub-steps .'plan', 'work'.; return the position"),
    ({"next_agent": None}, "returned no next_agent, but sub-step 'work' has several agents; return the id"),
    ({"next_key": 2}, "next_key of environment 0 of ChangedYard is 2; declared are 2 sub-steps"),
    ({"next_key": -1}, "next_key of environment 0 of ChangedYard is -1; declared are 2 sub-steps"),
    ({"next_agent": 2}, "next_agent of environment 0 of ChangedYard is 2; expected ids 0 to "),
]


def _play(make_env: Any, wrappers: Any) -> None:
    vector = ArrayVectorEnv(partial(make_wrapped_arrays, make_env, wrappers), N)
    vector.reset()
    for _ in range(3):
        vector.step()


def _play_alone(env: ArrayEnv) -> None:
    played = ArrayMazeEnv(env)
    played.reset(seed=1)
    for _ in range(3):
        space = played.action_space
        space.seed(1)
        played.step(space.sample())


@pytest.mark.parametrize("in_reset", [True, False])
@pytest.mark.parametrize(("changes", "message"), FAULTS)
def test_unknown_actors_are_refused(in_reset: bool, changes: dict[str, Any], message: str) -> None:
    for wrappers in ([], [SCALE]):
        with pytest.raises(EnvContractError, match=message):
            _play(partial(ChangedYard, in_reset, **changes), wrappers)
    with pytest.raises(EnvContractError, match=message):
        _play_alone(ChangedYard(in_reset, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_key": 1}, "next_key of environment 0 of ChangedCartPole is 1; declared are 1 sub-steps"),
        ({"next_agent": 1}, "next_agent of environment 0 of ChangedCartPole is 1; expected ids 0 to 0"),
    ],
)
def test_unknown_actors_of_environments_with_one_actor_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(EnvContractError, match=message):
        _play(partial(ChangedCartPole, **changes), [])
    with pytest.raises(EnvContractError, match=message):
        _play_alone(ChangedCartPole(**changes))


def test_the_only_actor_may_be_named() -> None:
    _play(partial(ChangedCartPole, next_key=0, next_agent=0), [])
    _play_alone(ChangedCartPole(next_key=0, next_agent=0))
