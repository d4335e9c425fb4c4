"""Convolutions against loops over single pixels, and the door for images of bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import StridedConvolutionBlock, VGGConvolutionBlock


def convolve(image: np.ndarray, layer: nn.Module, stride: Sequence[int], padding: Sequence[int]) -> np.ndarray:
    """One number after the other: [C, H, W] to [C', H', W']."""
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    padded = np.pad(image, [(0, 0), *((size, size) for size in padding)])
    kernel = weight.shape[2:]
    sizes = [(n - k) // s + 1 for n, k, s in zip(padded.shape[1:], kernel, stride, strict=True)]
    output = np.zeros((len(weight), *sizes))
    for place in itertools.product(range(len(weight)), *map(range, sizes)):
        total = float(bias[place[0]])
        for point in itertools.product(range(weight.shape[1]), *map(range, kernel)):
            where = [p * s + k for p, s, k in zip(place[1:], stride, point[1:], strict=True)]
            total += weight[place[0], *point] * padded[point[0], *where]
        output[place] = total
    return output


def test_vgg_by_hand() -> None:
    block = VGGConvolutionBlock("in", "out", [1, 2, 4], hidden_channels=[1])
    for parameter in block.parameters():
        nn.init.ones_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)
    # each pixel becomes the sum of itself and its neighbours, twice, and then the largest of each 2 x 2 is kept
    image = torch.tensor([[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]]])
    # once: [1, 1, 2, 2] in both rows; twice: [4, 8, 10, 8]
    assert block({"in": image})["out"].tolist() == [[[8.0, 10.0]]]
    assert block({"in": -image})["out"].tolist() == [[[0.0, 0.0]]]


def test_vgg_is_two_convolutions_and_a_pool_for_each_entry() -> None:
    torch.manual_seed(0)
    block = VGGConvolutionBlock("in", "out", [2, 7, 9], hidden_channels=[3, 2]).double()
    image = torch.randn(2, 7, 9, dtype=torch.float64)
    expected = image.numpy()
    convolutions = [layer for layer in block.net if isinstance(layer, nn.Conv2d)]
    assert [(layer.in_channels, layer.out_channels) for layer in convolutions] == [(2, 3), (3, 3), (3, 2), (2, 2)]
    for number, layer in enumerate(convolutions):
        expected = np.maximum(convolve(expected, layer, (1, 1), (1, 1)), 0)
        if number % 2:
            height, width = expected.shape[1] // 2, expected.shape[2] // 2
            cut = expected[:, : 2 * height, : 2 * width].reshape(-1, height, 2, width, 2)
            expected = cut.max((2, 4))
    assert block.out_shapes() == [(2, 1, 2)] == [expected.shape]
    np.testing.assert_allclose(block({"in": image})["out"].detach().numpy(), expected, rtol=0, atol=1e-12)


