from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.envs.wrappers import (
    FlattenPreProcessor,
    OneHotPreProcessor,
    PreProcessor,
    ResizeImgPreProcessor,
    Rgb2GrayPreProcessor,
    TransposePreProcessor,
    UnSqueezePreProcessor,
)

BYTES = spaces.Box(0, 255, (5, 7, 3), np.uint8)
GENERATOR = np.random.default_rng(0)


def image(*shape: int) -> np.ndarray:
    return GENERATOR.integers(256, size=shape, dtype=np.uint8)


CASES: list[tuple[Any, Any]] = [
    (lambda space: FlattenPreProcessor(space, 2), BYTES),
    (lambda space: TransposePreProcessor(space, [2, 0, 1]), BYTES),
    (lambda space: UnSqueezePreProcessor(space, -2), BYTES),
    (lambda space: Rgb2GrayPreProcessor(space, 2), BYTES),
    (lambda space: Rgb2GrayPreProcessor(space, 2), spaces.Box(-0.1, 0.7, (5, 7, 3), np.float32)),
    (lambda space: Rgb2GrayPreProcessor(space), spaces.Box(-np.inf, np.inf, (5, 7, 3), np.float64)),
    (lambda space: ResizeImgPreProcessor(space, [3, 11]), BYTES),
    (
        lambda space: ResizeImgPreProcessor(space, [3, 3], transpose=True),
        spaces.Box(-0.1, 0.7, (3, 8, 9), np.float32),
    ),
    (lambda space: ResizeImgPreProcessor(space, [3, 3]), spaces.Box(0.0, np.inf, (8, 9), np.float64)),
    (OneHotPreProcessor, spaces.Discrete(4, start=-2)),
]


@pytest.mark.parametrize(("make", "space"), CASES)
def test_what_comes_out_is_in_the_processed_space_and_the_input_stays(make: Any, space: Any) -> None:
    processor = make(space)
    processed = processor.processed_space()
    samples = [np.asarray(space.sample()) for _ in range(50)]
    if isinstance(space, spaces.Box) and space.is_bounded():
        samples += [space.low, space.high]
    for sample in samples:
        before = sample.copy()
        value = processor.process(sample)
        assert processed.contains(value), (value, processed)
        np.testing.assert_array_equal(processor.process(sample), value)
        np.testing.assert_array_equal(sample, before)


@pytest.mark.parametrize(("make", "space"), CASES)
def test_tensors_are_processed_as_arrays_are(make: Any, space: Any) -> None:
    processor: PreProcessor = make(space)
    samples = np.stack([np.asarray(space.sample()) for _ in range(50)])
    expected = processor.process_all(samples)
    values = torch.from_numpy(samples.copy())
    found = processor.tensor_function(torch.device("cpu"))(values)
    assert found.numpy().dtype == processor.processed_space().dtype
    if expected.dtype == np.float32 and samples.dtype.kind == "f":
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), samples)


@pytest.mark.parametrize("size", [(84, 84), (7, 5)])
def test_resized_bytes_are_rounded_in_tensors_as_in_arrays(size: tuple[int, int]) -> None:
    images = image(3, 40, 30, 3)
    processor = ResizeImgPreProcessor(spaces.Box(0, 255, (40, 30, 3), np.uint8), size)
    found = processor.tensor_function(torch.device("cpu"))(torch.from_numpy(images))
    np.testing.assert_array_equal(found.numpy(), processor.process_all(images))


def test_pre_processors_of_users_have_no_function_for_tensors_unless_they_define_one() -> None:
    class Halves(PreProcessor):
        def process(self, observation: np.ndarray) -> np.ndarray:
            return observation / 2

    class Dark(Rgb2GrayPreProcessor):
        def average(self, observation: np.ndarray) -> np.ndarray:
            return super().average(observation) / 2

    for processor, message in (
        (Halves(BYTES), "Halves has no"),
        (Dark(BYTES), "Dark has no function for tensors, only"),
    ):
        with pytest.raises(TypeError, match=message):
            processor.tensor_function(torch.device("cpu"))


