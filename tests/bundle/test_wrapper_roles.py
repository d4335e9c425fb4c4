"""What of a stack of wrappers a bundle contains."""

from __future__ import annotations

from typing import Any

from maze_pl.bundle.wrapper_roles import wrapper_roles
from maze_pl.envs import GymMazeEnv, ObservationWrapper
from maze_pl.envs import wrappers as ours

STACK = {"observation": "observation", "stack_steps": 2}


class Own(ObservationWrapper):
    """A wrapper of a user."""

    def observation(self, observation: Any) -> Any:
        return observation


def included(env: Any) -> list[str]:
    return [type(wrapper).__name__ for wrapper in wrapper_roles(ours.LogStatsWrapper(env)).included]


def test_arithmetic_wrappers_are_included_and_others_named() -> None:
    env = ours.ObservationStackWrapper(GymMazeEnv("Pendulum-v1"), [STACK])
    env = ours.TimeLimitWrapper(ours.DiscretizeActionsWrapper(env, {"action": {"num_bins": 3}}), 50)
    roles = wrapper_roles(ours.LogStatsWrapper(ours.RewardScalingWrapper(env, 0.1)))
    assert [type(one).__name__ for one in roles.included] == ["DiscretizeActionsWrapper", "ObservationStackWrapper"]
    assert [(role.name.rpartition(".")[2], role.is_included) for role in roles.roles] == [
        ("ObservationStackWrapper", True),
        ("DiscretizeActionsWrapper", True),
        ("TimeLimitWrapper", False),
        ("RewardScalingWrapper", False),
    ]
    assert isinstance(roles.outside, GymMazeEnv) and type(roles.outside) is GymMazeEnv


def test_all_inside_of_a_users_wrapper_is_the_callers() -> None:
    env = ours.SortedSpacesWrapper(Own(ours.ObservationStackWrapper(GymMazeEnv("CartPole-v1"), [STACK])))
    roles = wrapper_roles(ours.LogStatsWrapper(env))
    assert [type(one).__name__ for one in roles.included] == ["SortedSpacesWrapper"]
    assert type(roles.outside) is Own
    assert "its code is not known to be arithmetic" in roles.roles[1].note
    assert "it is inside of" in roles.roles[0].note


def test_stacks_that_see_skipped_steps_are_the_callers() -> None:
    inside = ours.StepSkipWrapper(ours.ObservationStackWrapper(GymMazeEnv("CartPole-v1"), [STACK]), 2)
    assert included(inside) == []
    outside = ours.ObservationStackWrapper(ours.StepSkipWrapper(GymMazeEnv("CartPole-v1"), 2), [STACK])
    assert included(outside) == ["ObservationStackWrapper"]


def test_without_arithmetic_wrappers_a_bundle_sees_the_outermost_observations() -> None:
    env = ours.TimeLimitWrapper(GymMazeEnv("CartPole-v1"), 5)
    roles = wrapper_roles(ours.LogStatsWrapper(env))
    assert roles.outside is env
