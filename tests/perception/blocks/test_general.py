"""The blocks without weights, against numbers by hand and against loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from maze_pl.perception import (
    ActionMaskingBlock,
    ConcatenationBlock,
    CorrelationBlock,
    FlattenBlock,
    FunctionalBlock,
    GlobalAveragePoolingBlock,
    MaskedGlobalPoolingBlock,
    MultiIndexSlicingBlock,
    OneHotBlock,
    PerceptionBlock,
    RepeatToMatchBlock,
    SlicingBlock,
    UnsqueezeBlock,
)

NUMBERS = torch.arange(12.0).reshape(2, 3, 2)


def run(block: PerceptionBlock, *tensors: Tensor) -> Tensor:
    """The only output of a block."""
    (output,) = block(dict(zip(block.in_keys, tensors, strict=True))).values()
    return output


@pytest.mark.parametrize(("num_flatten_dims", "shape"), [(1, (2, 3, 2)), (2, (2, 6)), (3, (12,))])
def test_flatten_joins_the_last_dimensions(num_flatten_dims: int, shape: tuple[int, ...]) -> None:
    block = FlattenBlock("in", "out", [2, 3, 2], num_flatten_dims)
    assert torch.equal(run(block, NUMBERS), torch.arange(12.0).reshape(shape))
    assert block.out_shapes() == [shape]


def test_correlation_multiplies_and_sums() -> None:
    a, b = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, 1.0]]), torch.tensor([[4.0, -5.0, 6.0], [2.0, 7.0, -1.0]])
    elements = CorrelationBlock(["a", "b"], "out", [[2, 3], [2, 3]], reduce=False)
    assert run(elements, a, b).tolist() == [[4.0, -10.0, 18.0], [1.0, 0.0, -1.0]]
    product = CorrelationBlock(["a", "b"], "out", [[2, 3], [2, 3]], reduce=True)
    assert run(product, a, b).tolist() == [12.0, 0.0]


@pytest.mark.parametrize(
    ("shapes", "equation", "expected"),
    [
        ([(4,), (5, 4)], "bn,bmn->bmn", (5, 4)),
        ([(5, 4), (4,)], "bmn,bn->bmn", (5, 4)),
        ([(3, 4), (3, 5, 4)], "bkn,bkmn->bkmn", (3, 5, 4)),
        ([(5, 4), (3, 5, 4)], "bmn,bkmn->bkmn", (3, 5, 4)),
        ([(3, 4), (5, 4)], "bkn,bmn->bkmn", (3, 5, 4)),
        ([(4,), (4, 4)], "bn,bmn->bmn", (4, 4)),
    ],
)
def test_correlation_inserts_dimensions_where_sizes_differ(
    shapes: list[tuple[int, ...]], equation: str, expected: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, *shape, generator=generator) for shape in shapes]
    elements = CorrelationBlock(["a", "b"], "out", shapes, reduce=False)
    assert elements.out_shapes() == [expected]
    torch.testing.assert_close(run(elements, *tensors), torch.einsum(equation, *tensors))
    products = CorrelationBlock(["a", "b"], "out", shapes, reduce=True)
    assert products.out_shapes() == [expected[:-1]]
    torch.testing.assert_close(run(products, *tensors), torch.einsum(equation.removesuffix("n"), *tensors))


def test_correlation_repeats_what_has_size_one() -> None:
    block = CorrelationBlock(["a", "b"], "out", [[1, 2], [3, 2]], reduce=True)
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    assert run(block, torch.tensor([[3.0, 5.0]]), rows).tolist() == [3.0, 5.0, 16.0]


@pytest.mark.parametrize("concat_dim", [-2, 0])
def test_concatenation_joins_in_the_order_of_names(concat_dim: int) -> None:
    block = ConcatenationBlock(["a", "b", "c"], "out", [[1, 2], [2, 2], [1, 2]], concat_dim)
    tensors = [torch.tensor(rows) for rows in ([[1, 2]], [[3, 4], [5, 6]], [[7, 8]])]
    assert run(block, *tensors).tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    batch = [tensor.expand(5, *tensor.shape) for tensor in tensors]
    assert run(block, *batch)[3].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_concatenation_joins_the_last_dimension_if_nothing_is_said() -> None:
    block = ConcatenationBlock(["a", "b"], "out", [[2, 1], [2, 2]])
    assert run(block, torch.tensor([[1], [2]]), torch.tensor([[3, 4], [5, 6]])).tolist() == [[1, 3, 4], [2, 5, 6]]
    assert ConcatenationBlock(["a"], "out", [[2]]).out_shapes() == [(2,)]


def largest_and_index(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.amax(-1), x.argmax(-1).float()


def difference(a: Tensor, b: Tensor) -> Tensor:
    return a - b


class Difference(torch.nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a - b


@pytest.mark.parametrize("func", [difference, lambda b, a: a - b, Difference(), partial(torch.sub, alpha=1)])
def test_functions_get_several_tensors_by_argument_name(func: Any) -> None:
    a, b = ("input", "other") if isinstance(func, partial) else ("a", "b")
    tensors = {a: torch.tensor([5.0, 7.0]), b: torch.tensor([1.0, 9.0])}
    for keys in ([a, b], [b, a]):
        assert FunctionalBlock(keys, "out", [[2], [2]], func)(tensors)["out"].tolist() == [4.0, -2.0]


@pytest.mark.parametrize(
    ("in_keys", "func", "message"),
    [
        (
            ["x", "b"],
            difference,
            r"the arguments \['x', 'b'\], by name, not \(a.*, b.*missing a required argument: 'a'",
        ),
        (["a", "b"], lambda *tensors: tensors[0], "unexpected keyword argument 'a'"),
        (["a", "x"], Difference(), "missing a required argument: 'b'"),
        (["a"], difference, "func to take one argument, not .*missing a required argument: 'b'"),
    ],
)
def test_functions_with_other_arguments_are_refused(in_keys: list[str], func: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"FunctionalBlock from .*{message}"):
        FunctionalBlock(in_keys, "out", [[2]] * len(in_keys), func)


def test_functions_get_one_tensor_by_position_and_give_one_or_several() -> None:
    block = FunctionalBlock("in", ["largest", "index"], [3], largest_and_index)
    output = block({"in": torch.tensor([1.0, 5.0, 2.0])})
    assert {name: tensor.item() for name, tensor in output.items()} == {"largest": 5.0, "index": 1.0}
    assert block.out_shapes() == [(), ()]


def test_functions_are_named_by_their_path_and_modules_are_functions() -> None:
    assert run(FunctionalBlock("in", "out", [2], "torch.abs"), torch.tensor([-1.0, 2.0])).tolist() == [1.0, 2.0]
    module = torch.nn.Linear(2, 3)
    block = FunctionalBlock("in", "out", [2], module)
    assert block.out_shapes() == [(3,)] and [*block.parameters()] == [*module.parameters()]
    with pytest.raises(ImportError, match="torch has nothing named nonsense"):
        FunctionalBlock("in", "out", [2], "torch.nonsense")


@pytest.mark.parametrize(
    ("out_keys", "func", "given"),
    [
        ("out", largest_and_index, "tuple"),
        ("out", torch.nn.ReLU, "ReLU"),
        (["a", "b", "c"], largest_and_index, "tuple"),
        (["a", "b"], torch.Tensor.tolist, "list"),
    ],
)
def test_functions_that_give_something_else_are_refused(out_keys: Any, func: Any, given: str) -> None:
    block = FunctionalBlock("in", out_keys, [2], func)
    with pytest.raises(ValueError, match=rf"FunctionalBlock from 'in' \(2,\).*one tensor for each of .*not {given}"):
        block({"in": torch.zeros(2)})


def test_global_average_pooling_averages_each_channel() -> None:
    block = GlobalAveragePoolingBlock("in", "out", [2, 3, 2])
    assert run(block, NUMBERS).tolist() == [2.5, 8.5]


def pooled_by_loops(x: np.ndarray, mask: np.ndarray, function: str) -> np.ndarray:
    """[N, F] and [N] to [F]."""
    given = np.zeros(x.shape[1])
    for feature in range(x.shape[1]):
        there = [x[index, feature] for index in range(len(x)) if mask[index]]
        if there:
            given[feature] = {"mean": np.mean, "sum": np.sum, "max": np.max}[function](there)
    return given


@pytest.mark.parametrize("function", ["mean", "sum", "max"])
def test_masked_pooling_is_that_of_the_elements_that_exist(function: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 5, 3, generator=generator, dtype=torch.float64)
    mask = torch.rand(20, 5, generator=generator) < 0.4
    mask[3] = False
    block = MaskedGlobalPoolingBlock(["set", "mask"], "out", [[5, 3], [5]], function, -2)
    expected = [pooled_by_loops(one, exists, function) for one, exists in zip(x.numpy(), mask.numpy(), strict=True)]
    np.testing.assert_allclose(run(block, x, mask.int()).numpy(), expected, atol=1e-12)
    assert not run(block, x, mask)[3].any()
    without_mask = MaskedGlobalPoolingBlock("set", "out", [5, 3], function, 0)
    expected = [pooled_by_loops(one, np.ones(5), function) for one in x.numpy()]
    np.testing.assert_allclose(run(without_mask, x).numpy(), expected, atol=1e-12)
    whole = MaskedGlobalPoolingBlock(["set", "mask"], "out", [[5, 3], [5, 3]], function, -2)
    assert torch.equal(run(whole, x, mask.unsqueeze(-1).expand(20, 5, 3)), run(block, x, mask))


@pytest.mark.parametrize("dims", [[-3, -2], [0, 1], [-3, -1], [2, 0, 1]])
@pytest.mark.parametrize("function", ["mean", "sum", "max"])
def test_masked_pooling_of_several_dimensions_is_over_all_their_elements(function: Any, dims: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, 4, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(7, 3, 4, 2, generator=generator) < 0.3
    mask = mask[..., 0] if -1 not in dims and 2 not in dims else mask
    mask[2] = False
    block = MaskedGlobalPoolingBlock(["set", "mask"], "out", [[3, 4, 2], mask.shape[1:]], function, dims)
    kept = [dim for dim in range(3) if dim not in dims and dim - 3 not in dims]
    every = mask.numpy() if mask.dim() == 4 else mask.unsqueeze(-1).expand(7, 3, 4, 2).numpy()
    expected = np.zeros((7, *(x.shape[1 + dim] for dim in kept)))
    for place in np.ndindex(expected.shape):
        there = []
        for entry in np.ndindex(3, 4, 2):
            belongs = tuple(entry[dim] for dim in kept) == place[1:]
            if belongs and every[(place[0], *entry)]:
                there.append(float(x[(place[0], *entry)]))
        if there:
            expected[place] = {"mean": np.mean, "sum": np.sum, "max": np.max}[function](there)
    np.testing.assert_allclose(run(block, x, mask).numpy(), expected, atol=1e-12)
    alone = MaskedGlobalPoolingBlock("set", "out", [3, 4, 2], function, dims)
    over = tuple(dim + 1 if dim >= 0 else dim for dim in dims)
    reduced = {"mean": x.mean, "sum": x.sum, "max": x.amax}[function](over)
    torch.testing.assert_close(run(alone, x), reduced)


@pytest.mark.parametrize("other", [7.0, -1e30, torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("function", ["mean", "sum", "max"])
def test_masked_pooling_never_looks_at_what_does_not_exist(function: Any, other: float) -> None:
    x, mask = torch.randn(4, 5, 3), torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
    block = MaskedGlobalPoolingBlock(["set", "mask"], "out", [[5, 3], [5]], function, -2)
    changed = torch.where(mask.unsqueeze(-1) != 0, x, other).requires_grad_()
    output = run(block, changed, mask)
    assert torch.equal(output, run(block, x, mask))
    output.sum().backward()
    assert changed.grad is not None and bool(changed.grad.isfinite().all())
    assert not changed.grad[mask == 0].any() and bool(changed.grad[mask != 0].sum() > 0)


@pytest.mark.parametrize(
    ("select_dim", "select_idxs", "expected"),
    [
        (-1, [1], [[[1], [3], [5]], [[7], [9], [11]]]),
        (1, [2, 0], [[[4, 5], [0, 1]], [[10, 11], [6, 7]]]),
        (-3, [-1, -1], [[[6, 7], [8, 9], [10, 11]]] * 2),
    ],
)
def test_multi_index_slicing_picks_in_the_order_of_indices(
    select_dim: int, select_idxs: list[int], expected: list[Any]
) -> None:
    block = MultiIndexSlicingBlock("in", "out", [2, 3, 2], select_dim, select_idxs)
    assert run(block, NUMBERS).tolist() == expected
    assert run(block, NUMBERS.expand(4, 2, 3, 2))[3].tolist() == expected
    assert not block.state_dict()


@pytest.mark.parametrize(
    ("slice_dim", "slice_idx", "expected"),
    [(-2, -1, [[4, 5], [10, 11]]), (0, 1, [[6, 7], [8, 9], [10, 11]]), (2, 0, [[0, 2, 4], [6, 8, 10]])],
)
def test_slicing_picks_one_entry(slice_dim: int, slice_idx: int, expected: list[Any]) -> None:
    block = SlicingBlock("in", "out", [2, 3, 2], slice_dim, slice_idx)
    assert run(block, NUMBERS).tolist() == expected
    assert run(block, NUMBERS.expand(4, 2, 3, 2))[1].tolist() == expected


@pytest.mark.parametrize(
    ("repeat_at_idx", "repeated", "shape", "expected"),
    [
        (-2, (1, 2), (3, 4), [[1, 2], [1, 2], [1, 2]]),
        (0, (1, 2), (3, 4), [[1, 2], [1, 2], [1, 2]]),
        (-1, (2, 1), (4, 3), [[1, 1, 1], [2, 2, 2]]),
        (-1, (2, 1), (3,), [[1, 1, 1], [2, 2, 2]]),
        (-2, (1, 2), (7, 3, 4), [[1, 2], [1, 2], [1, 2]]),
    ],
)
def test_repeat_to_match_repeats_as_often_as_there_are_others(
    repeat_at_idx: int, repeated: tuple[int, ...], shape: tuple[int, ...], expected: list[Any]
) -> None:
    block = RepeatToMatchBlock(["in", "match"], "out", [repeated, shape], repeat_at_idx)
    assert run(block, torch.tensor([1, 2]).reshape(repeated), torch.zeros(shape)).tolist() == expected
    both = run(block, torch.tensor([1, 2, 3, 4]).reshape(2, *repeated), torch.zeros(2, *shape))
    assert both[0].tolist() == expected and both[1].sum() == 7 * 3


@pytest.mark.parametrize(
    ("shape", "options", "numbers", "expected"),
    [
        ((), {"n_categories": 3}, 1, [0, 1, 0]),
        ((), {"n_categories": 3, "start": -1}, -1, [1, 0, 0]),
        ((2,), {"n_categories": [2, 3], "start": [0, 5]}, [1, 6], [0, 1, 0, 1, 0]),
        ((2, 1), {"n_categories": [2, 2], "start": 1}, [[1], [2]], [1, 0, 0, 1]),
        ((), {"n_categories": 3}, 3, [0, 0, 0]),
    ],
)
def test_categories_are_ones_among_zeros(
    shape: tuple[int, ...], options: dict[str, Any], numbers: Any, expected: list[int]
) -> None:
    block = OneHotBlock("in", "out", [*shape], **options)
    assert run(block, torch.tensor(numbers)).tolist() == expected
    assert run(block, torch.tensor([numbers, numbers])).tolist() == [expected, expected]
    assert run(block.double(), torch.tensor(numbers)).dtype == torch.float64
    assert block.out_shapes() == [(len(expected),)] and not block.state_dict()


def test_one_hot_vectors_of_unit_variance_have_a_mean_square_of_1() -> None:
    block = OneHotBlock("in", "out", [2], n_categories=[4, 9], start=[1, 0], unit_variance=True)
    assert block({"in": torch.tensor([3, 8])})["out"].tolist() == [0, 0, 2, 0, *[0] * 8, 3]
    everything = torch.tensor([[1 + n // 9, n % 9] for n in range(36)])
    torch.testing.assert_close(block({"in": everything})["out"].square().mean(0), torch.ones(13))


def test_a_dimension_is_inserted_where_it_is_wanted() -> None:
    for dim, shape in ((0, (1, 3, 2)), (1, (3, 1, 2)), (-1, (3, 2, 1))):
        block = UnsqueezeBlock("in", "out", [3, 2], dim)
        assert block.out_shapes() == [shape] and run(block, torch.zeros(5, 3, 2)).shape == (5, *shape)


def test_masked_logits_are_the_lowest_number_and_the_others_as_they_were() -> None:
    block = ActionMaskingBlock(["logits", "mask"], "masked", [[4], [4]])
    logits = torch.tensor([[1.0, -2.0, 3.0, 0.5], [1.0, 1.0, 1.0, 1.0]])
    lowest = torch.finfo(torch.float32).min
    masked = run(block, logits, torch.tensor([[1, 0, 0, 1], [0, 0, 1, 1]]))
    assert masked.tolist() == [[1.0, lowest, lowest, 0.5], [lowest, lowest, 1.0, 1.0]]


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_masked_logits_of_any_type(leading: tuple[int, ...], dtype: torch.dtype) -> None:
    block = ActionMaskingBlock(["logits", "mask"], ["masked"], [(4,), (4,)])
    masked = run(block, torch.zeros(*leading, 4, dtype=dtype), torch.eye(4)[0].expand(*leading, 4))
    assert masked.shape == (*leading, 4) and masked.dtype == dtype
    assert bool((masked[..., 0] == 0).all()) and bool((masked[..., 1:] == torch.finfo(dtype).min).all())


@pytest.mark.parametrize("allowed", [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
def test_nothing_becomes_nan_and_no_gradient_reaches_masked_logits(allowed: list[float]) -> None:
    logits = torch.tensor([0.3, 50.0, -1.0], requires_grad=True)
    block = ActionMaskingBlock(["logits", "mask"], "masked", [[3], [3]])
    log_probs = run(block, logits, torch.tensor(allowed)).log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum()
    assert bool(log_probs.isfinite().all()) and bool(entropy.isfinite())
    (entropy + log_probs[2]).backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
    assert all(grad == 0 for grad, one in zip(logits.grad.tolist(), allowed, strict=True) if one == 0)
    if allowed == [1.0, 0.0, 1.0]:
        wanted = torch.tensor([0.3, -1.0], requires_grad=True)
        only = wanted.log_softmax(-1)
        (-(only.exp() * only).sum() + only[1]).backward()
        assert wanted.grad is not None
        torch.testing.assert_close(logits.grad[[0, 2]], wanted.grad)


TWO = [[3], [3]]
WRONG: list[tuple[type[PerceptionBlock], Any, Any, Any, dict[str, Any], str]] = [
    (FlattenBlock, "a", "o", [2, 3], {"num_flatten_dims": 3}, "one input with at least 3 dimensions"),
    (
        FlattenBlock,
        "a",
        "o",
        [2, 3],
        {"num_flatten_dims": 0},
        "num_flatten_dims to be a whole number of at least 1, not 0",
    ),
    (FlattenBlock, ["a", "b"], "o", TWO, {"num_flatten_dims": 1}, "one input"),
    (CorrelationBlock, ["a", "b"], "o", [[3], [4]], {"reduce": True}, "last dimensions are equal"),
    (CorrelationBlock, ["a", "b"], "o", [[], []], {"reduce": True}, "two inputs (..., n)"),
    (CorrelationBlock, "a", "o", [3], {"reduce": True}, "two inputs (..., n)"),
    (CorrelationBlock, ["a", "b"], ["o", "p"], TWO, {"reduce": True}, "one output"),
    (ConcatenationBlock, ["a", "b"], "o", [[3, 2], [4, 3]], {}, "differ in dimension -1 at most"),
    (ConcatenationBlock, ["a", "b"], "o", [[3], [3, 3]], {}, "differ in dimension -1 at most"),
    (ConcatenationBlock, ["a", "b"], "o", TWO, {"concat_dim": 1}, "concat_dim from -1 to 0, not 1"),
    (ConcatenationBlock, ["a", "b"], ["o", "p"], TWO, {}, "one output"),
    (FunctionalBlock, "a", "o", [3], {"func": 5}, "func to be a function or its path, not 5"),
    (FunctionalBlock, "a", "o", [3], {"func": "torch.pi"}, "func to be a function or its path, not 'torch.pi'"),
    (GlobalAveragePoolingBlock, "a", "o", [3, 2], {}, "one input with at least 3 dimensions"),
    (GlobalAveragePoolingBlock, "a", ["o", "p"], [3, 2, 2], {}, "one output"),
    (MaskedGlobalPoolingBlock, "a", "o", [3], {"pooling_func": "min", "pooling_dim": -1}, "'max', not 'min'"),
    (MaskedGlobalPoolingBlock, "a", "o", [3], {"pooling_func": "max", "pooling_dim": -2}, "from -1 to 0, not -2"),
    (MaskedGlobalPoolingBlock, list("ab"), "o", [[3, 2], [2]], {"pooling_func": "max", "pooling_dim": -2}, "a mask"),
    (MaskedGlobalPoolingBlock, list("ab"), "o", [[3, 2], [3]], {"pooling_func": "max", "pooling_dim": -1}, "a mask"),
    (
        MaskedGlobalPoolingBlock,
        "a",
        "o",
        [3, 2],
        {"pooling_func": "max", "pooling_dim": [-1, 1]},
        "without repetitions",
    ),
    (MaskedGlobalPoolingBlock, "a", "o", [3, 2], {"pooling_func": "max", "pooling_dim": []}, "at least one dimension"),
    (MaskedGlobalPoolingBlock, "a", "o", [3, 2], {"pooling_func": "max", "pooling_dim": [0, 2]}, "from -2 to 1, not 2"),
    (
        MaskedGlobalPoolingBlock,
        list("ab"),
        "o",
        [[3, 2, 4], [3, 2]],
        {"pooling_func": "max", "pooling_dim": [0, 2]},
        "a mask of the first dimensions of (3, 2, 4), dimension [0, 2] included",
    ),
    (MaskedGlobalPoolingBlock, list("abc"), "o", [[3]] * 3, {"pooling_func": "max", "pooling_dim": -1}, "one input"),
    (MultiIndexSlicingBlock, "a", "o", [3], {"select_dim": 1, "select_idxs": [0]}, "select_dim from -1 to 0, not 1"),
    (MultiIndexSlicingBlock, "a", "o", [3], {"select_dim": 0, "select_idxs": [0, 3]}, "from -3 to 2, not 3"),
    (MultiIndexSlicingBlock, "a", "o", [3], {"select_dim": 0, "select_idxs": []}, "select_idxs to be a list"),
    (RepeatToMatchBlock, ["a", "b"], "o", [[1], [4]], {"repeat_at_idx": -2}, "repeat_at_idx from -1 to 0, not -2"),
    (RepeatToMatchBlock, ["a", "b"], "o", [[1], [4, 2]], {"repeat_at_idx": 1}, "repeat_at_idx from -1 to 0, not 1"),
    (RepeatToMatchBlock, ["a", "b"], "o", [[8], [5, 3]], {"repeat_at_idx": -1}, "size 1 in dimension -1"),
    (RepeatToMatchBlock, "a", "o", [3], {"repeat_at_idx": 0}, "two inputs and one output"),
    (OneHotBlock, "a", "o", [2], {"n_categories": 3}, "n_categories and start for each of 2 numbers, not [3] and [0]"),
    (OneHotBlock, "a", "o", [], {"n_categories": 3, "start": [0, 1]}, "for each of 1 numbers"),
    (UnsqueezeBlock, "a", "o", [3], {"unsqueeze_dim": 2}, "unsqueeze_dim from -2 to 1, not 2"),
    (SlicingBlock, "a", "o", [3], {"slice_dim": -2, "slice_idx": 0}, "slice_dim from -1 to 0, not -2"),
    (SlicingBlock, "a", "o", [3], {"slice_dim": -1, "slice_idx": -4}, "slice_idx from -3 to 2, not -4"),
    (ActionMaskingBlock, ["a"], "o", [[3]], {}, "logits and a mask of one shape"),
    (ActionMaskingBlock, ["a", "b"], ["o", "p"], TWO, {}, "one output"),
    (ActionMaskingBlock, ["a", "b"], "o", [[3], [4]], {}, "logits and a mask of one shape"),
]


@pytest.mark.parametrize(("kind", "in_keys", "out_keys", "in_shapes", "options", "message"), WRONG)
def test_invalid_options_are_refused_by_name(
    kind: type[PerceptionBlock], in_keys: Any, out_keys: Any, in_shapes: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        kind(in_keys, out_keys, in_shapes, **options)
    assert str(error.value).startswith(f"{kind.__name__} from 'a' (") and message in str(error.value)


def test_shapes_that_cannot_be_joined_are_named_with_their_keys() -> None:
    with pytest.raises(ValueError) as error:
        ConcatenationBlock(["inventory", "screen"], "joined", [[16], [3, 8]])
    assert str(error.value) == (
        "ConcatenationBlock from 'inventory' (16,), 'screen' (3, 8) to ['joined']: expected shapes that differ in "
        "dimension -1 at most, and one output"
    )
