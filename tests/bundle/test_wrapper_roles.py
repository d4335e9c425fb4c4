"""What of a stack of wrappers a bundle contains."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces

from maze_pl.bundle.wrapper_roles import wrapper_roles
from maze_pl.envs import GymMazeEnv, ObservationWrapper, RewardWrapper
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


def test_notes_have_the_numbers_of_the_wrappers() -> None:
    env = ours.TimeLimitWrapper(GymMazeEnv("Pendulum-v1"), 50)
    noop = {0: {"action": [0.0]}}
    env = ours.StepSkipWrapper(ours.StepSkipWrapper(env, 3), 4, skip_mode="noop", noop_actions=noop)
    roles = wrapper_roles(ours.LogStatsWrapper(env)).roles
    assert [role.note for role in roles] == [
        "end episodes after 50 steps",
        "ask the policy once in 3 steps, and repeat its action in the others",
        "ask the policy once in 4 steps, and do nothing in the others",
    ]


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


class Halved(RewardWrapper):
    """A wrapper of a user that changes rewards only."""

    def reward(self, reward: float) -> float:
        return reward / 2


class Shifted(Halved):
    """Also changes the first observation."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = self.env.reset(seed=seed, options=options)
        return {"observation": observation["observation"] + 1}, info


class Renamed(Halved):
    """Also declares other observations."""

    @property
    def observation_spaces_dict(self) -> Any:
        inner = super().observation_spaces_dict
        return {key: spaces.Dict({"other": space["observation"]}) for key, space in inner.items()}


class Masked(Halved):
    """Also declares masks."""

    @property
    def action_masks_dict(self) -> Any:
        return {0: {"action": "mask"}}


class Widened(Halved):
    """Also changes the actions, in its constructor."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._action_spaces = {0: spaces.Dict({"action": spaces.Discrete(3)})}


class Parted(Halved):
    """Also changes actions."""

    def step_in_parts(self, action: Any) -> Any:
        return (yield {"action": 1 - action["action"]})


def test_wrappers_of_users_that_change_rewards_only_are_left_out() -> None:
    env = ours.SortedSpacesWrapper(Halved(ours.ObservationStackWrapper(GymMazeEnv("CartPole-v1"), [STACK])))
    assert included(env) == ["SortedSpacesWrapper", "ObservationStackWrapper"]


@pytest.mark.parametrize("kind", [Shifted, Renamed, Masked, Widened, Parted])
def test_wrappers_that_also_change_something_else_are_the_callers(kind: Any) -> None:
    roles = wrapper_roles(ours.LogStatsWrapper(kind(GymMazeEnv("CartPole-v1"))))
    assert [role.note for role in roles.roles] == ["its code is not known to be arithmetic"]
    assert included(ours.SortedSpacesWrapper(kind(GymMazeEnv("CartPole-v1")))) == ["SortedSpacesWrapper"]
