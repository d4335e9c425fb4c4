from __future__ import annotations

import doctest
import errno
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maze_pl.collect.replay import sum_tree
from maze_pl.collect.replay.storage import ReplayStorage
from maze_pl.collect.replay.sum_tree import SumTree
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import StepSpec
from maze_pl.records.columns import Columns
from tests.bad_input.project import disk_full_at
from tests.devices import DEVICES
from tests.equality import assert_equal

ROOT = Path(__file__).parents[2]
STEP = StepSpec(
    spaces.Dict(seen=spaces.Box(-1e9, 1e9, (2,), np.float32)), spaces.Dict(choice=spaces.Discrete(1000, dtype=np.int64))
)
CARTPOLE = StepSpec(spaces.Dict(state=spaces.Box(-9, 9, (4,), np.float32)), spaces.Dict(action=spaces.Discrete(2)))


def transitions(numbers: Any, reward: Any = None, discount: Any = 0.5, stream: Any = 0, first: Any = False) -> Columns:
    """Transition i sees (i, -i), does i and sees (i + 1, -i - 1)."""
    n = np.asarray(numbers)
    columns = {"reward": n if reward is None else reward, "discount": discount, "stream": stream, "is_first": first}
    return {
        "observation": {"seen": np.stack([n, -n], -1)},
        "action": {"choice": n},
        "next_observation": {"seen": np.stack([n + 1, -n - 1], -1)},
        "agent_id": n % 3,
        **{name: np.broadcast_to(values, n.shape) for name, values in columns.items()},
    }


