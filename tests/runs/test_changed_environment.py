"""A run that continues in another environment says so; one that continues in its own says nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from gymnasium import spaces

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.runs.changed_environment import tell_changed_environment

LIMIT = {"class_path": "maze_pl.envs.wrappers.TimeLimitWrapper", "init_args": {"max_episode_steps": 9}}
ENV = {
    "class_path": "maze_pl.envs.GymMazeEnv",
    "init_args": {"env": "CartPole-v1", "hours": [4.0, 8.0], "least": float("nan")},
    "dict_kwargs": {"max_episode_steps": 4},
}
CORE = {"class_path": "a.Core", "init_args": {"size": 3}}
PARTS = {"class_path": "a.Env", "init_args": {"core": CORE, "weights": {"a": 1}}}
VALVE = Spec({0: StepSpec(spaces.Dict(x=spaces.Box(-1, 1, (1,))), spaces.Dict(valve=spaces.Box(0, 500, (2,))))})
WIDE = Spec({0: StepSpec(spaces.Dict(x=spaces.Box(-2, 2, (1,))), spaces.Dict(valve=spaces.Box(0, 10, (2,))))})
VALVES = "action 'valve' of sub-step 0 was Box(0.0, 500.0, (2,), float32) and is Box(0.0, 10.0, (2,), float32); "


def config(env: Any, *wrappers: Any) -> dict[str, Any]:
    return {"data": {"class_path": "a.Data", "init_args": {"env": env, "wrappers": [*wrappers]}}}


def changed(part: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    return {**part, "init_args": {**part["init_args"], **arguments}}


@pytest.mark.parametrize(
    ("then", "now", "spec", "differences"),
    [
        (config(ENV, LIMIT), copy.deepcopy(config(ENV, LIMIT)), VALVE, None),
        (config(ENV), config(changed(ENV, new_in_the_code=5)), VALVE, None),
        (config("a.make_env"), config({"class_path": "a.make_env", "init_args": {"size": 5}}), VALVE, None),
        (config(changed(ENV, limit=1)), config(changed(ENV, limit=1.0)), VALVE, None),
        (config(changed(ENV, limit=None)), config(changed(ENV, limit=5)), VALVE, "limit was no value and is 5; "),
        (config(changed(ENV, limit=5)), config(changed(ENV, limit=None)), VALVE, "limit was 5 and is no value; "),
        (config(ENV), config(changed(ENV, hours=[4.0, 8.0, 12.0])), VALVE, "hours.2 was no value and is 12.0; "),
        (config(changed(ENV, hours=[])), config(changed(ENV, hours=[4.0])), VALVE, "hours.0 was no value and is 4.0; "),
        (config(ENV), config({**ENV, "dict_kwargs": {"max_episode_steps": 4, "gravity": 9}}), VALVE, "gravity was no "),
        (config({**ENV, "dict_kwargs": None}), config(ENV), VALVE, "max_episode_steps was no value and is 4; "),
        (config(LIMIT), config({**LIMIT, "dict_kwargs": {"size": 3}}), VALVE, "size was no value and is 3; "),
        (config(PARTS), config(changed(PARTS, core=changed(CORE, seed=1))), VALVE, None),
        (config(PARTS), config(changed(PARTS, weights={"a": 1, "b": 2})), VALVE, "weights.b was no value and is 2; "),
        (None, config(ENV), VALVE, None),
        (config(ENV, LIMIT), config(ENV, changed(LIMIT, max_episode_steps=7)), VALVE, ".max_episode_steps was 9 and"),
        (config(ENV), config({**ENV, "dict_kwargs": {}}), VALVE, "data.env.max_episode_steps was 4 and is no value; "),
        (config(ENV), config(ENV, LIMIT), VALVE, "data.wrappers.0.class_path was no value and is maze_pl.envs"),
        (config("a.one"), config("a.other"), VALVE, "data.env.class_path was a.one and is a.other; "),
        (config(ENV, LIMIT), config(ENV, LIMIT), WIDE, VALVES),
        (config(ENV, LIMIT), config(ENV), WIDE, "observation 'x' of sub-step 0 was "),
    ],
)  # fmt: skip
def test_a_resumed_run_says_that_its_environment_is_another_one(
    then: Any, now: Any, spec: Spec, differences: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    entry: Any = {"spec": VALVE.to_dict()}
    if then is not None:
        entry["config"] = then
    with caplog.at_level("INFO"):
        tell_changed_environment("last.ckpt", entry, now, spec.to_dict())
    told = [one for one in caplog.messages if one.startswith("last.ckpt was written in another environment: ")]
    assert len(told) == (differences is not None)
    if differences is not None:
        assert differences in told[0]
        assert told[0].endswith("; episodes that cannot be continued in the new one begin again")
        assert ("valve" in told[0]) == (spec is WIDE)
