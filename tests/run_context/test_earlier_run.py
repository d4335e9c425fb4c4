"""A context with the directory of an earlier run continues it, or starts a new one, as its components say."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl import RunContext
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv, make_gym_maze_env
from maze_pl.envs.wrappers import RewardScalingWrapper, TimeLimitWrapper
from maze_pl.modules import A2C, PPO


def limited(name: str, limit: int = 50) -> Any:
    return TimeLimitWrapper.wrap(GymMazeEnv(name), limit)


def other_class(*_: Any) -> Any:
    return CartPoleArrayEnv()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save_run(**data: Any) -> Path:
    """Write what a run has left whose first epoch has ended."""
    folder = Path("run")
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "last.ckpt").touch()
    content = {"model": {"class_path": "maze_pl.modules.PPO"}, "data": {"init_args": data}}
    (folder / "config.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


ENV = {"class_path": f"{__name__}.limited", "init_args": {"name": "CartPole-v1", "limit": 50}}
WRAPPERS = [
    {
        "class_path": "maze_pl.envs.wrappers.RewardScalingWrapper",
        "init_args": {"scale": 0.5},
    }
]


@pytest.mark.parametrize(
    "components",
    [
        {"env": partial(limited, name="CartPole-v1")},
        {"env": partial(limited, name="CartPole-v1", limit=50)},
        {"env": {"class_path": f"{__name__}.limited", "init_args": {"name": "CartPole-v1"}}},
        {"env": ENV, "wrappers": [partial(RewardScalingWrapper, scale=0.5)]},
    ],
)
def test_the_environment_and_the_wrappers_of_the_run_continue_it(components: Any) -> None:
    run = save_run(env=ENV, wrappers=WRAPPERS)
    context = RunContext(run_dir=run, **components)
    assert context.continues
    assert context.command[:3] == ["fit", "--resume", "run"]


@pytest.mark.parametrize(
    ("components", "other"),
    [
        ({"env": partial(limited, name="CartPole-v1", limit=60)}, "another env"),
        ({"env": partial(limited, name="Acrobot-v1")}, "another env"),
        ({"env": partial(limited, "CartPole-v1")}, "an object as env"),  # which YAML cannot hold
        ({"env": limited}, "another env"),  # without its required argument
        ({"env": limited, "overrides": {"env.name": "Acrobot-v1"}}, "another env"),
        ({"env": "gym_env"}, "another env"),
        ({"env": other_class}, "another env"),
        ({"env": ENV, "wrappers": []}, "other wrappers"),
        ({"env": ENV, "wrappers": [partial(RewardScalingWrapper, scale=0.6)]}, "other wrappers"),
        ({"wrappers": "no_wrappers"}, "other wrappers"),
        ({"env": ENV, "runner": "dev"}, "a runner"),
        ({"env": other_class, "model": "vector_obs"}, "another env and a model"),
    ],
)
def test_other_components_need_an_algorithm_and_no_default_takes_its_place(components: Any, other: str) -> None:
    run = save_run(env=ENV, wrappers=WRAPPERS)
    names = " and ".join(part.split()[-1] for part in other.split(" and "))
    remedy = f"leave {names} out to continue it, or give algorithm to train a new run with its weights"
    fault = f"run_dir=run holds a run that cannot be continued with {other}"
    with pytest.raises(ConfigurationError, match=f"^{fault}: {remedy}$"):
        RunContext(run_dir=run, **components)
    context = RunContext(run_dir=run, algorithm="ppo", **components)
    assert not context.continues
    assert context.command[:3] == ["fit", "--config", "conf_train/ppo"]
    assert context.command[-2:] == ["--warm-start", "run"]


GYM = {"class_path": "maze_pl.envs.make_gym_maze_env", "init_args": {"name": "CartPole-v1"}}


@pytest.mark.parametrize(
    "components",
    [
        {"env": "gym_env"},
        {"env": "gym_env", "overrides": {"env.name": "CartPole-v1"}},
        {"overrides": {"env": "gym_env", "data.env.name": "CartPole-v1", "wrappers": "no_wrappers"}},
        {"env": make_gym_maze_env, "wrappers": "no_wrappers", "overrides": {"env.name": "CartPole-v1"}},
    ],
)
def test_names_and_overrides_are_resolved_before_components_are_compared(components: Any) -> None:
    run = save_run(env=GYM, wrappers=[])
    assert RunContext(run_dir=run, **components).continues
    (run / "config.yaml").write_text(yaml.safe_dump({"data": {"init_args": {"env": ENV, "wrappers": WRAPPERS}}}))
    with pytest.raises(ConfigurationError, match=r"cannot be continued with another env"):
        RunContext(run_dir=run, **components)


def make_limited(limit: int = 50) -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1", max_episode_steps=limit)


def test_the_path_of_an_environment_alone_stands_for_its_default_arguments() -> None:
    path = f"{__name__}.make_limited"
    run = save_run(env=path)
    for same in (make_limited, {"class_path": path, "init_args": {"limit": 50}}):
        assert RunContext(run_dir=run, env=same).continues
    for other in (make_cart, {"class_path": path, "init_args": {"limit": 9}}):
        with pytest.raises(ConfigurationError, match=r"cannot be continued with another env"):
            RunContext(run_dir=run, env=other)


class Mazes:
    @staticmethod
    def small(limit: int = 50) -> GymMazeEnv:
        return make_limited(limit)


@pytest.mark.parametrize("name", ["Mazes.small", "make_limited"])
def test_arguments_without_a_path_are_not_the_environment_of_the_run(name: str) -> None:
    run = save_run(env=f"{__name__}.{name}")
    with pytest.raises(ConfigurationError, match=r"cannot be continued with another env"):
        RunContext(run_dir=run, env={"limit": 50})
    same = {"class_path": f"{__name__}.{name}", "init_args": {"limit": 50}}
    assert RunContext(run_dir=run, env=same).continues


def given(name: str) -> dict[str, Any]:
    """What stands for an object in the configuration of a run."""
    return {"class_path": "maze_pl.run_context.given.anything", "init_args": {"name": name, "description": "a thing"}}


def test_only_objects_take_the_places_of_objects() -> None:
    run = save_run(env=given("env"), engine=given("runner"))
    assert RunContext(run_dir=run, env=lambda: GymMazeEnv("CartPole-v1")).continues
    for components, other in (({"env": "gym_env"}, "another env"), ({"runner": "dev"}, "a runner")):
        with pytest.raises(ConfigurationError, match=f"cannot be continued with {other}: leave"):
            RunContext(run_dir=run, **components)


def test_references_are_named_as_what_cannot_be_compared() -> None:
    run = save_run(env=ENV, wrappers=WRAPPERS)
    env = {"class_path": f"{__name__}.limited", "init_args": {"name": "${data.n_envs}"}}
    with pytest.raises(ConfigurationError, match=r"with references in env, which cannot be compared: leave env out"):
        RunContext(run_dir=run, env=env)
    assert "--warm-start" in RunContext(run_dir=run, algorithm="ppo", env=env).command


def sized(size: int, make: Callable[[], Any]) -> Any:
    return TimeLimitWrapper.wrap(make(), size)


def make_cart() -> Any:
    return GymMazeEnv("CartPole-v1")


@pytest.mark.parametrize(
    ("components", "is_same"),
    [
        ({"env": partial(sized, size=5, make=lambda: make_cart())}, True),
        ({"env": partial(sized, size=5), "overrides": {"env.make": lambda: make_cart()}}, True),
        ({"env": partial(sized, size=6, make=lambda: make_cart())}, False),
        ({"env": partial(sized, size=5, make=make_cart)}, False),
        ({"env": lambda: make_cart()}, False),
        ({"wrappers": [partial(RewardScalingWrapper, scale=0.5), lambda env: env]}, True),
        ({"wrappers": [partial(RewardScalingWrapper, scale=0.6), lambda env: env]}, False),
        ({"wrappers": [lambda env: env, partial(RewardScalingWrapper, scale=0.5)]}, False),
    ],
)
def test_only_objects_are_left_out_of_the_comparison(components: Any, is_same: bool) -> None:
    env = {"class_path": f"{__name__}.sized", "init_args": {"size": 5, "make": given("env.make")}}
    run = save_run(env=env, wrappers=[*WRAPPERS, given("wrappers.1")])
    if is_same:
        assert RunContext(run_dir=run, **components).continues
    else:
        with pytest.raises(ConfigurationError, match=r"cannot be continued with (another env|other wrappers): leave"):
            RunContext(run_dir=run, **components)


def test_an_object_in_an_override_takes_the_place_of_one() -> None:
    overrides = {"algorithm.lr": lambda progress: 1e-3}
    run = save_run(env=GYM)
    model = {"class_path": "maze_pl.modules.PPO", "init_args": {"lr": given("algorithm.lr")}}
    content = {"model": model, "data": {"init_args": {"env": GYM}}}
    (run / "config.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert RunContext(run_dir=run, algorithm="ppo", overrides=overrides).continues
    assert not RunContext(run_dir=run, algorithm="ppo").continues
    for other in ("a2c", A2C):
        context = RunContext(run_dir=run, algorithm=other, overrides=overrides)
        assert context.command[-2:] == ["--warm-start", "run"]
    assert RunContext(run_dir=run, algorithm=PPO, overrides=overrides).continues


def test_a_run_that_has_failed_in_its_first_epoch_is_written_again_with_the_default_algorithm() -> None:
    run = save_run(env=ENV)
    (run / "checkpoints" / "last.ckpt").unlink()
    context = RunContext(run_dir=run, env=partial(limited, name="CartPole-v1"))
    assert context.command[:3] == ["fit", "--config", "conf_train/es"]
    assert context.command[-2:] == ["--run_dir", "run"]


def test_training_with_the_arguments_that_have_started_the_run_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maze_pl.run_context.run_context.run_command", lambda *_, **__: None)
    arguments: dict[str, Any] = {"env": make_gym_maze_env, "overrides": {"env.name": "CartPole-v1"}, "silent": True}
    first = RunContext(run_dir="run", algorithm="ppo", **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first.train(2)
    run = save_run(env=ENV)
    command = shlex.join(["maze-pl", *first.command, "--trainer.max_epochs", "2"])
    (run / "command.txt").write_text(f"{command}\n", encoding="utf-8")
    again = RunContext(run_dir="run", algorithm="ppo", **arguments)
    remedy = r"RunContext\(run_dir='run'\) continues it"
    with pytest.warns(UserWarning, match=f"^run holds a run of the same arguments: a new one .* outputs; {remedy}"):
        again.train(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RunContext(run_dir="run", algorithm="a2c", **arguments).train(2)