def drawn_from(storage: ReplayStorage, n_updates: int = 4, batch_size: int = 50, seed: int = 0) -> tuple[Any, Any]:
    return storage.sample(n_updates, batch_size, torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------------------------------------ the ring


def test_the_latest_transitions_are_kept_and_drawn_alike() -> None:
    storage = ReplayStorage(STEP, 8)
    for start, stop in ((0, 3), (3, 4), (4, 9), (9, 29), (29, 30)):  # over the end of the ring, and more than it holds
        storage.add(transitions(np.arange(start, stop)))
        assert len(storage) == min(stop, 8)
        acts, _ = drawn_from(storage, 40, 100)
        counts = np.bincount(acts.action["choice"].flatten(), minlength=stop)
        assert (counts[: max(0, stop - 8)] == 0).all()
        expected = 4000 / min(stop, 8)
        assert np.abs(counts[max(0, stop - 8) :] - expected).max() < 5 * np.sqrt(expected)


def test_the_fields_of_an_act_belong_together() -> None:
    storage = ReplayStorage(STEP, 8)
    storage.add(transitions(np.arange(11)))
    acts, places = drawn_from(storage, 3, 20)
    choice = acts.action["choice"]
    assert choice.shape == places.shape == (3, 20)
    assert torch.equal(acts.observation["seen"], torch.stack([choice, -choice], -1).float())
    assert torch.equal(acts.next_observation["seen"], torch.stack([choice + 1, -choice - 1], -1).float())
    assert torch.equal(acts.reward, choice.float()) and acts.reward.dtype == torch.float32
    assert torch.equal(acts.discount, torch.full((3, 20), 0.5)) and acts.discount.dtype == torch.float32
    assert torch.equal(acts.agent_id, torch.zeros(3, 20, dtype=torch.int64)), "there is one agent"
    assert acts.weight is acts.terminated is acts.truncated is None


def test_agents_are_told_apart_where_there_are_several() -> None:
    step = StepSpec(STEP.observation_space, STEP.action_space, n_agents=3, n_slots=3)
    storage = ReplayStorage(step, 8)
    storage.add(transitions(np.arange(8)))
    acts, _ = drawn_from(storage)
    assert torch.equal(acts.agent_id, acts.action["choice"] % 3) and acts.agent_id.dtype == torch.int64


def test_nothing_is_drawn_where_there_is_nothing() -> None:
    for options in ({}, {"alpha": 0.6}, {"n_step": 3}, {"run_length": 2}):
        acts, places = drawn_from(ReplayStorage(STEP, 8, **options), 3, 0)
        assert acts.observation["seen"].shape == (3, 0, 2) and places.shape == (3, 0)


def test_images_stay_bytes() -> None:
    step = StepSpec(spaces.Dict(image=spaces.Box(0, 255, (3, 4, 4), np.uint8)), STEP.action_space)
    storage = ReplayStorage(step, 8)
    image = np.arange(8 * 48).reshape(8, 3, 4, 4) % 256
    columns = transitions(np.arange(8))
    storage.add({**columns, "observation": {"image": image}, "next_observation": {"image": 255 - image}})
    acts, _ = drawn_from(storage)
    assert acts.observation["image"].dtype == acts.next_observation["image"].dtype == torch.uint8
    assert torch.equal(acts.observation["image"], torch.from_numpy(image)[acts.action["choice"]].byte())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_for(size: int, chunk: int) -> int:
    """The bytes that a process takes for a storage of transitions as of CartPole, once it is full."""
    ids = np.arange(chunk)
    state = np.ones((chunk, 4), np.float32)
    columns = {**transitions(ids), "observation": {"state": state}, "next_observation": {"state": state}}
    columns["action"] = {"action": ids % 2}
    before = resident()
    storage = ReplayStorage(CARTPOLE, size)
    for _ in range(size // chunk + 1):
        storage.add(columns)
    assert len(storage) == size
    return resident() - before


@pytest.mark.slow
def test_a_million_transitions_take_a_fifth_more_than_their_bytes_at_most() -> None:
    own = 4 * 4 + 8 + 4 * 4 + 4 + 4  # what is seen, done and seen next, reward, discount
    code = f"from {__name__} import memory_for; print(memory_for(1_000_000, 20_000))"  # nothing else takes or frees any
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 0.9 * own * 1_000_000 < int(result.stdout) <= 1.2 * own * 1_000_000


def test_arrays_can_be_in_files_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    storages = [ReplayStorage(STEP, 100, memory_map=mapped) for mapped in (False, True)]
    assert any(str(tmp_path) in line for line in Path("/proc/self/maps").read_text().splitlines())
    assert list(tmp_path.iterdir()) == []
    for storage in storages:
        storage.add(transitions(np.arange(130)))
    (one, _), (other, _) = map(drawn_from, storages)
    assert all(map(torch.equal, one.tensors(), other.tensors()))
    assert type(other.reward.numpy()) is np.ndarray


@pytest.mark.parametrize(("n_agents", "n_bytes"), [(1, "32,000"), (3, "36,000")])
def test_a_disk_without_room_for_the_files_is_named_with_the_bytes_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_agents: int, n_bytes: str
) -> None:
    """An observation and the next one take 8 bytes each, an action 8, reward and discount 4 each, and so does an id."""
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    step = StepSpec(STEP.observation_space, STEP.action_space, n_agents=n_agents)
    ReplayStorage(step, 1000, memory_map=True)
    with disk_full_at(5000), pytest.raises(OSError, match="File too large; lower replay_buffer_size") as raised:
        ReplayStorage(step, 1000, memory_map=True)
    assert raised.value.errno == errno.EFBIG
    assert raised.value.filename == f"{tmp_path} (replay buffer, {n_bytes} bytes)"
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------- several acts at once


def test_returns_of_three_acts_by_hand() -> None:
    """Two streams, rewards 1 2 4 8 | 10 20 30, discounts 1/2; the third act of the first stream ends an episode."""
    storage = ReplayStorage(STEP, 16, n_step=3)
    storage.add(
        transitions(
            np.array([0, 100, 1, 101, 2, 102, 3]),
            reward=np.array([1, 10, 2, 20, 4, 30, 8]),
            discount=np.array([0.5, 0.5, 0.5, 0.5, 0.0, 0.5, 0.5]),
            stream=np.array([0, 1, 0, 1, 0, 1, 0]),
            first=np.array([True, True, False, False, False, False, True]),
        )
    )
    acts, _ = drawn_from(storage)
    found = {
        int(choice): (float(reward), float(discount), int(following))
        for choice, reward, discount, following in zip(
            acts.action["choice"].flatten(),
            acts.reward.flatten(),
            acts.discount.flatten(),
            acts.next_observation["seen"][..., 0].flatten(),
            strict=True,
        )
    }
    assert found == {
        0: (1 + 2 / 2 + 4 / 4, 0.0, 3),
        1: (2 + 4 / 2, 0.0, 3),
        2: (4.0, 0.0, 3),
        3: (8.0, 0.5, 4),  # all that is known so far
        100: (10 + 20 / 2 + 30 / 4, 1 / 8, 103),
        101: (20 + 30 / 2, 1 / 4, 103),
        102: (30.0, 1 / 2, 103),
    }


Act = tuple[int, float, float, int, bool]
"""Number, reward, discount, stream, whether it is the first of an episode."""


def slow_return(acts: list[Act], index: int, n_step: int) -> tuple[float, float, int]:
    """Reward, discount and number of the last act of a return, from a list of the acts that are kept."""
    number, reward, factor, stream, _ = acts[index]
    for other, r, d, s, first in acts[index + 1 :]:
        if s != stream:
            continue
        if first or n_step == 1:
            break
        reward, factor, number, n_step = reward + factor * r, factor * d, other, n_step - 1
    return reward, factor, number


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    capacity=st.integers(1, 12),
    n_step=st.integers(1, 5),
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=6),
)
def test_returns_are_those_of_the_acts_that_are_kept(seed: int, capacity: int, n_step: int, sizes: list[int]) -> None:
    rng, storage, acts = random.Random(seed), ReplayStorage(STEP, capacity, n_step=n_step), list[Act]()
    for size in sizes:
        new: list[Act] = []
        for number in range(len(acts), len(acts) + size):
            stream = rng.randrange(3)
            new.append((number, rng.uniform(-1, 1), rng.choice([0.9, 0.5]), stream, rng.random() < 0.2))
        acts += new
        if new:
            number, reward, discount, streams, first = map(np.array, zip(*new, strict=True))
            storage.add(transitions(number, reward, discount, streams, first))
    if acts:
        kept = acts[-capacity:]
        drawn, _ = drawn_from(storage, 2, 40, seed)
        columns = drawn.action["choice"], drawn.reward, drawn.discount, drawn.next_observation["seen"][..., 0] - 1
        for choice, *numbers in zip(*(column.flatten().tolist() for column in columns), strict=True):
            expected = slow_return(kept, choice - kept[0][0], n_step)
            assert numbers == pytest.approx(expected, abs=1e-6)


