"""Joint blocks are their parts, one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import (
    DenseBlock,
    FlattenBlock,
    FlattenDenseBlock,
    GlobalAveragePoolingBlock,
    LSTMBlock,
    LSTMLastStepBlock,
    PerceptionBlock,
    SlicingBlock,
    StridedConvolutionBlock,
    StridedConvolutionDenseBlock,
    VGGConvolutionBlock,
    VGGConvolutionDenseBlock,
    VGGConvolutionGAPBlock,
)

TANH = "torch.nn.Tanh"
STRIDED: dict[str, Any] = {
    "hidden_channels": [3],
    "hidden_kernels": [3],
    "hidden_strides": [2],
    "hidden_padding": [1],
    "non_lin": TANH,
}
JOINT: dict[str, tuple[type[PerceptionBlock], list[int], dict[str, Any], list[tuple[type[PerceptionBlock], Any]]]] = {
    "flatten_dense": (
        FlattenDenseBlock,
        [5, 2, 3],
        {"num_flatten_dims": 2, "hidden_units": [4, 2], "non_lin": TANH},
        [(FlattenBlock, {"num_flatten_dims": 2}), (DenseBlock, {"hidden_units": [4, 2], "non_lin": TANH})],
    ),
    "vgg_dense": (
        VGGConvolutionDenseBlock,
        [2, 6, 4],
        {"hidden_channels": [3, 2], "hidden_units": [4], "non_lin": TANH},
        [
            (VGGConvolutionBlock, {"hidden_channels": [3, 2], "non_lin": TANH}),
            (FlattenBlock, {"num_flatten_dims": 3}),
            (DenseBlock, {"hidden_units": [4], "non_lin": TANH}),
        ],
    ),
    "vgg_gap": (
        VGGConvolutionGAPBlock,
        [2, 6, 4],
        {"hidden_channels": [3], "non_lin": TANH},
        [(VGGConvolutionBlock, {"hidden_channels": [3], "non_lin": TANH}), (GlobalAveragePoolingBlock, {})],
    ),
    "strided_dense": (
        StridedConvolutionDenseBlock,
        [2, 9, 8],
        {**STRIDED, "hidden_units": [4]},
        [
            (StridedConvolutionBlock, STRIDED),
            (FlattenBlock, {"num_flatten_dims": 3}),
            (DenseBlock, {"hidden_units": [4], "non_lin": TANH}),
        ],
    ),
    "lstm_last_step": (
        LSTMLastStepBlock,
        [4, 3],
        {"hidden_size": 3, "num_layers": 2, "bidirectional": True, "non_lin": TANH},
        [
            (LSTMBlock, {"hidden_size": 3, "num_layers": 2, "bidirectional": True, "non_lin": TANH}),
            (SlicingBlock, {"slice_dim": -2, "slice_idx": -1}),
        ],
    ),
}


@pytest.mark.parametrize("name", JOINT)
def test_joint_blocks_are_their_parts_one_after_the_other(name: str) -> None:
    kind, shape, options, parts = JOINT[name]
    torch.manual_seed(0)
    joint = kind("in", "out", shape, **options)
    torch.manual_seed(0)
    shapes: list[tuple[int, ...]] = [tuple(shape)]
    inputs = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1))
    tensor: Tensor = inputs
    for part, part_options in parts:
        block = part("x", "y", shapes, **part_options)
        tensor, shapes = block({"x": tensor})["y"], block.out_shapes()
    assert torch.equal(joint({"in": inputs})["out"], tensor)
    assert joint.out_shapes() == shapes


@pytest.mark.parametrize("further", [{"normalization": "batch"}, {"normalization": "layer", "dropout": 0.5}], ids=str)
@pytest.mark.parametrize("name", JOINT)
def test_parts_get_normalisation_and_dropout(name: str, further: dict[str, Any]) -> None:
    kind, shape, options, parts = JOINT[name]
    joint = kind("in", "out", shape, **options, **further)
    shapes: list[tuple[int, ...]] = [tuple(shape)]
    expected = []
    for part, part_options in parts:
        block = part("x", "y", shapes, **part_options, **(further if "non_lin" in part_options else {}))
        shapes = block.out_shapes()
        expected.append(str(block))
    assert [str(block) for block in joint.net] == expected
    norms = [item for item in joint.modules() if isinstance(item, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm1d)]
    assert norms or any(isinstance(item, nn.BatchNorm2d) for item in joint.modules())
    assert any(isinstance(item, nn.Dropout) for item in joint.modules()) == ("dropout" in further)


def test_global_average_pooling_of_a_vgg_block_by_hand() -> None:
    block = VGGConvolutionGAPBlock("in", "out", [1, 2, 4], hidden_channels=[1])
    for parameter in block.parameters():
        nn.init.ones_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)
    image = torch.tensor([[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]]])
    assert block({"in": image})["out"].tolist() == [9.0]  # of [8, 10], see the convolution's test


def test_the_last_step_is_that_of_the_lstm() -> None:
    joint = LSTMLastStepBlock("in", "out", [4, 2], hidden_size=3)
    sequence = torch.randn(4, 2)
    whole = LSTMBlock("in", "out", [4, 2], hidden_size=3)
    whole.load_state_dict({name.removeprefix("net.0."): value for name, value in joint.state_dict().items()})
    assert torch.equal(joint({"in": sequence})["out"], whole({"in": sequence})["out"][-1])


def test_images_of_bytes_go_in_as_they_are() -> None:
    images = torch.randint(0, 256, (2, 5, 3, 8, 8), dtype=torch.uint8)
    for block in (
        VGGConvolutionDenseBlock("in", "out", [3, 8, 8], hidden_channels=[2], hidden_units=[4]),
        VGGConvolutionGAPBlock("in", "out", [3, 8, 8], hidden_channels=[4]),
        StridedConvolutionDenseBlock("in", "out", [3, 8, 8], hidden_channels=[2], hidden_kernels=[3], hidden_units=[4]),
    ):
        output = block({"in": images})["out"]
        assert output.shape == (2, 5, 4)
        torch.testing.assert_close(output, block({"in": images / 255})["out"])


def test_a_stack_of_images_becomes_a_sequence() -> None:
    images = VGGConvolutionDenseBlock("in", "latent", [5, 3, 8, 8], hidden_channels=[2], hidden_units=[4])
    assert images.out_shapes() == [(5, 4)]
    last = LSTMLastStepBlock("latent", "out", images.out_shapes(), hidden_size=6)
    assert last(images({"in": torch.rand(2, 5, 3, 8, 8)}))["out"].shape == (2, 6)


def test_options_that_no_part_knows_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'hidden_unit'"):
        VGGConvolutionDenseBlock("in", "out", [3, 8, 8], hidden_channels=[2], hidden_unit=[4])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'slice_idx'"):
        LSTMLastStepBlock("in", "out", [4, 3], hidden_size=2, slice_idx=0)  # type: ignore[call-arg]


def test_what_a_part_refuses_names_the_part_and_the_keys() -> None:
    with pytest.raises(ValueError, match=r"VGGConvolutionBlock from 'in' \(3, 2, 2\) to \['out_VGGConvolutionBlock'\]"):
        VGGConvolutionDenseBlock("in", "out", [3, 2, 2], hidden_channels=[2, 2], hidden_units=[4])
    with pytest.raises(TypeError, match=r"VGGConvolutionDenseBlock.__init__\(\) missing .*'hidden_units'"):
        VGGConvolutionDenseBlock("in", "out", [3, 8, 8], hidden_channels=[2])  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"LSTMLastStepBlock from 'a' .*expected one input"):
        LSTMLastStepBlock(["a", "b"], "out", [[4, 3], [4, 3]], hidden_size=2)
