"""A small bundle that is written by hand, without training or tracing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from maze_pl.bundle.bundle_files import bundle_bytes

BOX = {"type": "box", "shape": [2], "dtype": "float32", "low": -float("inf"), "high": float("inf")}
MASK = {"type": "box", "shape": [3], "dtype": "int8", "low": 0, "high": 1}
HEAD = {"distribution": "x", "parameters": "log-probabilities", "size": 3, "n_uniforms": 1, "choices": [3]}
STEP: dict[str, Any] = {
    "key": 0,
    "graph": "graphs/0.onnx",
    "observations": {"place": BOX, "allowed": MASK, "kind": {"type": "discrete", "n": 4, "start": 1}},
    "actions": {"turn": {"type": "discrete", "n": 3, "start": 0}},
    "masks": {"turn": "allowed"},
    "heads": {"turn": HEAD},
    "n_uniforms": 1,
    "state": {"memory": {"dtype": "float32", "shape": [2]}},
    "separate_networks": None,
}


def graph(with_agents: bool = False) -> bytes:
    """Logits are the place and the memory's first entry; the memory is the sum of all places of an episode.

    The mask and the kind are not used. A sampled action is the number of entries of 0, 1/3 and 2/3 that the uniform
    number exceeds, minus one.

    Args:
        with_agents: Whether it has the input `agent_id`, which is not used.
    """
    node = helper.make_node
    nodes = [
        node("Add", ["observation/place", "state/memory"], ["next_state/memory"]),
        node("Slice", ["next_state/memory", "zero", "one", "one"], ["first"]),
        node("Concat", ["observation/place", "first"], ["parameters/turn"], axis=1),
        node("ArgMax", ["parameters/turn"], ["action/turn"], axis=1, keepdims=0),
        node("Greater", ["uniforms", "thirds"], ["above"]),
        node("Cast", ["above"], ["numbers"], to=TensorProto.INT64),
        node("ReduceSum", ["numbers", "one"], ["sample/turn"], keepdims=0),
    ]
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    value = helper.make_tensor_value_info
    inputs = [
        value("observation/place", f32, ["B", 2]),
        value("observation/allowed", TensorProto.INT8, ["B", 3]),
        value("observation/kind", i64, ["B"]),
        value("state/memory", f32, ["B", 2]),
        value("uniforms", TensorProto.DOUBLE, ["B", 1]),
    ]
    if with_agents:
        inputs.append(value("agent_id", i64, ["B"]))
    outputs = [
        value("action/turn", i64, ["B"]),
        value("sample/turn", i64, ["B"]),
        value("parameters/turn", f32, ["B", 3]),
        value("next_state/memory", f32, ["B", 2]),
    ]
    constants = [
        numpy_helper.from_array(np.array([0], np.int64), "zero"),
        numpy_helper.from_array(np.array([1], np.int64), "one"),
        numpy_helper.from_array(np.array([1 / 3, 2 / 3]), "thirds"),
    ]
    made = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def write_bundle(path: Path, *, with_agents: bool = False, **changes: Any) -> Path:
    """Write the bundle, with changes of the description of its sub-step."""
    manifest = {"steps": [{**STEP, **changes}], "wrappers": []}
    path.write_bytes(bundle_bytes(manifest, {"graphs/0.onnx": graph(with_agents)}))
    return path