def test_runs_are_consecutive_acts_of_a_stream() -> None:
    storage = ReplayStorage(STEP, 64, run_length=4)
    numbers = np.array([stream * 100 + at for at in range(10) for stream in range(3)])
    storage.add(transitions(numbers, stream=numbers // 100, first=(numbers % 100 == 0) | (numbers % 100 == 6)))
    acts, _ = drawn_from(storage, 5, 200)
    assert acts.reward.shape == (5, 800)
    runs = acts.action["choice"].reshape(-1, 4)
    ends = (runs[:, :-1] % 100 == 5) | (runs[:, :-1] % 100 == 9)  # then another run follows
    follows = runs[:, 1:] == runs[:, :-1] + 1
    assert follows[~ends].all()
    assert 0.1 < ends.float().mean() < 0.4 and follows[ends].float().mean() < 0.1
    assert len(set(runs[:, 1:][ends].tolist())) == 30, "another run begins anywhere"


# ---------------------------------------------------------------------------------------------------------- priorities


def test_the_examples_of_the_documentation_work() -> None:
    assert doctest.testmod(sum_tree).failed == 0


def test_a_sum_tree_by_hand() -> None:
    tree = SumTree(5)
    assert tree.total == 0
    tree.update(np.array([0, 1, 2, 4]), np.array([2.0, 1.0, 0.5, 4.0]))
    assert tree.total == 7.5 and tree.leaves[:5].tolist() == [2.0, 1.0, 0.5, 0.0, 4.0]
    assert tree.find(np.array([[0, 1.9, 2.0], [3.0, 3.5, 7.4]])).tolist() == [[0, 0, 1], [2, 4, 4]]
    assert tree.find(np.array([7.5, 100.0])).tolist() == [4, 4], "rounding does not lead out of what is there"
    tree.update(np.array([1, 4, 1]), np.array([3.0, 0.0, 0.25]))
    assert tree.total == 2.75 and tree.find(np.array([2.1, 2.3])).tolist() == [1, 2]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), capacity=st.integers(1, 40))