def test_flatten_joins_dimensions_from_the_right_with_their_bounds() -> None:
    high = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    processor = FlattenPreProcessor(spaces.Box(-np.float32(np.inf), high, (2, 3, 2), np.float32), num_flatten_dims=2)
    np.testing.assert_array_equal(processor.process(high), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
    np.testing.assert_array_equal(processor.processed_space().high, processor.process(high))
    assert processor.processed_space().low.max() == -np.inf
    assert FlattenPreProcessor(BYTES, 3).processed_space() == spaces.Box(0, 255, (105,), np.uint8)
    assert FlattenPreProcessor(BYTES, 1).processed_space() == BYTES


def test_one_hot_counts_categories_from_the_first_one() -> None:
    processor = OneHotPreProcessor(spaces.Discrete(3, start=5))
    np.testing.assert_array_equal(processor.process(np.array(6)), np.float32([0, 1, 0]))
    assert processor.processed_space() == spaces.Box(0, 1, (3,), np.float32)
    first = processor.process(np.array(5))
    assert not np.shares_memory(first, processor.process(np.array(5)))
    for wrong in (4, 8):
        with pytest.raises(ValueError, match=f"{wrong} is not one of the categories of Discrete"):
            processor.process(np.array(wrong))


def test_transpose_and_unsqueeze_move_values_and_keep_bytes() -> None:
    observation = image(5, 7, 3)
    transpose = TransposePreProcessor(BYTES, [2, 0, 1])
    assert transpose.process(observation)[2, 4, 6] == observation[4, 6, 2]
    assert transpose.processed_space() == spaces.Box(0, 255, (3, 5, 7), np.uint8)
    for dim, shape in ((-3, (5, 1, 7, 3)), (0, (1, 5, 7, 3)), (3, (5, 7, 3, 1)), (-1, (5, 7, 3, 1))):
        unsqueeze = UnSqueezePreProcessor(BYTES, dim)
        assert unsqueeze.processed_space() == spaces.Box(0, 255, shape, np.uint8)
        np.testing.assert_array_equal(unsqueeze.process(observation), np.expand_dims(observation, dim))


def test_gray_by_hand_and_by_the_integers_of_pillow() -> None:
    processor = Rgb2GrayPreProcessor(spaces.Box(0, 255, (1, 4, 3), np.uint8))
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], np.uint8)
    assert processor.process(colours).tolist() == [[76, 150, 29, 255]]  # 76.245, 149.685 and 29.07 are rounded
    assert processor.processed_space() == spaces.Box(0, 255, (1, 4), np.uint8)
    grays = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, axis=2)
    np.testing.assert_array_equal(
        Rgb2GrayPreProcessor(spaces.Box(0, 255, (256, 1, 3), np.uint8)).process(grays), grays[..., 0]
    )
    observation = image(5, 7, 3)
    red, green, blue = observation.astype(np.int64).transpose(2, 0, 1)
    exact = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    np.testing.assert_array_equal(Rgb2GrayPreProcessor(BYTES).process(observation), exact)  # bit for bit
    channels_first = Rgb2GrayPreProcessor(spaces.Box(0, 255, (3, 5, 7), np.uint8), rgb_dim=-3)
    np.testing.assert_array_equal(channels_first.process(observation.transpose(2, 0, 1)), exact)


def test_resize_by_hand() -> None:
    def resized(values: list[Any], size: list[int]) -> Any:
        array = np.array(values, np.float32)
        return ResizeImgPreProcessor(spaces.Box(0, 100, array.shape, np.float32), size).process(array).tolist()

    assert resized([[0, 8]], [1, 4]) == [[0, 2, 6, 8]]  # centres at -0.25, 0.25, 0.75, 1.25
    # a new pixel covers two; the triangle around it weighs them with 3 and 3, and the next one with 1: 7 * 1 / 7
    np.testing.assert_allclose(resized([[0, 0, 7, 7]], [1, 2]), [[1, 6]], rtol=1e-6)
    np.testing.assert_allclose(resized([[0, 0, 7, 7], [0, 0, 7, 7]], [1, 2]), [[1, 6]], rtol=1e-6)
    assert resized([[1, 2], [3, 4]], [2, 2]) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("target", [(96, 96), (5, 40), (31, 7), (1, 1)])
def test_resize_is_the_filter_of_torch(target: tuple[int, int]) -> None:
    observation = image(31, 17, 3)
    tensor = torch.from_numpy(observation.transpose(2, 0, 1).copy()).float()[None]
    expected = torch.nn.functional.interpolate(tensor, target, mode="bilinear", antialias=True)[0].numpy()
    for kind, atol in ((np.float32, 2e-3), (np.uint8, 0.502)):  # bytes are rounded
        seen = observation.astype(kind)
        last = ResizeImgPreProcessor(spaces.Box(0, 255, (31, 17, 3), kind), target)
        np.testing.assert_allclose(last.process(seen), expected.transpose(1, 2, 0), atol=atol, rtol=0)
        assert last.processed_space() == spaces.Box(0, 255, (*target, 3), kind)
        first = ResizeImgPreProcessor(spaces.Box(0, 255, (3, 31, 17), kind), target, transpose=True)
        np.testing.assert_allclose(first.process(seen.transpose(2, 0, 1)), expected, atol=atol, rtol=0)
        gray = ResizeImgPreProcessor(spaces.Box(0, 255, (31, 17), kind), target)
        np.testing.assert_allclose(gray.process(seen[..., 0]), expected[0], atol=atol, rtol=0)


