"""The policy that fills a replay buffer at first: what it gets, and the masks of random ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.datamodules.initial_policy import make_initial_policy
from maze_pl.envs import GymMazeEnv
from tests.datamodules.replay_learner import Picky

SPEC = Spec.of(GymMazeEnv(Picky()), masks={"action": "allowed"})
MASKS = {0: {"action": "allowed"}}


class WithoutMasks(RandomPolicy):
    def __init__(self, action_spaces_dict: Any, bias: float = 0.0) -> None:
        super().__init__(action_spaces_dict)


@pytest.mark.parametrize(
    "maker",
    [
        None,
        RandomPolicy,
        WithoutMasks,
        lambda action_spaces_dict: RandomPolicy(action_spaces_dict),
        partial(RandomPolicy, masks={}),
    ],
)
def test_every_random_policy_has_the_masks(maker: Any) -> None:
    policy = make_initial_policy(maker, SPEC)
    assert isinstance(policy, RandomPolicy) and policy.masks == MASKS


def test_masks_that_a_maker_gives_stay() -> None:
    policy = make_initial_policy(partial(RandomPolicy, masks={0: {"action": "other"}}), SPEC)
    assert isinstance(policy, RandomPolicy) and policy.masks == {0: {"action": "other"}}


def test_a_maker_that_lacks_an_argument_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"cannot make a policy: .*'level'; .* by name: action_spaces_dict, masks, spec"
    ):
        make_initial_policy(lambda level: RandomPolicy(level), SPEC)


def test_an_error_inside_of_a_maker_stays_as_it_is() -> None:
    with pytest.raises(TypeError, match=r"^unsupported operand"):
        make_initial_policy(lambda spec: spec + 1, SPEC)