def test_a_sum_tree_finds_what_adding_up_finds(data: st.DataObject, capacity: int) -> None:
    tree, numbers = SumTree(capacity), [0.0] * capacity
    for _ in range(data.draw(st.integers(1, 4))):
        places = data.draw(st.lists(st.integers(0, capacity - 1), min_size=1, max_size=12))
        values = [data.draw(st.integers(0, 64)) / 8 for _ in places]  # sums of eighths are exact
        tree.update(np.array(places), np.array(values))
        for place, value in zip(places, values, strict=True):
            numbers[place] = value
    assert tree.total == sum(numbers)
    for eighths in range(int(8 * sum(numbers))):
        value, expected = eighths / 8, 0
        while value >= numbers[expected]:
            value -= numbers[expected]
            expected += 1
        assert tree.find(np.array([eighths / 8])).tolist() == [expected]


def test_priorities_by_hand() -> None:
    """Errors 3, 0, -1 and alpha 1: 3/4 and 1/4 of the draws; beta 0.5: weights (3 * 3/4)^-0.5, (3/4)^-0.5."""
    storage = ReplayStorage(STEP, 4, alpha=1.0, beta=0.5)
    storage.add(transitions(np.arange(3)))
    _, places = drawn_from(storage, 1, 3)
    assert sorted(places[0]) == [0, 1, 2], "one of each of three equal parts: new ones have the same priority"
    storage.reprioritise(np.array([[0, 1, 2]]), torch.tensor([[3.0, 0.0, -1.0]]))
    acts, places = drawn_from(storage, 50, 4)
    assert [sorted(row) for row in places.tolist()] == [[0, 0, 0, 2]] * 50
    weight = acts.weight.numpy()
    assert weight.dtype == np.float32 and weight[places == 2] == pytest.approx(1.0)
    assert weight[places == 0] == pytest.approx((3.0 / 1.0) ** -0.5, abs=1e-5)
    storage.add(transitions(np.arange(3, 4)))  # has the largest priority that there was
    acts, places = drawn_from(storage, 50, 7)
    assert [sorted(row) for row in places.tolist()] == [[0, 0, 0, 2, 3, 3, 3]] * 50
    storage.reprioritise(np.array([[0, 3]]), torch.tensor([[0.0, 0.0]]))
    storage.add(transitions(np.arange(4, 5)))  # in the place of 0, with the largest priority ever
    acts, places = drawn_from(storage, 50, 4)
    assert [sorted(row) for row in places.tolist()] == [[0, 0, 0, 2]] * 50


def test_draws_and_weights_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    storage, errors = ReplayStorage(STEP, 32, alpha=0.6, beta=0.4), rng.normal(size=40) * 3
    for number in range(40):
        storage.add(transitions(np.array([number])))
        storage.reprioritise(np.array([[number % 32]]), torch.tensor([[errors[number]]]))
    acts, _ = drawn_from(storage, 1000, 20)
    choice = acts.action["choice"].numpy()
    priority = (np.abs(errors[8:]) + 1e-6) ** 0.6
    chance = priority / priority.sum()
    counts = np.bincount(choice.flatten(), minlength=40)
    assert (counts[:8] == 0).all()
    assert np.abs(counts[8:] - 20_000 * chance).max() < 5 * np.sqrt(20_000 * chance.max())
    weight = (32 * chance[choice - 8]) ** -0.4
    np.testing.assert_allclose(acts.weight, weight / weight.max(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("first", [1.0, 0.0])
def test_changed_exponents_are_those_of_a_storage_that_always_had_them(first: float) -> None:
    """Priorities come from the sizes of errors, so that nothing is lost even if alpha was 0."""
    errors = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 8)) * 3)
    changed = ReplayStorage(STEP, 12, alpha=first, beta=0.9, keep_sizes=True)
    expected = ReplayStorage(STEP, 12, alpha=0.5, beta=0.4)
    for storage in (changed, expected):
        storage.add(transitions(np.arange(8)))
        storage.reprioritise(np.arange(8)[None], errors)
    changed.set_exponents(0.5, 0.4)
    for storage in (changed, expected):
        storage.add(transitions(np.arange(8, 14)))
    (found, places), (wanted, wanted_places) = drawn_from(changed, 20, 10), drawn_from(expected, 20, 10)
    assert (places == wanted_places).all()
    torch.testing.assert_close(found.weight, wanted.weight)


