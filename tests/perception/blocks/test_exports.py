"""Blocks are exported as programs of torch and as ONNX graphs, which give the same numbers for any batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from maze_pl.bundle.onnx_graphs import to_onnx
from maze_pl.perception import PerceptionBlock
from tests.perception.blocks.case import Case, Shape, assert_same, mask
from tests.perception.blocks.cases import CASES

# torch's LSTM and GRU keep their weights in a list beside the registered ones
LSTM_LIST = pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning")


Exported = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def export(block: PerceptionBlock, inputs: dict[str, Tensor]) -> torch.export.ExportedProgram:
    """The block as a program of torch whose first dimension may have any size."""
    sizes = {name: {0: torch.export.Dim("batch")} for name in inputs}
    return torch.export.export(block, (inputs,), dynamic_shapes={"block_input": sizes}, strict=False)


def as_torch(block: PerceptionBlock, inputs: dict[str, Tensor]) -> Exported:
    """The block as torch runs it without its classes."""
    return export(block, inputs).module()


def as_onnx(block: PerceptionBlock, inputs: dict[str, Tensor]) -> Exported:
    """The block as another program runs it that knows nothing of torch."""
    onnxruntime = pytest.importorskip("onnxruntime")
    program = torch.onnx.export(export(block, inputs), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])

    def run(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        named = {f"block_input_{name}".replace(".", "_"): tensor.numpy() for name, tensor in tensors.items()}
        given = session.run(None, {item.name: named[item.name] for item in session.get_inputs()})
        return {name: torch.from_numpy(array) for name, array in zip(block(tensors), given, strict=True)}

    return run


def with_states(block: PerceptionBlock, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What goes into a block, and the state that it carries, if any."""
    n_actors = len(next(iter(inputs.values())))
    shapes = getattr(block, "state_shapes", {})
    return inputs | {
        name: torch.linspace(-1, 1, n_actors).expand(*shape, -1).movedim(-1, 0) for name, shape in shapes.items()
    }


def with_empty_masks(case: Case, inputs: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The inputs, and the same with masks of zeros if the block has masks."""
    empty = {name: torch.zeros_like(inputs[name]) for name, draw in case.draw.items() if draw is mask}
    return [inputs, inputs | empty] if empty else [inputs]


@LSTM_LIST
@pytest.mark.parametrize("name", ["inference", "multi_head_attention", "recurrent_gru"])
def test_a_block_is_exported_for_batches_of_any_size(name: str) -> None:
    block = CASES[name].build()
    exported = as_torch(block, with_states(block, CASES[name].sample(3)))
    for batch_size in (1, 2, 5):
        inputs = with_states(block, CASES[name].sample(batch_size, seed=batch_size))
        assert_same(exported(inputs), block(inputs))


TO_ONNX = {"strided", "lstm", "torch_model", "inference", "pointer", "deep_set", "action_masking", "one_hot"}
TO_ONNX |= {"multi_head_attention", "graph_conv", "recurrent_gru", "transformer_memory"}
"""What the slow tests export; other blocks are left to the long ones, and whole networks to test_exported_networks."""


@pytest.mark.slow
@LSTM_LIST
@pytest.mark.parametrize(
    ("name", "form", "leading"),
    [
        *(
            pytest.param(name, as_onnx, (), id=f"{name}-onnx", marks=[] if name in TO_ONNX else pytest.mark.long)
            for name in CASES
        ),
        *(pytest.param(name, as_torch, (2,), id=f"{name}-torch", marks=pytest.mark.long) for name in CASES),
    ],
)
def test_an_exported_block_gives_the_same_numbers_for_batches_of_any_size(
    name: str, form: Callable[..., Exported], leading: Shape
) -> None:
    case = CASES[name]
    block = case.build()

    def sample(batch_size: int) -> dict[str, Tensor]:
        inputs = case.sample(batch_size, *leading, seed=batch_size)
        return inputs if leading else with_states(block, inputs)

    exported = form(block, sample(3))
    for batch_size in (1, 5):
        for inputs in with_empty_masks(case, sample(batch_size)):
            assert_same(exported(inputs), block(inputs))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_block_is_exported_to_onnx_for_batches_of_any_size(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    case = CASES[name]
    block = case.build()
    with torch.inference_mode():
        outputs = list(block(case.sample(3)))
    graph = to_onnx(block, case.sample(3), outputs, name)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for batch_size in (1, 4):
        for inputs in with_empty_masks(case, case.sample(batch_size, seed=batch_size)):
            found = session.run(outputs, {key: tensor.numpy() for key, tensor in inputs.items()})
            with torch.inference_mode():
                expected = block(inputs)
            for key, array in zip(outputs, found, strict=True):
                torch.testing.assert_close(torch.from_numpy(array), expected[key], rtol=1e-5, atol=1e-5)
