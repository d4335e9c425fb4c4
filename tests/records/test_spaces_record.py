from __future__ import annotations

import dataclasses
import json
import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.records.framing import write_record
from maze_pl.records.record_files import SpacesTrajectoryRecord

FIXED = struct.Struct("<QqqIIII")
SPACES: list[spaces.Space[Any]] = [
    spaces.Box(-1, 1, (3,), np.float32),
    spaces.Box(np.array([0.0, -np.inf]), np.array([np.inf, 1.5]), dtype=np.float64),
    spaces.Box(0, 255, (2, 4, 3), np.uint8),
    spaces.Box(0, 1, (), np.float64),
    spaces.Box(0, 1, (0, 2), np.float32),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 7]),
    spaces.Discrete(5, start=-2, dtype=np.int32),
    spaces.MultiDiscrete([2, 7], dtype=np.int8),
    spaces.Box(0, 1, (3,), np.bool_),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 2]),
]


def flat_record(n: int = 3, **others: Any) -> SpacesTrajectoryRecord:
    step = StepSpec(
        spaces.Dict({"place": spaces.Box(-9, 9, (2,), np.float32)}), spaces.Dict({"push": spaces.Discrete(3)})
    )
    acts = [
        (0, 0, t, 0.5 * t, False, {"place": np.full(2, t, np.float32)}, {"push": np.array(t % 3)}) for t in range(n)
    ]
    rest = {"terminated": True, "truncated": False, "last_env_time": n, "last_actor": None, "last_observation": {}}
    return SpacesTrajectoryRecord.of_acts("an-id", Spec({0: step}), acts, **rest | others)


def assert_equal(one: SpacesTrajectoryRecord, other: SpacesTrajectoryRecord) -> None:
    for field in dataclasses.fields(SpacesTrajectoryRecord):
        np.testing.assert_equal(getattr(one, field.name), getattr(other, field.name), field.name)
    for leaf, again in zip(arrays(one), arrays(other), strict=True):
        assert (leaf.dtype, leaf.shape) == (again.dtype, again.shape)


def arrays(record: SpacesTrajectoryRecord) -> list[Any]:
    trees = [*record.observation.values(), *record.action.values(), record.last_observation]
    own = [getattr(record, field.name) for field in dataclasses.fields(record)]
    return [a for a in own if isinstance(a, np.ndarray)] + [np.asarray(a) for tree in trees for a in tree.values()]


@st.composite
def records(draw: st.DrawFn) -> SpacesTrajectoryRecord:
    trees = st.dictionaries(st.text(max_size=3), st.sampled_from(SPACES), min_size=1, max_size=2).map(spaces.Dict)
    keys = draw(st.lists(st.integers() | st.text(max_size=4), min_size=1, max_size=3, unique_by=str))
    spec = Spec({k: StepSpec(draw(trees), draw(trees), *draw(st.sampled_from([(1, 1), (-1, 3)]))) for k in keys})
    seed = draw(st.integers(0, 99))
    agents = {key: st.integers(0, 2**31 - 1 if step.n_agents == -1 else 0) for key, step in spec.steps.items()}
    times, acts = sorted(draw(st.lists(st.integers(0, 2**53 - 1), min_size=2, max_size=7))), []
    for number, time in enumerate(times[:-1]):
        key = draw(st.sampled_from(keys))
        seen, done = (
            sampled(space, seed + number) for space in (spec.steps[key].observation_space, spec.steps[key].action_space)
        )
        reward = draw(st.floats(allow_nan=False, allow_infinity=False))
        acts.append((key, draw(agents[key]), time, reward, False, seen, done))
    terminated, truncated = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    if not truncated and draw(st.booleans()):
        acts[-1] = (*acts[-1][:4], True, *acts[-1][5:])  # the last actor is done
    actor = draw(st.none() | st.sampled_from(keys).flatmap(lambda key: st.builds(ActorID, st.just(key), agents[key])))
    return SpacesTrajectoryRecord.of_acts(
        draw(st.text(max_size=9)),
        spec,
        acts,
        terminated=terminated,
        truncated=truncated,
        last_env_time=times[-1],
        last_actor=actor,
        last_observation={} if actor is None else sampled(spec.steps[actor.step_key].observation_space, seed),
        actor_reward=draw(st.none() | st.just(np.linspace(0, 1, len(acts))) | st.just(np.full(len(acts), np.nan))),
        is_from_environment=True,  # of any, which may have these times
    )


def sampled(space: spaces.Dict, seed: int) -> dict[str, Any]:
    space.seed(seed)
    return {name: np.asarray(value) for name, value in space.sample().items()}


