"""A context with the directory of an earlier run continues it, or starts a new one, as its components say."""

from __future__ import annotations

import shlex
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl import RunContext
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv, make_gym_maze_env
from maze_pl.envs.wrappers import RewardScalingWrapper, TimeLimitWrapper


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
        ({"env": partial(limited, name="CartPole-v1", limit=60)}, "env"),
        ({"env": partial(limited, name="Acrobot-v1")}, "env"),
        ({"env": partial(limited, "CartPole-v1")}, "env"),  # which YAML cannot hold
        ({"env": limited}, "env"),  # without its required argument
        ({"env": other_class}, "env"),
        ({"env": ENV, "wrappers": []}, "wrappers"),
        ({"env": ENV, "wrappers": [partial(RewardScalingWrapper, scale=0.6)]}, "wrappers"),
        ({"env": other_class, "model": "vector_obs"}, "env and model"),
    ],
)
def test_other_components_need_an_algorithm_and_no_default_takes_its_place(components: Any, other: str) -> None:
    run = save_run(env=ENV, wrappers=WRAPPERS)
    remedy = f"leave {other} out to continue it, or give algorithm to train a new run with its weights"
    with pytest.raises(ConfigurationError, match=f"^run_dir=run holds a run with another {other}: {remedy}$"):
        RunContext(run_dir=run, **components)
    context = RunContext(run_dir=run, algorithm="ppo", **components)
    assert not context.continues
    assert context.command[:3] == ["fit", "--config", "conf_train/ppo"]
    assert context.command[-2:] == ["--warm-start", "run"]


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
