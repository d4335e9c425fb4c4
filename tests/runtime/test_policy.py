"""The runtime, on a bundle that is written by hand."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from maze_pl_runtime import BundleError, Policy
from maze_pl_runtime.bundle_file import N_DIGITS
from maze_pl_runtime.inputs import Input, inputs_of
from tests.bundle.written_bundles import HEAD, STEP, graph, write_bundle

ONE: dict[str, Any] = {"place": [0.5, -1.0], "allowed": [1, 1, 1], "kind": 2}


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return Policy.load(write_bundle(tmp_path / "a.bundle"))


def test_an_observation_gives_an_action_and_the_new_state(policy: Policy) -> None:
    action, state = policy.act(ONE)
    assert action == {"turn": 0} and type(action["turn"]) is int
    np.testing.assert_array_equal(state["memory"], [0.5, -1.0])
    action, state = policy.act({**ONE, "place": [0.25, 0.0]}, 0, state)
    assert action == {"turn": 2}  # 0.25, 0 and the sum 0.75
    np.testing.assert_array_equal(state["memory"], [0.75, -1.0])


def test_a_batch_gives_actions_and_states_of_all_rows(policy: Policy) -> None:
    batch = {"place": np.array([[0.5, -1.0], [0.25, 3.0]]), "allowed": np.ones((2, 3)), "kind": np.array([1, 4])}
    action, state = policy.act(batch, state={"memory": np.array([[0.0, 0.0], [1.0, 1.0]], np.float32)})
    assert action["turn"].tolist() == [0, 1]
    assert state["memory"].tolist() == [[0.5, -1.0], [1.25, 4.0]]
    assert policy.decide(batch).parameters["turn"].tolist() == [[0.5, -1.0, 0.5], [0.25, 3.0, 0.25]]


def test_uniform_numbers_determine_sampled_actions(policy: Policy) -> None:
    found = [policy.act(ONE, deterministic=False, uniforms=[u])[0]["turn"] for u in (0.1, 0.5, 0.9)]
    assert found == [0, 1, 2]
    drawn = {policy.act(ONE, deterministic=False)[0]["turn"] for _ in range(100)}
    assert drawn == {0, 1, 2}


def test_decisions_leave_the_random_numbers_of_the_caller_alone(policy: Policy) -> None:
    np.random.seed(3)
    expected = np.random.random(2)
    found = []
    for deterministic in (True, False):
        np.random.seed(3)
        first = np.random.random()
        policy.act(ONE, deterministic=deterministic)
        found.append([first, np.random.random()])
    np.testing.assert_array_equal(found, [expected, expected])


def test_random_numbers_do_not_repeat_with_the_state_of_the_caller(policy: Policy) -> None:
    drawn = []
    for _ in range(2):  # as in two processes that were forked after the bundle was loaded
        np.random.seed(3)
        drawn.append([policy.act(ONE, deterministic=False)[0]["turn"] for _ in range(30)])
    assert drawn[0] != drawn[1]


def test_the_spec_is_plain_data(policy: Policy) -> None:
    text = json.dumps(policy.manifest, allow_nan=False)
    assert json.loads(text)["steps"][0]["observations"]["place"]["low"] == "-inf"
    assert policy.spec[0]["masks"] == {"turn": "allowed"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"place": [0.5, float("nan")]}, "'place' has values that are not finite"),
        ({"place": [0.5]}, r"'place' has shape \(1,\), expected \(2,\)"),
        ({"place": np.zeros((0, 2))}, r"'place' has shape \(0, 2\)"),
        ({"place": [[0.5, 1.0], [1.0]]}, r"'place' must be float32 of shape \(2,\)"),
        ({"place": "far"}, "'place' must be float32"),
        ({"place": None}, "'place' must be float32"),
        ({"place": [1j, 0.0]}, "'place' must be float32"),
        ({"place": [[0.5, 1.0]]}, "all observations must be single ones, or batches of the same size"),
        ({"allowed": [1, 2, 1]}, "'allowed' must be integers from 0 to 1"),
        ({"allowed": [1, 0.5, 1]}, "'allowed' must be int8 of shape"),
        ({"kind": 5}, "'kind' must be integers from 1 to 4"),
        ({"kind": 0}, "'kind' must be integers from 1 to 4"),
        ({"kind": 1.5}, "'kind' must be int64"),
        ({"kind": 1e300}, "'kind' must be int64"),
    ],
)
def test_wrong_observations_are_refused_by_name(policy: Policy, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy.act({**ONE, **change})


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        ({"nvec": [3, 4], "start": [1, -2]}, [0, 0], "must be integers from 1 to 3 in element 0"),
        ({"nvec": [3, 4]}, [3, 0], "must be integers from 0 to 2 in element 0"),
        ({"nvec": [3, 4]}, [[2, 3], [2, 4]], "must be integers from 0 to 3 in element 1"),
        ({"nvec": [[3, 4], [5, 6]]}, [[0, 0], [5, 6]], "must be integers from 0 to 4 in element 1, 0"),
    ],
)
def test_the_bounds_of_a_wrong_number_are_those_of_its_element(space: dict[str, Any], value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^observation 'md' {message}$"):
        Input("md", {"type": "multi_discrete", **space})(value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"observation": {"place": [0.0, 0.0], "where": [0.0, 0.0]}},
            r"^observations \['allowed', 'kind'\] are missing: expected a dict of the observations "
            r"\['allowed', 'kind', 'place'\]; the names \['where'\] are unknown$",
        ),
        ({"observation": {"place": [0.0, 0.0], "kind": 1}}, r"^observations \['allowed'\] are missing: .* 'place'\]$"),
        ({"observation": [0.0, 0.0]}, "expected a dict .*, got list$"),
        ({"step_key": 1}, r"step_key=1 must be one of the sub-steps \[0\]"),
        ({"step_key": [0]}, r"step_key=\[0\] must be one of the sub-steps \[0\]"),
        ({"step_key": np.array(0)}, r"step_key=array\(0\) must be one of the sub-steps \[0\]"),
        ({"state": (np.zeros(2),)}, "state must be a dict, not tuple"),
        ({"observation": {**ONE, "place": torch.zeros(2, requires_grad=True)}}, r"'place' must be float32 of shape"),
        ({"state": {"memory": torch.zeros(2, requires_grad=True)}}, r"state/memory must be float32 of shape"),
        ({"state": {}}, r"the policy state has entries \[\], expected \['memory'\]"),
        ({"state": {"memory": [0.0]}}, r"state/memory has shape \(1,\), expected \(2,\)"),
        ({"state": {"memory": [0.0, float("nan")]}}, "state/memory has values that are not finite"),
        ({"state": {"memory": [0.0, float("-inf")]}}, "state/memory has values that are not finite"),
        ({"state": {"memory": [0.0, 1e300]}}, "state/memory has values that are not finite"),
        ({"state": {"memory": ["a", "b"]}}, r"state/memory must be float32 of shape \(2,\)"),
        ({"deterministic": False, "uniforms": [0.1, 0.2]}, r"uniforms has shape \(2,\), expected \(1,\)"),
        ({"deterministic": False, "uniforms": [1.0]}, "uniforms must be at least 0 and below 1"),
        ({"deterministic": False, "uniforms": [float("nan")]}, "uniforms must be at least 0 and below 1"),
    ],
)
def test_wrong_arguments_are_refused(policy: Policy, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy.act(**{"observation": ONE, **arguments})


def described(space: dict[str, Any], choices: list[int]) -> dict[str, Any]:
    """Changes of the description of the sub-step by which the mask is one of another head."""
    return {"actions": {"turn": space}, "heads": {"turn": {**HEAD, "choices": choices}}}


def test_a_mask_that_allows_nothing_is_refused(policy: Policy) -> None:
    with pytest.raises(ValueError, match=r"^observation 'allowed' allows no option of 'turn'$"):
        policy.act({**ONE, "allowed": [0, 0, 0]})
    batch = {"place": np.zeros((3, 2)), "allowed": [[1, 0, 0], [0, 0, 0], [0, 0, 1]], "kind": [1, 2, 3]}
    with pytest.raises(ValueError, match=r"^observation 'allowed' allows no option of 'turn' in row 1$"):
        policy.act(batch)
    assert policy.act({**ONE, "allowed": [0, 0, 1]})[0] == {"turn": 0}  # this graph does not use the mask
    assert policy.act({**ONE, "allowed": [0, 0, 0]}, check_masks=False)[0] == {"turn": 0}


@pytest.mark.parametrize("dtype", ["int8", "float32", "bool"])
def test_a_mask_needs_an_option_of_each_choice(dtype: str) -> None:
    allowed = {"type": "box", "shape": [5], "dtype": dtype, "low": 0, "high": 1}
    space = {"type": "multi_discrete", "nvec": [[2], [3]]}
    step = {**STEP, "observations": {"allowed": allowed}, **described(space, [2, 3])}
    generator = np.random.default_rng(0)
    masks = [*inputs_of(step), *inputs_of({**step, "heads": {}})]
    for n in (1, 4):
        for _ in range(50):
            values = generator.integers(0, 2, (n, 5)).astype(dtype)
            missing = [
                (r, c) for r in range(n) for c, part in enumerate((values[r, :2], values[r, 2:])) if not any(part)
            ]
            for mask in masks:
                if not missing:
                    mask(values)
                    continue
                row, choice = missing[0]
                message = f"^observation 'allowed' allows no option of choice {choice} of 'turn' in row {row}$"
                with pytest.raises(ValueError, match=message):
                    mask(values)


def test_all_bits_may_be_forbidden() -> None:
    allowed = {"type": "box", "shape": [3], "dtype": "int8", "low": 0, "high": 1}
    bits = described({"type": "multi_binary", "shape": [3]}, [2, 2, 2])
    step = {**STEP, "observations": {"allowed": allowed}, **bits}
    for one in (step, {**step, "heads": {}}):
        (mask,) = inputs_of(one)
        mask(np.zeros(3, np.int8))


def test_impossible_options_have_a_log_probability_of_minus_infinity(policy: Policy) -> None:
    lowest = float(np.finfo(np.float32).min)
    assert policy.decide({**ONE, "place": [lowest, 0.5]}).parameters["turn"].tolist() == [-np.inf, 0.5, -np.inf]
    batch = {"place": [[0.5, lowest], [1.0, 2.0]], "allowed": np.ones((2, 3)), "kind": [1, 1]}
    found = policy.decide(batch).parameters["turn"]
    assert found.dtype == np.float32 and found.tolist() == [[0.5, -np.inf, 0.5], [1.0, 2.0, 1.0]]


def test_parameters_of_continuous_heads_are_as_the_graph_returns_them(tmp_path: Path) -> None:
    policy = Policy.load(write_bundle(tmp_path / "a.bundle", heads={"turn": {**HEAD, "choices": []}}))
    lowest = float(np.finfo(np.float32).min)
    assert policy.decide({**ONE, "place": [lowest, 0.5]}).parameters["turn"].tolist() == [lowest, 0.5, lowest]


def test_observations_beyond_float32_are_refused() -> None:
    space = {"type": "box", "shape": [2], "dtype": "float64", "low": -np.inf, "high": np.inf}
    read = Input("far", space)
    array, _ = read([3.4e38, -3.4e38])
    assert array.dtype == np.float64 and array.tolist() == [[3.4e38, -3.4e38]]
    for value in (1e300, -3.5e38, np.inf, np.nan):
        with pytest.raises(ValueError, match="'far' has values that are not finite"):
            read(np.array([0.0, value]))
    half = Input("near", {**space, "dtype": "float16"})
    assert half(np.array([6e4, -1.0], np.float16))[0].tolist() == [[60000.0, -1.0]]
    with pytest.raises(ValueError, match="'near' has values that are not finite"):
        half([7e4, 0.0])


def test_observations_that_the_graph_clips_first_may_be_infinite() -> None:
    read = Input("far", {"type": "box", "shape": [3], "dtype": "float64", "low": -1, "high": 1, "clipped": True})
    assert read([1e300, np.inf, -np.inf])[0].tolist() == [[1e300, np.inf, -np.inf]]
    with pytest.raises(ValueError, match="'far' has values that are not finite"):
        read([0.0, np.nan, 0.0])


def test_a_decision_that_is_not_a_number_is_refused(policy: Policy) -> None:
    far = {**ONE, "place": [3e38, 0.0]}
    state = policy.decide(far).state
    with pytest.raises(ValueError, match="the policy's next_state/memory has values that are not numbers, or infinite"):
        policy.decide(far, state=state)
    with pytest.raises(ValueError, match="not numbers, or infinite"):
        policy.decide({name: [value, value] for name, value in far.items()}, state={"memory": [[0, 0], [3e38, 0]]})


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("parameters/turn", [np.zeros(1, np.int64), np.full((1, 3), np.nan, np.float32), np.zeros((1, 2), np.float32)]),
        ("action/turn", [np.full(1, np.nan, np.float32), np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32)]),
        ("action/turn", [np.full(1, np.inf, np.float32), np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32)]),
    ],
)
def test_each_output_is_checked(policy: Policy, monkeypatch: pytest.MonkeyPatch, name: str, outputs: Any) -> None:
    class Session:
        def run(self, *_: Any) -> Any:
            return outputs

    monkeypatch.setattr(policy._steps[0], "_session", Session())
    with pytest.raises(ValueError, match=f"the policy's {name} has values that are not numbers, or infinite"):
        policy.act(ONE)


def test_a_graph_that_fails_is_a_value_error() -> None:
    model = onnx.load_from_string(graph())
    added = model.graph.node[0]  # place + memory
    added.output[0] = "added"
    rows = onnx.numpy_helper.from_array(np.zeros((3, 2), np.float32), "rows")  # of kinds 0 to 2
    model.graph.initializer.append(rows)
    model.graph.node.insert(1, onnx.helper.make_node("Gather", ["rows", "observation/kind"], ["row"]))
    model.graph.node.insert(2, onnx.helper.make_node("Add", ["added", "row"], ["next_state/memory"]))
    policy = Policy({"steps": [STEP]}, {"graphs/0.onnx": model.SerializeToString()})
    good = {"place": [0.5, -1.0], "allowed": [1, 1, 1], "kind": 2}
    assert policy.act(good)[0] == {"turn": 0}
    with pytest.raises(ValueError, match=r"the policy cannot be computed for these inputs: .*Gather"):
        policy.act({**good, "kind": 3})


def test_agents_are_integers(tmp_path: Path) -> None:
    policy = Policy.load(write_bundle(tmp_path / "a.bundle", with_agents=True, separate_networks=2))
    assert policy.act(ONE, agent_id=1) is not None
    for agent in (0.7, "1", None):
        with pytest.raises(ValueError, match="agent_id must be int64"):
            policy.act(ONE, agent_id=agent)
    with pytest.raises(ValueError, match="agent_id=2 must be from 0 to 1"):
        policy.act(ONE, agent_id=2)


def test_a_batch_has_one_agent_or_one_for_each_row(tmp_path: Path) -> None:
    policy = Policy.load(write_bundle(tmp_path / "a.bundle", with_agents=True, separate_networks=2))
    batch = {"place": np.zeros((3, 2)), "allowed": np.ones((3, 3)), "kind": np.array([1, 2, 3])}
    for agents in (1, np.array(1), [0, 1, 0]):
        assert len(policy.act(batch, agent_id=agents)[0]["turn"]) == 3
    for agents in ([1], [0, 1], [[0, 1, 0]]):
        with pytest.raises(ValueError, match=r"^agent_id has shape \(.*\), expected \(3,\)$"):
            policy.act(batch, agent_id=agents)
    with pytest.raises(ValueError, match=r"^agent_id has shape \(1,\), expected \(\)$"):
        policy.act(ONE, agent_id=[1])


def test_a_bundle_with_any_byte_changed_is_refused(tmp_path: Path) -> None:
    data = write_bundle(tmp_path / "a.bundle").read_bytes()
    changed = tmp_path / "changed.bundle"
    places = [0, 10, len(data) - 1, len(data) - N_DIGITS, *random.Random(0).sample(range(len(data)), 150)]
    for place in places:
        changed.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(BundleError, match="changed"):
            Policy.load(changed)
    for length in (0, 5, 100, len(data) - 1):
        changed.write_bytes(data[:length])
        with pytest.raises(BundleError, match="cut off"):
            Policy.load(changed)


def rewritten(source: Path, target: Path, change: Any) -> Path:
    """Write a bundle with a changed manifest and a right checksum."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = b"0" * N_DIGITS
    data = target.read_bytes()[:-N_DIGITS]
    target.write_bytes(data + hashlib.sha256(data).hexdigest().encode())
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(format=2), "has format 2, expected 1: install a newer maze_pl_runtime"),
        (lambda manifest: manifest.pop("format"), "not a valid bundle: KeyError: 'format'"),
        (lambda manifest: manifest.pop("steps"), "not a valid bundle: KeyError: 'steps'"),
        (lambda manifest: manifest.update(steps=3), "not a valid bundle: TypeError"),
        (lambda manifest: manifest.update(steps=[]), r"its sub-steps are \[\], expected integers or texts"),
        (
            lambda manifest: manifest["steps"][0].update(key=None),
            r"its sub-steps are \[None\], expected integers or texts",
        ),
        (lambda manifest: manifest["steps"][0].update(n_uniforms=True), "n_uniforms and separate_networks must be"),
        (
            lambda manifest: manifest["steps"][0].update(separate_networks="x"),
            "n_uniforms and separate_networks must be",
        ),
        (
            lambda manifest: manifest["steps"][0]["heads"]["turn"].update(choices=[7]),
            r"3 parameters of 'turn' .* \[7\]",
        ),
        (lambda manifest: manifest["steps"][0]["heads"]["turn"].update(choices=[4, -1]), r"have choices \[4, -1\]"),
        (lambda manifest: manifest["files"].update(other={"sha256": ""}), "do not match the checksums in its manifest"),
        (lambda manifest: manifest["steps"][0].update(graph="x.onnx"), "KeyError: 'x.onnx'"),
        (lambda manifest: manifest["steps"][0]["state"]["memory"].update(dtype="i4,("), "bundle: SyntaxError"),
    ],
)
def test_bundles_of_other_versions_and_damaged_manifests_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    source = write_bundle(tmp_path / "a.bundle")
    with pytest.raises(BundleError, match=message):
        Policy.load(rewritten(source, tmp_path / "b.bundle", change))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_uniforms": 2}, r"uniforms is \('tensor\(double\)', \[1\]\), expected \('tensor\(double\)', \[2\]\)"),
        ({"state": {}}, r"next_state/memory is .*, expected None"),
        ({"heads": {"turn": {**HEAD, "size": 4, "choices": [4]}}}, "parameters/turn is"),
        ({"observations": {**STEP["observations"], "more": STEP["observations"]["place"]}}, "observation/more is None"),
        ({"actions": {"turn": {"type": "multi_binary", "shape": [3]}}}, "action/turn is"),
        ({"separate_networks": 2}, "agent_id is None"),
    ],
)
def test_a_graph_that_does_not_fit_its_manifest_is_refused(tmp_path: Path, changes: Any, message: str) -> None:
    path = write_bundle(tmp_path / "a.bundle", **copy.deepcopy(changes))
    with pytest.raises(BundleError, match=f"its graph graphs/0.onnx does not fit its manifest: {message}"):
        Policy.load(path)