def test_means_of_bytes_are_rounded_and_stay_in_range() -> None:
    low, high = np.full((1, 2), 3, np.uint8), np.full((1, 2), 250, np.uint8)
    half = ResizeImgPreProcessor(spaces.Box(low, high, dtype=np.uint8), [1, 1])
    assert half.process(np.array([[3, 4]], np.uint8)).tolist() == [[4]]  # halves up
    assert half.processed_space() == spaces.Box(3, 250, (1, 1), np.uint8)
    for bound in (low, high):
        assert half.process(bound)[0, 0] == bound[0, 0]


def exact_weights(size: int, target: int) -> np.ndarray:
    """[target, size] whole numbers in proportion to the weights of the filter, from fractions."""
    scale = Fraction(size, target)
    rows = []
    for new in range(target):
        centre = (new + Fraction(1, 2)) * scale - Fraction(1, 2)
        rows.append([max(Fraction(0), 1 - abs(old - centre) / max(scale, Fraction(1))) for old in range(size)])
    unit = math.lcm(*[weight.denominator for row in rows for weight in row])
    return np.array([[int(weight * unit) for weight in row] for row in rows])


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((24, 20), (12, 10)),
        ((9, 9), (3, 3)),
        ((8, 8), (6, 6)),
        ((5, 6), (8, 11)),
        ((33, 1), (11, 1)),
        ((37, 41), (13, 17)),
    ],
)
def test_means_of_bytes_are_exact_and_halves_are_rounded_up(shape: tuple[int, int], target: tuple[int, int]) -> None:
    images = np.random.default_rng(1).integers(0, 256, (40_000 // math.prod(target), *shape), np.uint8)
    rows = exact_weights(shape[0], target[0])
    columns = exact_weights(shape[1], target[1]).T
    totals = rows.sum(axis=1, keepdims=True) * columns.sum(axis=0, keepdims=True)
    expected = (2 * (rows @ images.astype(np.int64) @ columns) + totals) // (2 * totals)
    processor = ResizeImgPreProcessor(spaces.Box(0, 255, shape, np.uint8), target)
    np.testing.assert_array_equal([processor.process(one) for one in images], expected)


@pytest.mark.parametrize(
    ("kind", "space", "config", "message"),
    [
        (
            FlattenPreProcessor,
            spaces.Discrete(3),
            {"num_flatten_dims": 1},
            "FlattenPreProcessor needs a Box of at least 1",
        ),
        (FlattenPreProcessor, BYTES, {"num_flatten_dims": 4}, "at least 4 dimensions"),
        (FlattenPreProcessor, BYTES, {"num_flatten_dims": 0}, "num_flatten_dims=0 must be at least 1"),
        (OneHotPreProcessor, BYTES, {}, "OneHotPreProcessor needs a Discrete, not Box"),
        (TransposePreProcessor, spaces.MultiBinary((2, 2)), {"axes": [1, 0]}, "needs a Box"),
        (TransposePreProcessor, BYTES, {"axes": [1, 0]}, r"axes=\[1, 0\] must hold each of \[0, 1, 2\]"),
        (UnSqueezePreProcessor, spaces.Discrete(3), {"dim": 0}, "needs a Box"),
        (UnSqueezePreProcessor, BYTES, {"dim": 4}, "axis 4 is out of bounds"),
        (Rgb2GrayPreProcessor, spaces.Box(0, 1, (5, 4)), {}, r"rgb_dim=-1, must be 3, but the shape is \(5, 4\)"),
        (Rgb2GrayPreProcessor, BYTES, {"rgb_dim": 3}, "rgb_dim=3, must be 3"),
        (Rgb2GrayPreProcessor, spaces.Discrete(3), {}, "needs a Box"),
        (ResizeImgPreProcessor, spaces.Box(0, 1, (4,)), {"target_size": [2, 2]}, "at least 2 dimensions"),
        (ResizeImgPreProcessor, spaces.Box(0, 1, (4, 4, 4, 4)), {"target_size": [2, 2]}, r"not \(4, 4, 4, 4\)"),
        (ResizeImgPreProcessor, BYTES, {"target_size": [2]}, r"target_size=\[2\] must be \[height, width\]"),
        (ResizeImgPreProcessor, BYTES, {"target_size": [2, 0]}, r"target_size=\[2, 0\]"),
    ],
)
def test_spaces_and_arguments_that_do_not_fit_are_refused(
    kind: type[PreProcessor], space: spaces.Space[Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        kind(space, **config)


def test_one_of_your_own_that_moves_values_needs_no_more_than_its_function() -> None:
    class Flip(PreProcessor):
        def process(self, observation: np.ndarray) -> np.ndarray:
            return observation[::-1]

    assert Flip(spaces.Box(np.float32([0, 1]), np.float32([2, 3]))).processed_space() == spaces.Box(
        np.float32([1, 0]), np.float32([3, 2])
    )
    with pytest.raises(TypeError, match="Flip needs a Box"):
        Flip(spaces.Discrete(2)).processed_space()
