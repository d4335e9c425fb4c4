"""A run that continues in another environment says so."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces

from maze_pl.config.factories import Factory
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.runs.changed_environment import tell_changed_environment

LIMIT = {"class_path": "maze_pl.envs.wrappers.TimeLimitWrapper", "init_args": {"max_episode_steps": 9}}
ENV = {
    "class_path": "maze_pl.envs.GymMazeEnv",
    "init_args": {"env": "CartPole-v1"},
    "dict_kwargs": {"max_episode_steps": 4},
}
CONFIG = {"data": {"class_path": "a.Data", "init_args": {"env": ENV, "wrappers": [LIMIT]}}}
LONGER = {**LIMIT, "init_args": {"max_episode_steps": 7}}
VALVE = Spec({0: StepSpec(spaces.Dict(x=spaces.Box(-1, 1, (1,))), spaces.Dict(valve=spaces.Box(0, 500, (2,))))})
WIDE = Spec({0: StepSpec(spaces.Dict(x=spaces.Box(-2, 2, (1,))), spaces.Dict(valve=spaces.Box(0, 10, (2,))))})
VALVES = "action 'valve' of sub-step 0 was Box(0.0, 500.0, (2,), float32) and is Box(0.0, 10.0, (2,), float32); "


@pytest.mark.parametrize(
    ("env", "wrappers", "spec", "differences"),
    [
        (ENV, [LIMIT], VALVE, None),
        ("a.make_env", None, VALVE, None),
        (ENV, [LONGER], VALVE, "data.wrappers.0.max_episode_steps was 9 and is 7; "),
        ({**ENV, "dict_kwargs": {}}, [LIMIT], VALVE, "data.env.max_episode_steps was 4 and is no value; "),
        (ENV, [LIMIT], WIDE, VALVES),
        (ENV, [], WIDE, "observation 'x' of sub-step 0 was "),
    ],
)
def test_a_resumed_run_says_that_its_environment_is_another_one(
    env: Any, wrappers: Any, spec: Spec, differences: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    entry: Any = {"config": CONFIG, "spec": VALVE.to_dict()}
    makers = None if wrappers is None else [Factory.of(one) for one in wrappers]
    options = {"env": (lambda: None) if isinstance(env, str) else Factory.of(env), "wrappers": makers}
    with caplog.at_level("INFO"):
        tell_changed_environment("last.ckpt", entry, options, spec.to_dict())
    told = [one for one in caplog.messages if one.startswith("last.ckpt was written in another environment: ")]
    assert len(told) == (differences is not None)
    if differences is not None:
        assert differences in told[0]
        assert told[0].endswith("; episodes that cannot be continued in the new one begin again")
        assert ("valve" in told[0]) == (spec is WIDE)
        assert ("observation" in told[0]) == (wrappers == []), "without other options they may follow statistics"
