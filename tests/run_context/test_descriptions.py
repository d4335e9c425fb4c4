"""Descriptions of Python values as YAML."""

from __future__ import annotations

from typing import Any

import pytest

from maze_pl import RunContext
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import RewardScalingWrapper
from maze_pl.run_context.descriptions import Descriptions


def test_stand_ins_say_what_they_stand_for() -> None:
    class Local(RewardScalingWrapper):
        """A class that cannot be imported."""

    described = [Descriptions().of("env", value) for value in (Local, lambda: None, object())]
    texts = [node["init_args"]["description"] for node in described]
    assert texts == ["the class Local", "the function <lambda>", "a object"]


def test_a_wrapper_around_an_environment_is_refused_with_a_remedy() -> None:
    wrapped: Any = RewardScalingWrapper(GymMazeEnv("CartPole-v1"), 0.5)
    with pytest.raises(TypeError, match=r"^wrappers=.*: give its class, a functools.partial of it, or a function"):
        RunContext(algorithm="ppo", wrappers=[wrapped])


def test_a_run_that_needs_trust_names_the_argument(tmp_path: Any) -> None:
    configuration = "{model: {class_path: subprocess.getoutput}, data: {class_path: a.b}}\n"
    (tmp_path / "config.yaml").write_text(configuration, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"if you trust the origin of this run, pass trust=True$"):
        RunContext(run_dir=tmp_path, silent=True).train(1)
