"""Arguments of records from logs, whose mistakes are named: flags, times, ids, tables and rewards of acts."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.records.record_files import SpacesTrajectoryRecord

JOB = spaces.Dict(job=spaces.Box(0, 1, (1,), np.float32))
TOOL = spaces.Dict(tool=spaces.Discrete(3))


def acts(*times: int) -> list[Any]:
    return [(0, 0, time, 1.0, False, {"job": 0.5}, {"tool": 2}) for time in times]


def record(played: Any = None, n_agents: int = 1, **changed: Any) -> SpacesTrajectoryRecord:
    """The record of an episode of three acts."""
    usual: dict[str, Any] = {"episode_id": "an-id", "terminated": False, "truncated": True, "last_env_time": 3}
    usual |= {"last_actor": None, "last_observation": {}}
    usual |= {"spec": Spec({0: StepSpec(JOB, TOOL, n_agents, n_agents)})}
    usual |= {"acts": acts(0, 1, 2) if played is None else played}
    return SpacesTrajectoryRecord.of_acts(**usual | changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"terminated": "False"}, r"episode an-id: terminated='False' must be True or False"),
        ({"truncated": float("nan")}, r"episode an-id: truncated=nan must be True or False"),
        ({"truncated": None}, r"truncated=None must be"),
        ({"truncated": [True]}, r"truncated=\[True\] must be"),
        ({"truncated": 2}, r"truncated=2 must be"),
        ({"last_env_time": "3"}, r"last_env_time is '3', expected numbers of type int64"),
        ({"last_env_time": 3.5}, r"last_env_time has the value 3.5"),
        ({"last_env_time": [3]}, r"last_env_time is \[3\], expected a single number"),
        ({"last_env_time": None}, r"last_env_time is None, expected"),
        ({"episode_id": 5}, r"episode_id=5 must be a text, such as str\(uuid.uuid4\(\)\)"),
        ({"episode_id": uuid.UUID(int=1)}, r"episode_id=UUID\(.*\) must be a text"),
        ({"actor_reward": np.ones(2)}, r"actor_reward has shape \(2,\), expected \(3,\), a number for each act"),
        ({"actor_reward": [None] * 3}, r"actor_reward is \[None, None, None\], expected numbers of type float64"),
        ({"actor_reward": [1.0, [2.0], 3.0]}, r"actor_reward is .*, expected an array of type float64"),
        (
            {"played": pd.DataFrame(acts(0, 1, 2))},
            r"acts is of type DataFrame, expected a list of acts with",
        ),
        ({"played": np.array(acts(0, 1, 2), object)}, r"acts is of type ndarray, expected a list of acts"),
        ({"played": [act[:6] for act in acts(0, 1, 2)]}, r"act 0 is \(0, 0, .*\), expected 7 entries: step key"),
        ({"played": [*acts(0, 1), None]}, r"act 2 is None, expected 7 entries"),
    ],
)
def test_arguments_of_other_types_and_shapes_are_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record(**changed)


def test_numbers_of_any_type_are_stored_in_those_of_records() -> None:
    made = record(
        terminated=np.bool_(False), truncated=np.int8(1), last_env_time=np.int32(3), actor_reward=[1, 2, np.nan]
    )
    assert (made.terminated, made.truncated) == (False, True) and isinstance(made.truncated, bool)
    assert type(made.last_env_time) is int and made.actor_reward is not None
    assert made.actor_reward.dtype == np.float64
    again = SpacesTrajectoryRecord.from_bytes(bytearray(made.to_bytes()))
    np.testing.assert_equal(again.actor_reward, [1.0, 2.0, np.nan])


@pytest.mark.parametrize(
    ("times", "end", "message"),
    [
        ((0, 0, 1), 2, r"episode an-id: acts 0 and 1 are both at environment time 0, but the only agent acts once"),
        ((0, 0, 0), 0, r"acts 0 and 1 are both at environment time 0"),
        ((0, 1, 2), 2, r"last_env_time=2 is the environment time of the last act, .*: pass 3 or more"),
        ((1_700_000_000, 1_700_003_600, 1_700_007_200), 1_700_010_800, r"time of act 0 is 1,700,000,000; times count"),
    ],
)
def test_times_that_do_not_count_the_steps_of_a_single_actor_are_refused(
    times: tuple[int, ...], end: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        record(acts(*times), last_env_time=end)


def test_a_single_actor_may_begin_later_and_skip_steps_and_several_share_a_step() -> None:
    assert record(acts(3, 7, 8), last_env_time=12).env_time.tolist() == [3, 7, 8]
    assert record([*acts(0, 0, 1)], n_agents=2, last_env_time=1).env_time.tolist() == [0, 0, 1]
