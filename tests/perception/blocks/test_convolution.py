"""Convolutions against loops over single pixels, and the door for images of bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import (
    StridedConvolutionBlock,
    StridedConvolutionDenseBlock,
    VGGConvolutionBlock,
    VGGConvolutionDenseBlock,
    VGGConvolutionGAPBlock,
)


def convolve(
    image: np.ndarray,
    layer: nn.Module,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] | None = None,
    mode: str = "constant",
) -> np.ndarray:
    """One number after the other: [C, H, W] to [C', H', W'], and likewise for other numbers of dimensions."""
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    padded = np.pad(image, [(0, 0), *((size, size) for size in padding)], mode=mode)
    kernel = weight.shape[2:]
    dilation = [1] * len(kernel) if dilation is None else dilation
    sizes = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[1:], kernel, stride, dilation, strict=True)
    ]
    output = np.zeros((len(weight), *sizes))
    for place in itertools.product(range(len(weight)), *map(range, sizes)):
        total = float(bias[place[0]])
        for point in itertools.product(range(weight.shape[1]), *map(range, kernel)):
            where = [p * s + k * d for p, s, k, d in zip(place[1:], stride, point[1:], dilation, strict=True)]
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


MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # in NumPy


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "dilation"),
    [
        ((2, 9), [3], [2], [2], [2]),
        ((2, 6, 5), [2, 3], [1, 2], [1, 2], [3, 1]),
        ((1, 4, 3, 5), [2, 1, 2], [1, 1, 2], [1, 0, 2], [2, 1, 3]),
    ],
    ids=["sequence", "image", "volume"],
)
def test_dilation_and_padding_in_one_two_and_three_dimensions(
    shape: tuple[int, ...], kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], mode: Any
) -> None:
    torch.manual_seed(0)
    block = StridedConvolutionBlock(
        "in",
        "out",
        shape,
        [2],
        [kernel],
        [stride],
        [padding],
        nn.Tanh,
        convolution_dimension=len(kernel),  # type: ignore[arg-type]
        hidden_dilations=[dilation],
        padding_mode=mode,
    ).double()
    image = torch.randn(3, *shape, dtype=torch.float64)
    given = block({"in": image})["out"].detach().numpy()
    for index in range(3):
        expected = np.tanh(convolve(image[index].numpy(), block.net[0], stride, padding, dilation, MODES[mode]))
        np.testing.assert_allclose(given[index], expected, rtol=0, atol=1e-12)


def test_dense_layers_follow_convolutions_of_any_dimension() -> None:
    block = StridedConvolutionDenseBlock(
        "in", "out", [2, 9], [3], [3], hidden_units=[4], convolution_dimension=1, non_lin=[nn.ReLU, nn.Tanh]
    )
    convolution, _, dense = block.net
    image = torch.randn(5, 2, 9)
    features = nn.functional.conv1d(image, convolution.net[0].weight, convolution.net[0].bias).relu()
    torch.testing.assert_close(block({"in": image})["out"], dense.net[0](features.flatten(1)).tanh())


def test_each_layer_has_an_activation_of_its_own() -> None:
    kinds = [nn.Tanh, "torch.nn.SELU"]
    vgg = VGGConvolutionBlock("in", "out", [1, 8, 8], [2, 2], kinds)
    assert [type(vgg.net[index]) for index in (1, 3, 6, 8)] == [nn.Tanh, nn.Tanh, nn.SELU, nn.SELU]
    strided = StridedConvolutionBlock("in", "out", [1, 8, 8], [2, 2], [3, 3], non_lin=kinds)
    assert [type(layer) for layer in strided.net[1::2]] == [nn.Tanh, nn.SELU]
    gap = VGGConvolutionGAPBlock("in", "out", [1, 8, 8], [2, 2], kinds)
    assert [type(gap.net[0].net[index]) for index in (1, 6)] == [nn.Tanh, nn.SELU]
    joint = VGGConvolutionDenseBlock("in", "out", [1, 8, 8], [2], [3, 3], [nn.ReLU, *kinds])
    assert type(joint.net[0].net[1]) is nn.ReLU
    assert [type(layer) for layer in joint.net[2].net[1::2]] == [nn.Tanh, nn.SELU]
    with pytest.raises(ValueError, match=r"VGGConvolutionDenseBlock: expected non_lin to be .*1 \+ 2, one for each"):
        VGGConvolutionDenseBlock("in", "out", [1, 8, 8], [2], [3, 3], kinds)
    with pytest.raises(ValueError, match=r"VGG.* expected non_lin to be one class, or a list of 1, one for each layer"):
        VGGConvolutionBlock("in", "out", [1, 8, 8], [2], kinds)


