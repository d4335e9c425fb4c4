"""Environments and wrappers as callables and configurations, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from gymnasium import spaces

from maze_pl import AgentDeployment
from maze_pl.agents import DummyCartPolePolicy
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import RewardScalingWrapper, TimeLimitWrapper
from maze_pl.runs.rollout import rollout

CART_POLE: dict[str, Any] = {"class_path": "maze_pl.envs.GymMazeEnv", "init_args": {"env": "CartPole-v1"}}
LIMIT = "maze_pl.envs.wrappers.TimeLimitWrapper"
FIVE = {"class_path": LIMIT, "init_args": {"max_episode_steps": 5}}
ACCEPTED = "a class path, or a dict with class_path and init_args"


def cart_pole() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


def limited(env: Any) -> TimeLimitWrapper:
    return TimeLimitWrapper(env, max_episode_steps=5)


@pytest.mark.parametrize(
    ("env", "wrappers"),
    [
        (cart_pole, [FIVE]),
        (cart_pole, FIVE),
        (cart_pole, {LIMIT: {"max_episode_steps": 5}}),
        (cart_pole, {TimeLimitWrapper: {"max_episode_steps": 5}}),
        (cart_pole, {"_target_": LIMIT, "max_episode_steps": 5}),
        (cart_pole, [{"_target_": LIMIT, "max_episode_steps": 5}]),
        (cart_pole, [{"_target_": TimeLimitWrapper, "max_episode_steps": 5}]),
        (cart_pole, {"class_path": TimeLimitWrapper, "init_args": {"max_episode_steps": 5}}),
        ({"_target_": GymMazeEnv, "env": "CartPole-v1"}, FIVE),
        ({"_target_": f"{__name__}.cart_pole"}, FIVE),
        (cart_pole, [f"{__name__}.limited"]),
        (cart_pole, f"{__name__}.limited"),
        (cart_pole, limited),
        (cart_pole, (partial(RewardScalingWrapper, scale=1.0), FIVE)),
        (CART_POLE, [FIVE]),
        (f"{__name__}.cart_pole", [limited]),
    ],
)
def test_environments_and_wrappers_are_callables_or_configurations(env: Any, wrappers: Any) -> None:
    (trajectory,) = rollout(env, "heuristic", wrappers=wrappers)
    assert trajectory.summary.env_steps == 5
    AgentDeployment(DummyCartPolePolicy, env, wrappers=wrappers).close()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (7, f"'7' of type int; expected .*, {ACCEPTED}"),
        ("TimeLimit", f"'TimeLimit' is not a dotted path .*; expected .*, {ACCEPTED}"),
        ("maze_pl.envs.Nothing", f"maze_pl.envs has nothing named Nothing; expected .*, {ACCEPTED}"),
        ({"env": "CartPole-v1"}, "={'env': 'CartPole-v1'} names no class: write class_path with a dotted path"),
        ({"class_path": limited}, "names no class: write class_path with a dotted path"),
        ({"class_path": LIMIT, "init_args": 5}, f"arguments of {LIMIT} are '5' of type int; expected a dict"),
        ({"class_path": LIMIT, "init_args": []}, f"arguments of {LIMIT} are a list of 0 values; expected a dict"),
        ({"class_path": LIMIT, "dict_kwargs": 3}, f"arguments of {LIMIT} are '3' of type int; expected a dict"),
        (
            {"class_path": LIMIT, "n": 5},
            rf"\['n'\] stand next to the class path {LIMIT}: write arguments below init_args",
        ),
    ],
)
@pytest.mark.parametrize("argument", ["env", "wrappers"])
def test_anything_else_is_refused_with_the_accepted_forms(argument: str, part: Any, message: str) -> None:
    refused = (ImportError, TypeError, ValueError)
    options: dict[str, Any] = {"env": cart_pole, argument: [part] if argument == "wrappers" else part}
    name = "env" if argument == "env" else r"wrappers\[0\]"
    with pytest.raises(refused, match=f"{name}.*{message}"):
        rollout(**options)
    with pytest.raises(refused, match=f"{name}.*{message}"):
        AgentDeployment(DummyCartPolePolicy, **options)


class Limited(TimeLimitWrapper):
    """Ends episodes after as many steps as a policy has options."""

    def __init__(self, env: Any, options: spaces.Discrete) -> None:
        super().__init__(env, max_episode_steps=int(options.n))


FIVE_OPTIONS = {"class_path": "gymnasium.spaces.Discrete", "init_args": {"n": 5}}


@pytest.mark.parametrize("kind", [Limited, f"{__name__}.Limited"])
def test_configurations_in_the_arguments_of_a_class_become_objects(kind: Any) -> None:
    for wrapper in ({"class_path": kind, "init_args": {"options": FIVE_OPTIONS}}, {kind: {"options": FIVE_OPTIONS}}):
        (trajectory,) = rollout(cart_pole, "heuristic", wrappers=wrapper)
        assert trajectory.summary.env_steps == 5


def test_configurations_in_the_arguments_of_a_local_class_are_refused() -> None:
    class Local(Limited):
        pass

    node = {"class_path": Local, "init_args": {"options": FIVE_OPTIONS}}
    with pytest.raises(ValueError, match=r"wrappers\[0\]: .*Local cannot be imported, but its arguments are config"):
        rollout(cart_pole, wrappers=node)
    with pytest.raises(ValueError, match=r"wrappers\[0\]: .*Local cannot be imported, but its arguments are config"):
        rollout(cart_pole, wrappers={Local: {"options": FIVE_OPTIONS}})
    node["init_args"] = {"options": spaces.Discrete(5)}
    (trajectory,) = rollout(cart_pole, "heuristic", wrappers=node)
    assert trajectory.summary.env_steps == 5


def test_a_mapping_names_class_paths() -> None:
    with pytest.raises(ImportError, match=r"wrappers\[0\]: 'TimeLimitWrapper' is not a dotted path"):
        rollout(cart_pole, wrappers={"TimeLimitWrapper": {"max_episode_steps": 5}})
    with pytest.raises(TypeError, match=rf"wrappers\[0\]: the arguments of {LIMIT} are '5' of type int"):
        rollout(cart_pole, wrappers={LIMIT: 5})
    with pytest.raises(TypeError, match=r"wrappers\[0\]: the arguments of maze_pl.*TimeLimitWrapper are a list of 1"):
        rollout(cart_pole, wrappers={TimeLimitWrapper: [1]})
