from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit
from jsonargparse import ArgumentParser

from maze_pl.config.factories import Factory, with_factories


class Layout:
    def __init__(self, width: int = 3) -> None:
        self.width = width


class RoomEnv(gymnasium.Env[Any, Any]):
    def __init__(self, layout: Layout, goal: int = 1) -> None:
        self.layout, self.goal = layout, goal


def make_room(layout: Layout, goal: int = 1, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    env = RoomEnv(layout, goal)
    env.metadata = kwargs
    return env


class Data:
    def __init__(
        self,
        env: Callable[[], gymnasium.Env[Any, Any]],
        wrappers: list[Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]] | None = None,
        layouts: dict[str, Layout] | None = None,
    ) -> None:
        self.env, self.wrappers, self.layouts = env, wrappers, layouts


def instantiate(config: dict[str, Any]) -> Any:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Data, "data", fail_untyped=False)
    written = {"data": {"class_path": f"{__name__}.Data", "init_args": config}}
    parsed = parser.parse_object(copy.deepcopy(written))
    return parser.instantiate(with_factories(parsed, written)).data


@pytest.mark.parametrize("maker", ["make_room", "RoomEnv"])
def test_environments_are_made_when_asked_for_each_with_its_own_parts(maker: str) -> None:
    layout = {"class_path": f"{__name__}.Layout", "init_args": {"width": 7}}
    data = instantiate({"env": {"class_path": f"{__name__}.{maker}", "init_args": {"layout": layout, "goal": 2}}})
    factory = pickle.loads(pickle.dumps(data.env))
    first, second = factory(), factory()
    assert (first.layout.width, first.goal) == (7, 2)
    assert first is not second
    assert first.layout is not second.layout


def test_wrappers_get_the_environment_first_and_their_configuration_after_it() -> None:
    data = instantiate(
        {
            "env": {"class_path": "gymnasium.make", "init_args": {"id": "CartPole-v1"}},
            "wrappers": [{"class_path": "gymnasium.wrappers.TimeLimit", "init_args": {"max_episode_steps": 5}}],
        }
    )
    env = data.wrappers[0](data.env())
    assert isinstance(env, TimeLimit)
    env.reset(seed=0)
    assert [env.step(time % 2)[3] for time in range(5)] == [False] * 4 + [True]


def test_other_objects_are_instantiated_at_once() -> None:
    data = instantiate(
        {
            "env": {
                "class_path": f"{__name__}.make_room",
                "init_args": {"layout": {"class_path": f"{__name__}.Layout"}},
            },
            "layouts": {"small": {"class_path": f"{__name__}.Layout", "init_args": {"width": 1}}},
        }
    )
    assert isinstance(data.layouts["small"], Layout)


def test_arguments_of_a_call_take_the_place_of_configured_ones() -> None:
    layout = Layout(9)
    env = Factory(f"{__name__}.make_room", {"layout": {"class_path": "nowhere.Layout"}, "goal": 2}, {"more": 1})(
        layout=layout
    )
    assert env.layout is layout
    assert env.goal == 2
    assert env.metadata == {"more": 1}


def test_positional_arguments_take_the_place_of_configured_texts_and_further_arguments() -> None:
    layout = Layout(9)
    env = Factory(f"{__name__}.make_room", {"goal": 2}, {"layout": "007", "more": 1})(layout)
    assert (env.layout, env.goal, env.metadata) == (layout, 2, {"more": 1})


def make_untyped(layout, goal=None, *, name=3) -> Any:  # type: ignore[no-untyped-def]
    return layout, goal, name


def test_an_argument_that_is_required_and_has_no_type_is_not_none() -> None:
    path = f"{__name__}.make_untyped"
    assert Factory(path, {"layout": None})() == (None, None, 3)
    assert Factory(path)(layout=1) == (1, None, 3)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'layout'"):
        Factory(path, {"goal": 2})()


def make_typed(horizon: int | None, goal: int | None = None) -> Any:
    return horizon, goal


class UntypedEnv(gymnasium.Env[Any, Any]):
    def __init__(self, layout, goal=None) -> None:  # type: ignore[no-untyped-def]
        self.layout, self.goal = layout, goal


def make_other(make: Callable[[], gymnasium.Env[Any, Any]]) -> gymnasium.Env[Any, Any]:
    return make()


@pytest.mark.parametrize("maker", ["make_untyped", "UntypedEnv"])
def test_environments_of_a_run_get_none_only_where_it_is_written_or_declared(maker: str) -> None:
    path = f"{__name__}.{maker}"
    for env in ({"class_path": path, "init_args": {"goal": 2}}, {"class_path": path}):
        with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'layout'"):
            instantiate({"env": env}).env()
    instantiate({"env": {"class_path": path, "init_args": {"layout": None}}}).env()
    assert instantiate({"env": {"class_path": f"{__name__}.make_typed"}}).env() == (None, None)
    assert Factory(f"{__name__}.make_typed")() == (None, None)


def test_environments_within_environments_miss_arguments_that_nothing_sets() -> None:
    env = {"class_path": f"{__name__}.UntypedEnv", "init_args": {"layout": 1}}
    assert Factory(f"{__name__}.make_other", {"make": env})().layout == 1
    env["init_args"] = {"goal": 2}
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'layout'"):
        Factory(f"{__name__}.make_other", {"make": env})()


def test_a_factory_is_shown_as_a_call() -> None:
    node = {"class_path": "rooms.Room", "init_args": {"size": 3}, "dict_kwargs": {"color": "red"}}
    assert repr(Factory.of(node)) == "rooms.Room(size=3, color='red')"