@pytest.mark.parametrize(
    ("place_in_list", "value", "message"),
    [(8, 1, "RuntimeError: .* encrypted"), (6, 99, "NotImplementedError: zip file version 9.9")],
)
def test_members_that_zip_files_cannot_read_are_refused(
    tmp_path: Path, place_in_list: int, value: int, message: str
) -> None:
    source = write_bundle(tmp_path / "a.bundle")
    data = bytearray(source.read_bytes()[:-N_DIGITS])
    data[data.index(b"PK\x01\x02") + place_in_list] = value  # flags, or the version that is needed
    if place_in_list == 8:
        data[6] = value  # also before the member
    crafted = tmp_path / "b.bundle"
    crafted.write_bytes(data + hashlib.sha256(data).hexdigest().encode())
    with pytest.raises(BundleError, match=f"is not a valid bundle: {message}"):
        Policy.load(crafted)


def test_a_missing_onnx_runtime_is_not_a_fault_of_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="onnxruntime"):
        Policy.load(path)


def test_a_wrong_number_of_threads_is_not_a_fault_of_the_bundle(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "a.bundle")
    for n_threads in ("2", 1.0, -1, None):
        with pytest.raises(ValueError, match=r"^n_threads=.* must be an integer, 0 or more$") as refused:
            Policy.load(path, n_threads=n_threads)  # type: ignore[arg-type]
        assert not isinstance(refused.value, BundleError)


@pytest.mark.parametrize("place", ["zipfile.ZipFile", "maze_pl_runtime.policy._Step"])
def test_too_little_memory_is_not_a_fault_of_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    path = write_bundle(tmp_path / "a.bundle")

    def fail(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(place, fail)
    with pytest.raises(MemoryError):
        Policy.load(path)


def test_the_reason_why_a_bundle_is_not_valid_is_kept(tmp_path: Path) -> None:
    source = write_bundle(tmp_path / "a.bundle")
    with pytest.raises(BundleError) as refused:
        Policy.load(rewritten(source, tmp_path / "b.bundle", lambda manifest: manifest.pop("steps")))
    assert isinstance(refused.value.__cause__, KeyError)


def test_files_that_are_missing_or_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read: No such file"):
        Policy.load(tmp_path / "nothing")
    with pytest.raises(BundleError, match="cannot be read: Is a directory"):
        Policy.load(tmp_path)
    (tmp_path / "text").write_text("hello" * 100)
    with pytest.raises(BundleError, match="is not a bundle"):
        Policy.load(tmp_path / "text")
