"""The block that each space gets, and images of all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.perception import ImageBlock, ScalingBlock
from maze_pl.perception.automatic import (
    Choice,
    channels_of,
    choose,
    choose_for_all,
    convolution_layers,
    kind_of,
    modalities,
)

BYTES = {"low": 0, "high": 255, "dtype": np.uint8}
KINDS: dict[str, tuple[spaces.Space[Any], str]] = {
    "discrete": (spaces.Discrete(3), "category"),
    "multi_discrete": (spaces.MultiDiscrete([[2], [3]], start=[[5], [0]]), "category"),
    "bits": (spaces.MultiBinary(3), "vector"),
    "scalar": (spaces.Box(0.0, 1.0, ()), "vector"),
    "vector": (spaces.Box(-np.inf, np.inf, (3,)), "vector"),
    "vector_with_bounds": (spaces.Box(-1.0, 1.0, (3,)), "vector"),
    "memory": (spaces.Box(shape=(128,), **BYTES), "scaled"),
    "integers": (spaces.Box(-2, 9, (3,), np.int64), "scaled"),
    "small_integers": (spaces.Box(-128, 127, (3,), np.int8), "scaled"),
    "integers_without_bounds": (spaces.Box(-(2**63), 2**63 - 1, (3,), np.int64), "vector"),
    "integers_without_bound_above": (spaces.Box(0, 2**31 - 1, (3,), np.int32), "vector"),
    "table": (spaces.Box(-1.0, 1.0, (5, 3)), "vector"),
    "table_of_integers": (spaces.Box(-2, 9, (5, 3), np.int64), "scaled"),
    "table_of_bytes": (spaces.Box(shape=(5, 20), **BYTES), "scaled"),
    "grey_image": (spaces.Box(shape=(20, 16), **BYTES), "image"),
    "image": (spaces.Box(shape=(7, 7, 3), **BYTES), "image"),
    "image_of_floats": (spaces.Box(0.0, 1.0, (3, 64, 64)), "image"),
    "stack_of_images": (spaces.Box(shape=(4, 96, 96, 3), **BYTES), "image"),
    "five_dimensions": (spaces.Box(0.0, 1.0, (2, 2, 2, 2, 2)), "vector"),
    "nothing": (spaces.Box(0.0, 1.0, (0,)), "omitted"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_follow_from_spaces(name: str) -> None:
    space, kind = KINDS[name]
    assert kind_of(space) == kind
    assert choose(name, space).kind == kind


def params(choice: Choice) -> dict[str, Any]:
    return dict(choice.entry["block_params"])


def test_integers_are_scaled_by_their_bounds() -> None:
    equal = choose("x", spaces.Box(-2, 9, (3,), np.int64))
    assert equal.entry == {"block_type": "maze_pl.perception.ScalingBlock", "block_params": {"low": -2, "high": 9}}
    assert type(params(equal)["low"]) is int
    different = choose("x", spaces.Box(np.array([0, -1]), np.array([5, 1]), dtype=np.int32))
    assert params(different) == {"low": [0, -1], "high": [5, 1]}


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_integers_from_zero_are_scaled_in_all_types(dtype: Any) -> None:
    assert params(choose("x", spaces.Box(0, 100, (3,), dtype))) == {"low": 0, "high": 100}
    assert params(choose("x", spaces.Box(0, 100, (5, 3), dtype)))["high"] == 100
    assert params(choose("x", spaces.Box(0, 100, (9, 9, 3), dtype)))["high"] == 100
    unbounded = np.array([100, np.iinfo(dtype).max], dtype)
    assert choose("x", spaces.Box(np.zeros(2, dtype), unbounded, dtype=dtype)).kind == "vector"


def test_the_largest_unsigned_integers_are_scaled() -> None:
    high = 2**64 - 2
    entry = choose("x", spaces.Box(0, high, (2,), np.uint64)).entry
    block = ScalingBlock("x", "y", [2], **entry["block_params"])
    numbers = torch.from_numpy(np.array([0, high], np.uint64))
    torch.testing.assert_close(block({"x": numbers})["y"], torch.tensor([0.0, 1.0]))


def test_booleans_are_scaled_if_the_user_says_so() -> None:
    box = spaces.Box(0, 1, (2,), np.bool_)
    assert choose("x", box).kind == "vector"
    entry = choose("x", box, "scaled").entry
    assert entry["block_params"] == {"low": 0, "high": 1}
    assert type(entry["block_params"]["low"]) is int
    block = ScalingBlock("x", "y", [2], **entry["block_params"])
    assert torch.equal(block({"x": torch.tensor([True, False])})["y"], torch.tensor([1.0, 0.0]))


def test_integer_tables_are_scaled_by_their_bounds() -> None:
    high = np.array([[5, 9], [4, 9]])
    table = spaces.Box(np.zeros_like(high), high, dtype=np.int64)
    assert params(choose("x", table)) == {"low": 0, "high": [5, 9, 4, 9]}
    of_set = params(choose("x", table, "set"))
    assert (of_set["low"], of_set["high"]) == (0, [5, 9])
    assert "low" not in params(choose("x", spaces.Box(0.0, 1.0, (2, 2)), "set"))


def test_bytes_of_images_need_no_bounds_and_other_integers_do() -> None:
    assert "low" not in params(choose("x", spaces.Box(shape=(7, 7, 3), **BYTES)))
    planes = choose("x", spaces.Box(0, 1, (8, 8, 2), np.uint8))
    assert (params(planes)["low"], params(planes)["high"]) == (0, 1)


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((3, 64, 64), "first"), ((64, 64, 3), "last"), ((7, 7, 7), "last"), ((4, 1, 84, 84), "first"), ((9, 8), "none")],
)
def test_the_layout_of_images_follows_from_their_shape(shape: tuple[int, ...], channels: str) -> None:
    assert channels_of(shape) == channels


def test_the_layout_of_images_can_be_said() -> None:
    space = spaces.Box(shape=(8, 8, 8), **BYTES)
    assert params(choose("x", space, channels="first"))["channels"] == "first"
    assert params(choose("x", space))["channels"] == "last"
    with pytest.raises(ValueError, match=r"channels='none' does not fit the images 'x' of shape \(2, 8, 8, 8\)"):
        choose("x", spaces.Box(shape=(2, 8, 8, 8), **BYTES), channels="none")


@pytest.mark.parametrize("height", [1, 2, 3, 5, 6, 7, 8, 13, 35, 36, 37, 64, 84, 210, 480])
@pytest.mark.parametrize("width", [1, 5, 36, 160])
def test_convolutions_fit_images_of_any_size(height: int, width: int) -> None:
    layers = convolution_layers(height, width)
    for kernel, stride, padding in zip(
        layers["hidden_kernels"], layers["hidden_strides"], layers["hidden_padding"], strict=True
    ):
        height, width = ((size + 2 * padding - kernel) // stride + 1 for size in (height, width))
    assert min(height, width) >= 1
    assert height * width <= 144
    assert len(layers["hidden_channels"]) == len(layers["hidden_kernels"]) >= 2


def test_atari_images_get_the_layers_of_the_paper() -> None:
    layers = convolution_layers(84, 84)
    expected = ([32, 64, 64], [8, 4, 3], [4, 2, 1])
    assert (layers["hidden_channels"], layers["hidden_kernels"], layers["hidden_strides"]) == expected
    block = ImageBlock("in", "out", [84, 84, 3], "last", **layers)
    assert block.net.out_shapes() == [(256,)]


def test_kinds_can_be_said() -> None:
    assert choose("x", spaces.Discrete(5, start=2), "scaled").entry["block_params"] == {"low": 2, "high": 6}
    assert choose("x", spaces.Box(0.0, 1.0, (4, 3)), "vector").entry["block_params"] == {"num_flatten_dims": 2}
    assert choose("x", spaces.Box(-1.0, 3.0, (4,)), "scaled").entry["block_params"] == {"low": -1.0, "high": 3.0}
    stack = choose("x", spaces.Box(shape=(4, 9, 9, 3), **BYTES))
    assert params(stack)["stacked"] is True and params(stack)["channels"] == "last"
    assert choose("x", spaces.Box(shape=(4, 4), **BYTES), "image").entry["block_params"]["channels"] == "none"


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Discrete(3), "vector"),
        (spaces.Box(0.0, 1.0, (3,)), "set"),
        (spaces.Box(0.0, 1.0, (3,)), "category"),
        (spaces.Box(0.0, np.inf, (3,)), "scaled"),
        (spaces.MultiBinary([3, 3]), "image"),
    ],
)
def test_kinds_that_do_not_fit_are_refused(space: spaces.Space[Any], kind: Any) -> None:
    with pytest.raises(ValueError, match=f"'sensor' cannot be of kind '{kind}', as its space is"):
        choose("sensor", space, kind)


def test_unknown_kinds_and_too_many_categories_are_refused() -> None:
    unknown: Any = "picture"
    with pytest.raises(ValueError, match=r"'x' cannot be of kind 'picture': use one of category, vector"):
        choose("x", spaces.Discrete(3), unknown)
    with pytest.raises(ValueError, match=r"'x' has 20,000 categories, too many.*kinds: \{x: scaled\}"):
        choose("x", spaces.Discrete(20_000))
    assert choose("x", spaces.Discrete(20_000), "scaled").kind == "scaled"


def test_equal_blocks_share_a_modality() -> None:
    small = choose("a", spaces.Box(shape=(7, 7, 3), **BYTES))
    large = choose("b", spaces.Box(shape=(84, 84, 3), **BYTES))
    plain = choose("c", spaces.Box(0.0, 1.0, (2,)))
    config, mapping = modalities({"a": small, "b": large, "c": plain, "d": small, "e": Choice("omitted")})
    assert mapping == {"a": "image", "b": "image_2", "c": "vector", "d": "image", "e": None}
    assert config == {"image": small.entry, "image_2": large.entry, "vector": {}}


def test_one_block_serves_all_sub_steps() -> None:
    first, second = spaces.Box(0, 5, (2,), np.int64), spaces.Box(-1, 3, (2,), np.int64)
    assert params(choose_for_all("x", [first, second])) == {"low": -1, "high": 5}
    categories = {"n_categories": 6, "start": -1, "unit_variance": True}
    assert params(choose_for_all("x", [spaces.Discrete(2, start=-1), spaces.Discrete(5)])) == categories
    several = [spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([3, 2], start=[0, 2])]
    joined = {"n_categories": [3, 4], "start": 0, "unit_variance": True}
    assert params(choose_for_all("x", several)) == joined
    with pytest.raises(ValueError, match="no block fits the observation 'x' of all sub-steps"):
        choose_for_all("x", [first, spaces.Discrete(2)])