# --------------------------------------------------------------------------------------------------------------- state


@pytest.mark.parametrize(
    "options",
    [{}, {"n_step": 3}, {"alpha": 0.6}, {"alpha": 0.6, "keep_sizes": True}, {"run_length": 3, "n_step": 2}],
    ids=str,
)
@pytest.mark.parametrize("n", [5, 20])
def test_a_storage_goes_on_from_its_state(tmp_path: Path, options: dict[str, Any], n: int) -> None:
    storage, other = (ReplayStorage(STEP, 12, **options) for _ in range(2))
    numbers = np.arange(n)
    storage.add(transitions(numbers, stream=numbers % 2, first=numbers % 7 == 0))
    if "alpha" in options:
        storage.reprioritise(np.array([[1, 2]]), torch.tensor([[5.0, 0.1]]))
    torch.save(storage.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    sizes: list[int] = []
    mapped(lambda tensor: sizes.append(len(tensor)), other.state_dict()["columns"])
    assert set(sizes) <= {0, len(storage)}, "nothing but what is kept is saved"
    for one in (storage, other):
        more = np.arange(n, n + 4)
        one.add(transitions(more, stream=more % 2))
    assert len(storage) == len(other)
    (expected, _), (found, _) = drawn_from(storage), drawn_from(other)
    assert all(map(torch.equal, expected.tensors(), found.tensors()))


@pytest.mark.parametrize("is_old", [False, True])
def test_a_storage_goes_on_with_the_exponent_that_its_priorities_have(is_old: bool) -> None:
    """The exponent of a schedule may return to the first one; states of earlier versions hold none."""
    storage, other = (ReplayStorage(STEP, 12, alpha=0.6, keep_sizes=True) for _ in range(2))
    storage.add(transitions(np.arange(8)))
    storage.set_exponents(0.2, 0.4)
    storage.reprioritise(np.arange(8)[None], torch.arange(8.0)[None])
    state = storage.state_dict()
    if is_old:
        del state["alpha"]
    other.load_state_dict(state)
    for one in (storage, other):
        one.set_exponents(0.3 if is_old else 0.6, 0.4)
        one.add(transitions(np.arange(8, 10)))
    (expected, places), (found, same_places) = drawn_from(storage), drawn_from(other)
    assert (places == same_places).all()
    assert_equal(found.weight, expected.weight)


def expanded(state: dict[str, Any]) -> None:
    """Rows that are a single one in memory, and so take as many as anybody likes."""
    state["columns"]["reward"] = torch.ones(1).expand(10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.update(written=-3), "it holds -3 transitions"),
        (lambda state: state.update(written=2**62), r"column \(10, 2\).*expected \(12, 2\)"),
        (lambda state: state.update(written=10.0), "it holds 10.0 transitions"),
        (lambda state: state.update(capacity=10**15), "capacity of 1000000000000000, expected 12"),
        (lambda state: state.update(highest=float("nan")), "highest priority is nan"),
        (lambda state: state.update(highest=-1.0), "highest priority is -1.0"),
        (lambda state: state.update(alpha=-1.0), "exponent of its priorities is -1.0"),
        (lambda state: state.update(last={0: 10}), "latest transitions that are not among its 10"),
        (lambda state: state.update(last={0: -1}), "latest transitions"),
        (lambda state: state.update(last=[1]), "latest transitions"),
        (lambda state: state.update(last={"a": 1}), "latest transitions"),
        (lambda state: state.pop("written"), "it holds None transitions"),
        (lambda state: state["columns"].pop("reward"), "its columns are not .*'reward'"),
        (lambda state: state["columns"].update(reward=torch.zeros(9)), r"column \(9,\).*expected \(10,\)"),
        (lambda state: state["columns"].update(reward=torch.zeros(10).double()), "float64, expected .* float32"),
        (lambda state: state["columns"].update(reward=3), "its columns are not"),
        (expanded, "continued by|column|columns"),
        (lambda state: state["columns"]["follower"].fill_(10), "continued by 10 to 10, expected below 10"),
        (lambda state: state["columns"]["follower"].fill_(-2), "continued by -2"),
        (lambda state: state["columns"]["priorities"].fill_(-1), "negative, or not finite"),
        (lambda state: state["columns"]["priorities"].fill_(torch.nan), "negative, or not finite"),
    ],
)
def test_a_state_that_no_storage_gives_is_refused_and_changes_nothing(change: Any, message: str) -> None:
    storage, other = (ReplayStorage(STEP, 12, n_step=2, alpha=0.5) for _ in range(2))
    storage.add(transitions(np.arange(10)))
    state = mapped(Tensor.clone, {"columns": storage.state_dict()["columns"]}) | {
        name: value for name, value in storage.state_dict().items() if name != "columns"
    }
    change(state)
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state)
    assert len(other) == 0