@given(records())
@settings(max_examples=30)
def test_what_is_read_is_what_was_written(record: SpacesTrajectoryRecord) -> None:
    assert_equal(SpacesTrajectoryRecord.from_bytes(bytearray(record.to_bytes())), record)


def test_a_file_holds_one_episode(tmp_path: Path) -> None:
    path = tmp_path / "one.spaces"
    record = flat_record(
        truncated=True, terminated=False, last_actor=ActorID(0, 0), last_observation={"place": np.ones(2, np.float32)}
    )
    record.save(path)
    again = SpacesTrajectoryRecord.load(path)
    assert_equal(again, record)
    again.observation[0]["place"][0] = 7  # arrays can be changed, without a copy of the others


def test_what_is_as_usual_in_a_flat_environment_takes_no_space() -> None:
    short, long = (len(flat_record(n).to_bytes()) for n in (8, 1008))
    assert long - short == 1000 * (8 + 8 + 8)  # what was seen, what was done, the reward


def test_arrays_are_parts_of_the_bytes_that_were_read_and_aligned() -> None:
    body = bytearray(flat_record(50).to_bytes())
    whole = np.frombuffer(body, np.uint8)
    record = SpacesTrajectoryRecord.from_bytes(body)
    for array in (record.observation[0]["place"], record.action[0]["push"], record.reward):
        assert np.shares_memory(array, whole)
        assert array.flags.aligned


def test_descriptions_that_are_equal_become_one_specification() -> None:
    one, other = (SpacesTrajectoryRecord.from_bytes(bytearray(flat_record(n).to_bytes())) for n in (2, 5))
    assert one.spec is other.spec


@pytest.mark.parametrize(
    "change",
    [
        {"reward": np.zeros(4)},
        {"key_index": np.array([0, 0, 1])},
        {"observation": {0: {"place": np.zeros((3, 3), np.float32)}}},
        {"action": {0: {"push": np.zeros((2,), np.int64)}}},
        {"actor_reward": np.zeros(2)},
    ],
)
def test_arrays_that_do_not_fit_are_not_written(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected|sub-steps"):
        dataclasses.replace(flat_record(), **change).save(tmp_path / "one.spaces")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent_id": np.array([0, -1, 0])}, r"agent ids \[-1\]"),
        ({"agent_id": np.array([0, 1, 2**62])}, r"agent ids \[1, 4611686018427387904\]"),
        ({"env_time": np.array([-1, 0, 1])}, "environment times, -1 to 3"),
        ({"env_time": np.array([0, 2, 1])}, "environment times, 0 to 3"),
        ({"env_time": np.array([0, 2**62, -(2**62)])}, "environment times, 0 to 3"),
        ({"last_env_time": 1}, "environment times, 0 to 1"),
        ({"last_env_time": -1}, "environment times, 0 to -1"),
        ({"last_env_time": 2**62}, "environment times"),
        ({"reward": np.array([0.0, np.nan, np.inf])}, r"not finite: \[nan, inf\]"),
        ({"actor_reward": np.array([0.0, np.inf, np.nan])}, "infinite"),
        (
            {"terminated": False, "last_actor": ActorID(0, 7), "last_observation": {"place": np.ones(2, np.float32)}},
            "last actor",
        ),
        (
            {"terminated": False, "last_actor": ActorID(0, -7), "last_observation": {"place": np.ones(2, np.float32)}},
            "last actor",
        ),
    ],
)
def test_counts_and_times_that_no_environment_has_are_neither_written_nor_read(
    change: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = dataclasses.replace(flat_record(), **change)
    with pytest.raises(ValueError, match=message):
        record.to_bytes()
    with monkeypatch.context() as patch:  # as somebody writes it who does not check
        patch.setattr(SpacesTrajectoryRecord, "check", lambda _: None)
        record.save(tmp_path / "crafted.spaces")
    with pytest.raises(ValueError, match=rf"crafted\.spaces: .*{message}"):
        SpacesTrajectoryRecord.load(tmp_path / "crafted.spaces")


def test_times_may_begin_later_and_skip_steps() -> None:
    record = dataclasses.replace(flat_record(), env_time=np.array([3, 3, 40]), last_env_time=44)
    assert_equal(SpacesTrajectoryRecord.from_bytes(bytearray(record.to_bytes())), record)


def test_a_number_of_acts_that_the_bytes_cannot_hold_takes_no_memory() -> None:
    body = bytearray(flat_record(2).to_bytes()) + bytes(10 << 20)
    n_fitting = (10 << 20) // 16
    body[:8] = struct.pack("<Q", n_fitting + 99)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="cannot be in"):
            SpacesTrajectoryRecord.from_bytes(body)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_bytes_that_belong_to_nothing_are_refused() -> None:
    body = bytearray(flat_record().to_bytes())
    assert_equal(SpacesTrajectoryRecord.from_bytes(body + bytes(-len(body) % 16)), flat_record())
    with pytest.raises(ValueError, match=r"16 of its .* bytes are not part of any array"):
        SpacesTrajectoryRecord.from_bytes(body + bytes(16))