@pytest.mark.parametrize(
    ("shape", "norm"), [((2, 9), nn.BatchNorm1d), ((2, 6, 5), nn.BatchNorm2d), ((2, 4, 3, 3), nn.BatchNorm3d)]
)
def test_batch_normalisation_of_images_is_over_batch_and_pixels(shape: tuple[int, ...], norm: Any) -> None:
    torch.manual_seed(0)
    n_dims: Any = len(shape) - 1
    options: dict[str, Any] = {"convolution_dimension": n_dims, "normalization": "batch", "non_lin": nn.Identity}
    block = StridedConvolutionBlock("in", "out", shape, [3], [2], **options)
    convolution, ours, _ = block.net
    reference = norm(3)
    assert convolution.bias is None
    for _ in range(3):
        images = torch.randn(4, 2, *shape)
        expected = reference(convolution(images.flatten(0, 1))).unflatten(0, (4, 2))
        torch.testing.assert_close(block({"in": images})["out"], expected)
    torch.testing.assert_close(ours.norm.running_mean, reference.running_mean)
    torch.testing.assert_close(ours.norm.running_var, reference.running_var)
    acting, learner = block.eval(), reference.eval()
    expected = learner(convolution(images[0, :1]))[0]
    torch.testing.assert_close(acting({"in": images[0, 0]})["out"], expected)


def test_layer_normalisation_of_images_is_over_channels_and_pixels_of_each() -> None:
    torch.manual_seed(0)
    block = VGGConvolutionBlock("in", "out", [2, 4, 6], [3], nn.Tanh, normalization="layer")
    for layer in block.net:
        if isinstance(layer, nn.GroupNorm):
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    x = images = torch.randn(5, 2, 4, 6)
    for first in (0, 3):
        convolution, norm, activation = block.net[first : first + 3]
        x = convolution(x)
        mean, variance = x.mean((1, 2, 3), keepdim=True), x.var((1, 2, 3), unbiased=False, keepdim=True)
        x = (x - mean) / (variance + 1e-5).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
        x = activation(x)
    torch.testing.assert_close(block({"in": images})["out"], nn.functional.max_pool2d(x, 2))


def test_a_padding_that_does_not_fit_the_images_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Strided.* 'in' \(1, 2, 4\) .*images and options that go together"):
        StridedConvolutionBlock("in", "out", [1, 2, 4], [2], [2], hidden_padding=[3], padding_mode="reflect")


def test_images_whose_channels_come_last_are_told_from_images_that_are_too_small() -> None:
    remedy = r"images are \(channels, height, width\): for others use an ImageBlock with channels: last"
    with pytest.raises(ValueError, match=rf"'in' \(32, 32, 3\) .*{remedy}"):
        VGGConvolutionBlock("in", "out", [32, 32, 3], [8, 16, 32])
    with pytest.raises(ValueError, match=r"'in' \(3, 2, 2\) .*Output size is too small$"):
        VGGConvolutionBlock("in", "out", [3, 2, 2], [8, 16, 32])


@pytest.mark.parametrize("dimension", [0, 4, 2.0, "2", None, True, [2]])
def test_other_dimensions_are_refused(dimension: Any) -> None:
    with pytest.raises(ValueError, match="StridedConvolutionBlock: expected convolution_dimension to be 1, 2 or 3"):
        StridedConvolutionBlock("in", "out", [1, 8, 8], [2], [3], convolution_dimension=dimension)
    with pytest.raises(ValueError, match="ConvolutionDenseBlock: expected convolution_dimension to be 1, 2 or 3"):
        StridedConvolutionDenseBlock(
            "in", "out", [1, 8, 8], [2], [3], hidden_units=[2], convolution_dimension=dimension
        )


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
        {"hidden_dilations": [1]},
    ],
)
def test_options_are_given_for_each_layer(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=rf"'in' \(1, 8, 8\).*expected {name} with one entry for each of 2 layers"):
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