# ---------------------------------------------------------------------------------------------------------- on a device

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "n_step": {"n_step": 3},
    "runs": {"run_length": 4},
    "prioritized": {"alpha": 0.7, "n_step": 2, "keep_sizes": True},
}


def filled(kind: str, device: str | None) -> ReplayStorage:
    """Storage of 20 transitions, over the end of the ring and with more than it holds."""
    storage = ReplayStorage(STEP, 20, device=None if device is None else torch.device(device), **KINDS[kind])
    for start, stop in ((0, 15), (15, 40), (40, 47)):
        storage.add(transitions(np.arange(start, stop), first=np.arange(start, stop) % 6 == 0))
    return storage


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_device_gives_the_minibatches_of_the_host(kind: str, device: str) -> None:
    storage, expected = filled(kind, device), filled(kind, None)
    for seed in range(3):
        (acts, places), (others, same_places) = drawn_from(storage, seed=seed), drawn_from(expected, seed=seed)
        assert np.array_equal(places, same_places)
        assert acts.observation["seen"].device.type == acts.action["choice"].device.type == device
        assert_equal(mapped(Tensor.cpu, acts), others)
        if kind == "prioritized":
            errors = torch.rand(places.shape, generator=torch.Generator().manual_seed(seed))
            storage.reprioritise(places, errors.to(device))
            expected.reprioritise(places, errors)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_saved_on_device", [True, False])
def test_a_saved_storage_is_loaded_on_another_device(kind: str, device: str, is_saved_on_device: bool) -> None:
    one, other = (device, None) if is_saved_on_device else (None, device)
    storage = filled(kind, one)
    where = None if other is None else torch.device(other)
    loaded = ReplayStorage(STEP, 20, device=where, **KINDS[kind]).load_state_dict(storage.state_dict())
    drawn, expected = (mapped(Tensor.cpu, drawn_from(one)[0]) for one in (loaded, storage))
    assert_equal(drawn, expected)


def test_values_of_another_type_are_refused_on_a_device() -> None:
    state = filled("plain", "cpu").state_dict()
    state["columns"]["action"]["choice"] = state["columns"]["action"]["choice"].int()
    with pytest.raises(ValueError, match=r"it has a column \(20,\) torch.int32, expected \(20,\) torch.int64"):
        ReplayStorage(STEP, 20, device=torch.device("cpu")).load_state_dict(state)
