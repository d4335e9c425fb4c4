"""Episodes from logs: what fits is stored as it is, and the rest is refused with its name, value and act."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.records.record_files import SpacesTrajectoryRecord

PICK = StepSpec(
    spaces.Dict(bays=spaces.Box(0, 1, (2, 3), np.float32), mask=spaces.MultiBinary(4)),
    spaces.Dict(bay=spaces.Discrete(4)),
    masks={"bay": "mask"},
)
TOOL = StepSpec(spaces.Dict(job=spaces.Box(0, 1, (1,), np.float32)), spaces.Dict(tool=spaces.Discrete(3)))
SPEC = Spec({"pick": PICK, "tool": TOOL})
SEEN = {"bays": [[0, 1, 0], [0, 0, 1]], "mask": [1, 1, 0, 1]}
KEY, AGENT, TIME, REWARD, DONE, OBSERVATION, ACTION = range(7)


def acts(n: int = 2, changed: dict[tuple[int, int], Any] | None = None) -> list[Any]:
    """Both sub-steps of n environment steps, with changes by act and place in it."""
    made: list[Any] = []
    for time in range(n):
        made.append(("pick", 0, time, 0.0, False, SEEN, {"bay": 3}))
        made.append(("tool", 0, time, 1.0, False, {"job": 0.5}, {"tool": 2}))
    for (act, place), value in (changed or {}).items():
        made[act] = (*made[act][:place], value, *made[act][place + 1 :])
    return made


def record(changed: dict[tuple[int, int], Any] | None = None, **end: Any) -> SpacesTrajectoryRecord:
    usual = {"terminated": True, "truncated": False, "last_env_time": 2, "last_actor": None, "last_observation": {}}
    return SpacesTrajectoryRecord.of_acts("an-id", SPEC, acts(changed=changed), **usual | end)


def cut(changed: dict[tuple[int, int], Any] | None = None, **end: Any) -> SpacesTrajectoryRecord:
    usual = {"terminated": False, "truncated": True, "last_actor": ("pick", 0), "last_observation": SEEN}
    return record(changed, **usual | end)


def test_numbers_are_stored_in_the_types_of_their_spaces() -> None:
    made = record({(0, ACTION): {"bay": 1.0}, (0, TIME): 0.0, (1, OBSERVATION): {"job": [0.25]}})
    assert made.action["pick"]["bay"].tolist() == [1, 3] and made.action["pick"]["bay"].dtype == np.int64
    assert made.observation["pick"]["mask"].dtype == np.int8 and made.observation["pick"]["bays"].shape == (2, 2, 3)
    assert made.observation["tool"]["job"].tolist() == [[0.25], [0.5]]
    assert made.env_time.tolist() == [0, 0, 1, 1] and made.key_index.tolist() == [0, 1, 0, 1]


def test_the_actor_of_a_truncated_episode_may_be_a_pair() -> None:
    made = cut()
    assert made.last_actor == ActorID("pick", 0) and isinstance(made.last_actor, ActorID)
    assert made.last_observation["bays"].dtype == np.float32
    again = SpacesTrajectoryRecord.from_bytes(bytearray(made.to_bytes()))
    np.testing.assert_equal(again.last_observation, made.last_observation)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (ACTION, {"bay": 1.7}, r"'bay' in the action of sub-step 'pick' in act 2 has the value 1.7, .* whole numbers"),
        (ACTION, {"bay": float("nan")}, "'bay' in the action of sub-step 'pick' in act 2 has the value nan"),
        (ACTION, {"bay": "1"}, "in act 2 is '1', expected numbers of type int64"),
        (ACTION, {"bay": None}, "in act 2 is None, expected numbers of type int64"),
        (ACTION, {"bay": [1, 2]}, r"in act 2 has shape \(2,\), expected \(\)"),
        (ACTION, {"tool": 1}, r"the action of sub-step 'pick' in act 2 lacks \['bay'\]; it has \['tool'\]"),
        (OBSERVATION, {**SEEN, "mask": [0.9, 0.5, 1, 0]}, "'mask' in the observation .* act 2 has the value 0.9"),
        (OBSERVATION, {**SEEN, "mask": [300, 0, 1, 0]}, "act 2 has the value 300, which its type int8 cannot hold"),
        (OBSERVATION, {"mask": SEEN["mask"]}, r"act 2 lacks \['bays'\]; it has \['mask'\]"),
        (OBSERVATION, {**SEEN, "bays": np.zeros((3, 2))}, r"act 2 has shape \(3, 2\), expected \(2, 3\)"),
        (OBSERVATION, {**SEEN, "bays": [[0, 1], [0]]}, r"act 2 is \[\[0, 1\], \[0\]\], expected an array"),
        (KEY, "Pick", r"act 2 is of sub-step 'Pick'; the sub-steps are \['pick', 'tool'\]"),
        (AGENT, 0.5, "the agent id of act 2 has the value 0.5"),
        (TIME, 0.9, "the environment time of act 2 has the value 0.9"),
        (TIME, "1", r"the environment time of act 2 is '1', expected numbers of type int64"),
        (TIME, [1], r"the environment time of act 2 is \[1\], expected a single number"),
        (TIME, 5, r"its environment times, 0 to 2, are not in ascending order"),
        (AGENT, 1, r"episode an-id: its agent ids \[1\] are out of range"),
        (DONE, "False", r"actor_done of act 2 is 'False', expected numbers of type bool"),
        (REWARD, float("nan"), "the reward of act 2 is nan, expected a finite number"),
        (REWARD, "1.0", "the reward of act 2 is '1.0', expected numbers of type float64"),
        (REWARD, None, "the reward of act 2 is None, expected numbers of type float64"),
        (ACTION, {"bay": 4}, r"'bay' in the action of sub-step 'pick' in act 2 is 4, which is not in Discrete\(4\)"),
        (ACTION, {"bay": -1}, "'bay' .* in act 2 is -1, which is not in"),
        (ACTION, 3, r"the action of sub-step 'pick' in act 2 is 3, expected a dict with \['bay'\]"),
        (OBSERVATION, {**SEEN, "mask": [1, 1, 2, 1]}, r"act 2 is \[1, 1, 2, 1\], which is not in MultiBinary\(4\)"),
        (
            OBSERVATION,
            {**SEEN, "bays": [[0, 1, 0], [0, np.inf, 1]]},
            r"act 2 is .*inf.*, which is not in Box\(0.0, 1.0",
        ),
        (
            OBSERVATION,
            np.zeros((2, 3)),
            r"the observation .* act 2 is array\(.*, expected a dict with \['bays', 'mask'\]",
        ),
    ],
)
def test_what_does_not_fit_is_named(place: int, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record({(2, place): value})


def test_arguments_are_those_of_any_function() -> None:
    make: Any = SpacesTrajectoryRecord.of_acts
    end = (True, False, 2, None, {}, None)
    assert len(make("an-id", SPEC, acts(), *end)) == 4
    with pytest.raises(TypeError, match="from 9 to 10 positional arguments"):
        make("an-id", SPEC, acts(), *end, 1)
    with pytest.raises(TypeError, match="multiple values for argument 'terminated'"):
        make("an-id", SPEC, acts(), *end, terminated=False)


def test_other_shapes_of_the_same_size_are_refused_in_all_acts_too() -> None:
    turned = {**SEEN, "bays": np.zeros((3, 2))}
    with pytest.raises(ValueError, match=r"act 0 has shape \(3, 2\), expected \(2, 3\)"):
        record({(0, OBSERVATION): turned, (2, OBSERVATION): turned})


def test_an_episode_without_acts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one act"):
        SpacesTrajectoryRecord.of_acts("an-id", SPEC, [], True, False, 0, None, {})


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ({"last_actor": "pick"}, "last_actor='pick' must be an ActorID"),
        ({"last_actor": ("Pick", 0)}, "of sub-step 'Pick'; the sub-steps are"),
        ({"last_observation": {}}, r"would have seen, lacks \['bays', 'mask'\]"),
        ({"last_observation": {**SEEN, "mask": [0.5] * 4}}, "'mask' in last_observation has the value 0.5"),
        ({"last_observation": {**SEEN, "mask": [2] * 4}}, r"in last_observation is \[2, 2, 2, 2\], which is not in"),
        ({"last_observation": [0.5]}, r"last_observation is \[0.5\], expected a dict with \['bays', 'mask'\]"),
        ({"last_actor": None}, r"an-id has a last_observation, but no last_actor; name the actor .* \('pick', 0\)"),
        ({"last_actor": ("pick", 1)}, "its last actor .* is out of range"),
        ({"last_env_time": 0}, "its environment times, 0 to 0, are not in ascending order"),
        ({"truncated": False}, "episode an-id is neither terminated nor truncated"),
    ],
)
def test_ends_that_do_not_fit_are_named(end: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cut(**end)


def test_the_format_allows_unknown_actors_and_skipped_steps() -> None:
    assert cut(last_actor=None, last_observation={}).last_actor is None
    assert record(last_env_time=99).last_env_time == 99
    assert record(truncated=True).terminated  # as in Gymnasium


def test_an_actor_that_is_done_neither_acts_again_nor_is_next() -> None:
    with pytest.raises(ValueError, match=r"step_key='tool', agent_id=0\) is done after act 1, but also acts in act 3"):
        record({(1, DONE): True})
    with pytest.raises(ValueError, match=r"step_key='pick', .* is done after act 2, but the episode is truncated"):
        cut({(2, DONE): True})
    assert cut({(3, DONE): True}).actor_done.tolist() == [False, False, False, True]  # it has left, others go on
    assert record({(2, DONE): True, (3, DONE): True}).actor_done.sum() == 2


@pytest.mark.parametrize("last_actor", [None, (0, 0)])
def test_the_only_actor_of_a_truncated_episode_is_not_done(last_actor: Any) -> None:
    spec = Spec({0: TOOL})
    act = (0, 0, 0, 1.0, True, {"job": 0.5}, {"tool": 2})
    last = {} if last_actor is None else {"job": 0.5}
    with pytest.raises(ValueError, match=r"is done after act 0, but the episode is truncated there; .* pass False"):
        SpacesTrajectoryRecord.of_acts("an-id", spec, [act], False, True, 1, last_actor, last)
    assert SpacesTrajectoryRecord.of_acts("an-id", spec, [act], True, False, 1, None, {}).actor_done.all()


def test_fractions_of_environments_are_cut_off_as_for_policies() -> None:
    usual: dict[str, Any] = {"terminated": True, "truncated": False, "last_env_time": 2, "last_actor": None}
    played = acts(changed={(0, OBSERVATION): {**SEEN, "mask": [1.5, 0, 1, 1]}})
    made = SpacesTrajectoryRecord.of_acts("i", SPEC, played, **usual, last_observation={}, is_from_environment=True)
    assert made.observation["pick"]["mask"][0].tolist() == [1, 0, 1, 1]