def described(change: Any) -> bytes:
    """A body whose description was changed."""
    body = flat_record().to_bytes()
    numbers = list(FIXED.unpack_from(body))
    text = body[FIXED.size : FIXED.size + numbers[4]]
    if callable(change):
        description = json.loads(text)
        change(description["steps"][0])
        change = json.dumps(description).encode()
    padding = bytes(-(FIXED.size + len(change) + numbers[5]) % 8)
    rest = body[FIXED.size + numbers[4] + numbers[5] :]
    start = (FIXED.size + numbers[4] + numbers[5] + 7) // 8 * 8
    numbers[4] = len(change)
    del rest
    return FIXED.pack(*numbers) + change + b"an-id" + padding + body[start:]


def box(**others: Any) -> Any:
    return lambda step: step["observation_space"]["spaces"]["place"].update(others)


@pytest.mark.parametrize(
    "change",
    [
        box(dtype="object"),
        box(dtype="O"),
        box(dtype="S100000000000"),
        box(dtype="f4,f4"),
        box(dtype=[["a", "f4"]]),
        box(dtype="float128"),
        box(dtype="datetime64[s]"),
        box(dtype=None),
        box(shape=[10**10]),
        box(shape=[10**30, 10**30]),
        box(shape=[-2]),
        box(shape=[-1, -2]),
        box(shape=[2.0]),
        box(shape=["2"]),
        box(shape=[True, 2]),
        box(shape=[1 << 19, 2, 2]),
        box(shape={"a": 1}),
        box(shape=2),
        box(low="a"),
        box(low=[1, 2, 3]),
        box(low={}),
        box(type="dict", spaces={}),
        box(type="discrete", n=0, start=0),
        box(type="discrete", n=10**30, start=0),
        box(type="discrete", n=3, start=0, dtype="O"),
        box(type="discrete", n=3, start=0, dtype="float32"),
        box(type="discrete", n=300, start=0, dtype="int8"),
        box(type="multi_discrete", nvec=[2, 3], dtype="S100000000000"),
        box(type="multi_discrete", nvec=[2, 300], dtype="uint8"),
        box(type="multi_binary", shape=[10**12]),
        box(type="multi_discrete", nvec=[[1, 2], [3]]),
        box(type="other"),
        box(type=["box"]),
        lambda step: step.update(key=None),
        lambda step: step.update(key=1.5),
        lambda step: step.update(key=[1]),
        lambda step: step.update(n_agents="1"),
        lambda step: step.update(n_slots=2.0),
        lambda step: step.update(n_slots=True),
        lambda step: step.update(n_slots=0),
        lambda step: step.update(n_agents=-2),
        lambda step: step.update(n_agents=0),
        lambda step: step.update(n_agents=3),
        lambda step: step.update(n_agents=-1, n_slots=10**12),
        lambda step: step.update(masks={"push": "nothing"}),
        lambda step: step.update(masks=[["push"]]),
        lambda step: step.update(masks=None),
        lambda step: step.clear(),
        b"",
        b"[" * 100_000,
        b'{"steps":[]}',
        b'{"steps":{}}',
        b"null",
        b"\xff\xfe",
        pickle.dumps(("a", "pickle")),
        b'{"steps":' + b"9" * 10_000 + b"}",
    ],
)
def test_descriptions_that_are_made_up_are_refused_and_take_no_memory(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "made_up.spaces"
    write_record(path, "spaces", described(change))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"made_up\.spaces"):
            SpacesTrajectoryRecord.load(path)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_bytes_of_booleans_are_0_or_1() -> None:
    step = StepSpec(spaces.Dict(on=spaces.Box(0, 1, (2,), np.bool_)), spaces.Dict(push=spaces.Discrete(3)))
    acts: list[Any] = [(0, 0, 0, 0.0, False, {"on": [True, False]}, {"push": 1})]
    rest = {"terminated": True, "truncated": False, "last_env_time": 1, "last_actor": None, "last_observation": {}}
    record = SpacesTrajectoryRecord.of_acts("an-id", Spec({0: step}), acts, **rest)
    body = bytearray(record.to_bytes())
    place = len(body) - 16  # the last array is the action, an int64
    assert bytes(body[place : place + 2]) == b"\1\0"
    body[place] = 7
    (on,) = SpacesTrajectoryRecord.from_bytes(body).observation[0]["on"]
    assert (on.tolist(), on.view(np.uint8).tolist()) == ([True, False], [1, 0])