def test_a_strided_convolution_by_hand() -> None:
    block = StridedConvolutionBlock("in", "out", [1, 1, 5], [1], [[1, 3]], hidden_strides=[2], non_lin=nn.Identity)
    block.net[0].load_state_dict({"weight": torch.tensor([[[[1.0, 0.0, -1.0]]]]), "bias": torch.tensor([0.5])})
    output = block({"in": torch.tensor([[[1.0, 4.0, 9.0, 16.0, 25.0]]])})["out"]
    assert output.tolist() == [[[1 - 9 + 0.5, 9 - 25 + 0.5]]]


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 9, 11), {"hidden_kernels": [3, 2], "hidden_strides": [2, 1], "hidden_padding": [1, 0]}),
        ((2, 9, 7), {"hidden_kernels": [[3, 2], 2], "hidden_strides": [[2, 1], 1]}),
        ((1, 6, 7), {"hidden_kernels": [3, [1, 3]], "hidden_padding": [[2, 1], 1]}),
    ],
)
def test_strided_convolutions_have_all_options_for_height_and_width(
    shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    block = StridedConvolutionBlock("in", "out", shape, [3, 2], non_lin="torch.nn.Tanh", **options).double()
    image = torch.randn(shape, dtype=torch.float64)
    expected = image.numpy()
    for number, layer in enumerate(block.net[::2]):
        sizes = []
        for name, default in (("hidden_strides", 1), ("hidden_padding", 0)):
            value = options.get(name, [default] * 2)[number]
            sizes.append([value] * 2 if isinstance(value, int) else value)
        expected = np.tanh(convolve(expected, layer, *sizes))
    assert block.out_shapes() == [expected.shape]
    np.testing.assert_allclose(block({"in": image})["out"].detach().numpy(), expected, rtol=0, atol=1e-12)


BLOCKS = {
    "vgg": lambda: VGGConvolutionBlock("in", "out", [3, 4, 4], hidden_channels=[2]),
    "strided": lambda: StridedConvolutionBlock("in", "out", [3, 4, 4], [2], [3]),
}


@pytest.fixture(params=BLOCKS)
def block(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return BLOCKS[request.param]()


def bytes_drawn(*leading: int) -> Tensor:
    drawn = torch.randint(0, 256, (*leading, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    drawn[..., 0, 0, :2] = torch.tensor([0, 255], dtype=torch.uint8)
    return drawn


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_bytes_become_numbers_from_0_to_1_of_the_type_of_the_weights(
    block: nn.Module, dtype: torch.dtype, leading: tuple[int, ...]
) -> None:
    block, images = block.to(dtype), bytes_drawn(*leading)
    seen: list[Tensor] = []
    block.net.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    output = block({"in": images})["out"]
    (scaled,) = seen
    assert scaled.dtype == output.dtype == dtype and images.dtype == torch.uint8
    assert scaled.min() == 0 and scaled.max() == 1
    torch.testing.assert_close(scaled.view(images.shape).double(), images.double() / 255, rtol=0, atol=4e-3)
    assert torch.equal(output, block({"in": images.to(dtype) / 255})["out"])


def test_bytes_pass_the_door_under_mixed_precision(block: nn.Module) -> None:
    images = bytes_drawn(6)
    with torch.autocast("cpu", torch.bfloat16):
        output = block({"in": images})["out"]
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), block({"in": images})["out"], rtol=0.05, atol=0.05)


def test_images_of_floats_are_left_as_they_are(block: nn.Module) -> None:
    seen: list[Tensor] = []
    block.net.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = 300 * torch.randn(5, 3, 4, 4)
    block({"in": images})
    assert torch.equal(seen[0], images)


def test_images_of_which_nothing_would_be_left_are_refused() -> None:
    with pytest.raises(ValueError, match=r"VGGConvolutionBlock from 'in' \(1, 64, 7\) to \['out'\].* \(2x8x0\)"):
        VGGConvolutionBlock("in", "out", [1, 64, 7], hidden_channels=[2, 2, 2])
    with pytest.raises(ValueError, match=r"Strided.* 'in' \(1, 9, 6\) .*\(2 x 1\). Kernel.* \(2 x 2\)"):
        StridedConvolutionBlock("in", "out", [1, 9, 6], [2, 2], hidden_kernels=[6, 2], hidden_strides=[3, 1])


@pytest.mark.parametrize(
    "options",
    [
        {"hidden_kernels": [3]},
        {"hidden_strides": [1, 1, 1]},
        {"hidden_padding": [1]},
    ],
)
def test_options_are_given_for_each_layer(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"'in' \(1, 8, 8\).*one kernel, stride and padding for each"):
        StridedConvolutionBlock(
            "in", "out", [1, 8, 8], **{"hidden_channels": [2, 2], "hidden_kernels": [3, 3], **options}
        )


def test_other_options_that_are_wrong_are_refused() -> None:
    with pytest.raises(ValueError, match="hidden_channels to be a list"):
        VGGConvolutionBlock("in", "out", [1, 8, 8], hidden_channels=[])
    with pytest.raises(ValueError, match=r"'in' \(8, 8\) .*expected shapes of \[3\] dimensions"):
        VGGConvolutionBlock("in", "out", [8, 8], hidden_channels=[2])
    with pytest.raises(ValueError, match=r"'in' \(1, 8, 8\) .*hidden_kernels to be a list, each entry a whole"):
        StridedConvolutionBlock("in", "out", [1, 8, 8], [2], [[3, 3, 3]])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64])
def test_flags_and_numbers_keep_their_values(dtype: torch.dtype) -> None:
    block = StridedConvolutionBlock("planes", "out", [3, 4, 4], hidden_channels=[2], hidden_kernels=[3])
    planes = torch.randint(0, 9, (5, 3, 4, 4), generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(block({"planes": planes})["out"], block({"planes": planes.float()})["out"])