@pytest.mark.parametrize(
    ("keys", "size", "message"),
    [
        ((True, 2), 2, "keys of sub-steps must be integers or strings"),
        ((0, 1), 4096, r"a space of type float32 and shape \[4096, 4096\] does not fit"),
    ],
)
def test_descriptions_that_could_not_be_read_are_not_written(
    keys: Any, size: int, message: str, tmp_path: Path
) -> None:
    actions = spaces.Dict(push=spaces.Discrete(3))
    first = StepSpec(spaces.Dict(place=spaces.Box(-9, 9, (2,), np.float32)), actions)
    second = StepSpec(spaces.Dict(place=spaces.Box(-9, 9, (size, size), np.float32)), actions)
    spec = Spec({keys[0]: first, keys[1]: second})
    acts: list[Any] = [(keys[0], 0, 0, 0.0, False, {"place": [0, 1]}, {"push": 1})]  # none of the second sub-step
    rest = {"terminated": True, "truncated": False, "last_env_time": 1, "last_actor": None, "last_observation": {}}
    record = SpacesTrajectoryRecord.of_acts("an-id", spec, acts, **rest)
    with pytest.raises(ValueError, match=message):
        record.save(tmp_path / "one.spaces")
    assert not [*tmp_path.iterdir()]


def test_episodes_without_acts_of_a_sub_step_with_large_images_are_read(tmp_path: Path) -> None:
    actions = spaces.Dict(push=spaces.Discrete(3))
    first = StepSpec(spaces.Dict(place=spaces.Box(-9, 9, (2,), np.float32)), actions)
    spec = Spec({0: first, 1: StepSpec(spaces.Dict(image=spaces.Box(0, 255, (1000, 1000, 3), np.uint8)), actions)})
    acts: list[Any] = [(0, 0, 0, 0.0, False, {"place": [0, 1]}, {"push": 1})]
    rest = {"terminated": True, "truncated": False, "last_env_time": 1, "last_actor": None, "last_observation": {}}
    SpacesTrajectoryRecord.of_acts("an-id", spec, acts, **rest).save(tmp_path / "one.spaces")
    assert SpacesTrajectoryRecord.load(tmp_path / "one.spaces").observation[0]["place"].tolist() == [[0, 1]]


def test_a_description_that_was_not_changed_is_read(tmp_path: Path) -> None:
    assert_equal(SpacesTrajectoryRecord.from_bytes(bytearray(described(lambda step: None))), flat_record())


NUMBERS = st.sampled_from([0, 1, 2, 3, 255, 2**31 - 1, 2**31, 2**32 - 1])


@given(
    places=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    numbers=st.lists(NUMBERS | st.sampled_from([2**40, 2**63 - 1]), min_size=7, max_size=7),
    kept=st.integers(0, 127),
    length=st.integers(0, 10**6),
)
@settings(max_examples=80)
def test_damaged_bytes_are_refused_or_read_within_bounded_memory(
    places: list[tuple[int, int]], numbers: list[int], kept: int, length: int
) -> None:
    record = flat_record(truncated=True, last_actor=ActorID(0, 0), last_observation={"place": np.ones(2, np.float32)})
    body = bytearray(record.to_bytes())
    own = FIXED.unpack_from(body)
    mixed = [
        one if kept >> place & 1 else other % 2**32 for place, (one, other) in enumerate(zip(own, numbers, strict=True))
    ]
    mixed[0] = own[0] if kept & 1 else numbers[0]
    body[: FIXED.size] = FIXED.pack(*mixed)
    for place, value in places:
        body[place % len(body)] = value
    body = body[: len(body) - length % len(body) if length % 2 else len(body)]
    tracemalloc.start()
    try:
        again = SpacesTrajectoryRecord.from_bytes(body)
    except Exception:  # which files name and turn into a ValueError
        again = None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 40 << 20
    if again is not None:  # as good as any other record
        assert len(again) == len(again.key_index) == sum(len(tree["push"]) for tree in again.action.values())
        assert_equal(SpacesTrajectoryRecord.from_bytes(bytearray(again.to_bytes())), again)


@given(st.binary(max_size=300))
@settings(max_examples=40)
def test_files_of_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.spaces"
    for begin in (b"", b"maze_pl spaces format 1".ljust(55) + b"\n" + bytes(8)):
        path.write_bytes(begin + content)
        with pytest.raises(ValueError, match="fuzzed"):
            SpacesTrajectoryRecord.load(path)
