"""What every block does, whatever else it does. A new block gets an entry in cases.py and is tested by it."""

from __future__ import annotations

import copy
import doctest
import inspect
import io
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from maze_pl import perception
from maze_pl.perception import PerceptionBlock
from maze_pl.perception.blocks.convolution import ConvolutionBlock
from tests.devices import DEVICES
from tests.perception.blocks.case import Case, Shape, assert_same, levels
from tests.perception.blocks.cases import CASES

FURTHER = {  # variants of options that others show, too
    "dense_layer_norm",
    "vgg_layer_norm",
    "strided_volume",
    "strided_sequence_dense",
    "lstm_last_step_batch_norm",
    "masked_global_pooling_of_two",
    "self_attention_conv_weights",
    "graph_conv_as_given",
    "graph_attention_options",
    "pointer_whole_numbers",
}


def marked(names: Iterable[str]) -> list[Any]:
    """Names of cases, those of further variants marked as long."""
    further = [pytest.mark.slow, pytest.mark.long]
    return [pytest.param(name, marks=further) if name in FURTHER else name for name in names]


@pytest.fixture(params=marked(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each device there is, with true float32 where a GPU would take a shorter type."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield request.param
    torch.backends.cudnn.allow_tf32 = before


def to(tensors: Mapping[str, Tensor], target: Any) -> dict[str, Tensor]:
    """On another device or, but for masks and indices, of another type."""
    is_type = isinstance(target, torch.dtype)
    return {k: t if is_type and not t.is_floating_point() else t.to(target) for k, t in tensors.items()}


def names_out(block: PerceptionBlock) -> set[str]:
    return {*block.out_keys, *getattr(block, "state_shapes", {})}


def test_every_block_is_in_the_table() -> None:
    exported = {
        kind
        for kind in vars(perception).values()
        if inspect.isclass(kind) and issubclass(kind, PerceptionBlock) and not inspect.isabstract(kind)
    }
    assert exported == {type(case.build()) for case in CASES.values()}


@pytest.mark.parametrize(
    "kind", sorted({type(case.build()) for case in CASES.values()}, key=lambda kind: kind.__name__)
)
def test_the_example_in_its_description_runs(kind: type[PerceptionBlock]) -> None:
    module = vars(sys.modules[kind.__module__])
    (example,) = doctest.DocTestFinder(recurse=False).find(kind, kind.__name__, globs={**module, "torch": torch})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


WRONG: list[Any] = [None, True, 0, -1, 2.5, "x", [], [0], [-1], [2.5], ["x"], [None], [[[2]]], {}]


OPTIONAL = {"hidden_strides", "hidden_padding", "hidden_dilations", "normalization", "mask_key", "levels", "clip"}


NUMBER_OR_LIST = {"pooling_dim"}


def has_type_of(value: Any, option: Any) -> bool:
    """A value that an option of this type may have."""
    if type(option) is float and type(value) is int:
        return True
    return type(value) is type(option) or (isinstance(value, str) and (callable(option) or isinstance(option, str)))


def refusals(case: Case) -> Iterator[tuple[str, BaseException]]:
    """What happens with options of wrong types, a number for a list and a list for a number among them."""
    for name, option in case.options.items():
        wrong = [value for value in WRONG if not has_type_of(value, option)]
        wrong = [value for value in wrong if value is not None or name not in OPTIONAL]
        wrong = [value for value in wrong if name not in NUMBER_OR_LIST or value not in (0, [0])]
        if isinstance(option, list):
            wrong += [first for first in option[:1] if not isinstance(first, list)]
        elif isinstance(option, int) and name not in NUMBER_OR_LIST:
            wrong.append([option])
        for value in wrong:
            try:
                replace(case, options={**case.options, name: value}).build().out_shapes()
            except Exception as error:
                yield f"{name}={value!r}", error
            else:
                yield f"{name}={value!r}", AssertionError("nothing was raised")


def test_options_of_wrong_types_are_refused(case: Case) -> None:
    for what, error in refusals(case):
        assert isinstance(error, ValueError) and "Block" in str(error), f"{what}: {type(error).__name__}: {error}"


@pytest.mark.parametrize("wrong", [5, None, [], [1], [["in"]], {}])
def test_values_that_are_not_names_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"DenseBlock: in_keys=.*expected a name or a list of names"):
        perception.DenseBlock(wrong, "out", [4], [3])
    with pytest.raises(ValueError, match=r"Block: out_keys=.*expected a name or a list of names"):
        perception.MultiHeadAttentionBlock("in", wrong, [5, 4], 2)
    for several in (perception.MultiHeadAttentionBlock, perception.SelfAttentionSeqBlock):
        with pytest.raises(ValueError, match=r"Block: in_keys=.*expected a name or a list of names"):
            several(wrong, "out", [5, 4], 2)


@pytest.mark.parametrize("wrong", [5, None, "abc", [None], ["a"], [2.5], [-1], [True], {}, [[[3]]], [[2], 3]])
def test_values_that_are_not_shapes_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"DenseBlock: in_shapes=.*expected a shape"):
        perception.DenseBlock("in", "out", wrong, [3])


def test_leading_dimensions_change_nothing(case: Case, device: str) -> None:
    block, inputs = case.build().to(device), to(case.sample(3, 2), device)
    expected = block(inputs)
    assert set(expected) == names_out(block)
    flat = block({name: tensor.flatten(0, 1) for name, tensor in inputs.items()})
    assert_same(flat, {name: tensor.flatten(0, 1) for name, tensor in expected.items()})
    alone = block({name: tensor[2, 1] for name, tensor in inputs.items()})
    assert_same(alone, {name: tensor[2, 1] for name, tensor in expected.items()})


@pytest.mark.parametrize("leading", [(), (0,), (4,), (3, 0), (2, 1, 3)], ids=str)
def test_shapes_are_those_that_the_block_has_said(case: Case, device: str, leading: Shape) -> None:
    block = case.build().to(device)
    shapes = dict(zip(block.out_keys, block.out_shapes(), strict=True)) | getattr(block, "state_shapes", {})
    output = block(to(case.sample(*leading), device))
    assert {name: tuple(tensor.shape) for name, tensor in output.items()} == {
        name: (*leading, *shape) for name, shape in shapes.items()
    }
    assert {tensor.device.type for tensor in output.values()} == {device}


def test_further_dimensions_of_a_shape_are_leading_ones(case: Case) -> None:
    block, inputs = case.build(), case.sample(5, 3)
    stacked = replace(case, inputs={name: (3, *shape) for name, shape in case.inputs.items()})
    if case.shape_is_fixed:
        with pytest.raises(ValueError, match="expected"):
            stacked.build()
        return
    assert stacked.build().out_shapes() == [(3, *shape) for shape in block.out_shapes()]
    assert_same(stacked.build()(inputs), block(inputs))


def test_asking_for_shapes_changes_nothing(case: Case, device: str) -> None:
    block = case.build().to(device)
    for number, module in enumerate(block.modules()):
        module.training = number % 2 == 0
    modes = [module.training for module in block.modules()]
    state, random_state = copy.deepcopy(block.state_dict()), torch.get_rng_state()
    known, block._out_shapes = block.out_shapes(), None  # so that it has to look
    shapes = block.out_shapes()
    assert modes == [module.training for module in block.modules()]
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in block.state_dict().items())
    block._out_shapes = None
    assert known == shapes == block.double().out_shapes()
    shapes.clear()
    assert block.out_shapes() == known


def test_inputs_are_not_changed(case: Case) -> None:
    block, inputs = case.build().train(), case.sample(4)
    before = {name: (tensor, tensor._version, tensor.clone()) for name, tensor in inputs.items()}
    block(inputs)
    assert inputs.keys() == before.keys()
    for name, (tensor, version, content) in before.items():
        assert inputs[name] is tensor and tensor._version == version and torch.equal(tensor, content)


def test_weights_are_saved_and_loaded(case: Case) -> None:
    block, other, inputs = case.build(seed=0), case.build(seed=7), case.sample(4)
    file = io.BytesIO()
    torch.save(block.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_same(other(inputs), block(inputs), tolerance=0)


def test_it_is_copied_and_pickled(case: Case) -> None:
    block, inputs = case.build(), case.sample(4)
    for same in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert_same(same(inputs), block(inputs), tolerance=0)
        assert (same.in_keys, same.out_keys, same.in_shapes) == (block.in_keys, block.out_keys, block.in_shapes)


@pytest.mark.parametrize("name", marked(name for name, case in CASES.items() if [*case.build().parameters()]))
def test_gradients_reach_all_weights(name: str, device: str) -> None:
    block, inputs = CASES[name].build().to(device).train(), CASES[name].sample(6)
    states = {key: torch.randn(6, *shape) for key, shape in getattr(block, "state_shapes", {}).items()}
    outputs = [tensor for tensor in block(to(inputs | states, device)).values() if tensor.requires_grad]
    for tensor in outputs:
        (tensor * torch.linspace(1, 2, tensor.numel(), device=device).view_as(tensor)).sum().backward(retain_graph=True)
    for weight, parameter in block.named_parameters():
        assert parameter.grad is not None, weight
        assert bool(parameter.grad.isfinite().all()) and bool(parameter.grad.any()), weight


def test_gradients_are_those_of_small_changes(case: Case) -> None:
    block, inputs = case.build().double(), to(case.sample(2), torch.float64)
    weights = {name: parameter.detach() for name, parameter in block.named_parameters()}
    varied = {name: tensor for name, tensor in inputs.items() if tensor.is_floating_point()}

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = inputs | dict(zip(varied, tensors, strict=False))
        output = torch.func.functional_call(block, dict(zip(weights, tensors[len(varied) :], strict=True)), (given,))
        return tuple(tensor for tensor in output.values() if tensor.requires_grad)

    tensors = [tensor.clone().requires_grad_() for tensor in (*varied.values(), *weights.values())]
    if not tensors:
        assert not any(tensor.requires_grad for tensor in block(inputs).values())
        return
    assert torch.autograd.gradcheck(run, tensors, fast_mode=True)


@pytest.mark.cuda
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_a_gpu_gives_the_numbers_of_the_cpu(case: Case, device: str) -> None:
    block, inputs = case.build(), case.sample(3, 2)
    expected = block(inputs)
    assert_same(block.to(device)(to(inputs, device)), expected, tolerance=1e-4)


def has_lstm_in_bfloat16(device: str) -> bool:
    """True if torch's own LSTM works under autocast; oneDNN has none for old processors."""
    lstm = torch.nn.LSTM(2, 3).to(device)
    try:
        with torch.autocast(device, torch.bfloat16):
            lstm(torch.zeros(4, 1, 2, device=device))
    except RuntimeError:
        return False
    return True


def test_mixed_precision_gives_finite_numbers(case: Case, device: str) -> None:
    block, inputs = case.build().to(device).train(), to(case.sample(3, 2), device)
    if any(isinstance(part, torch.nn.LSTM) for part in block.modules()) and not has_lstm_in_bfloat16(device):
        with torch.autocast(device, torch.bfloat16), pytest.raises(RuntimeError, match="primitive"):
            block(inputs)  # the error of torch
        return
    with torch.autocast(device, torch.bfloat16):
        output = block(inputs)
    expected = block(inputs)
    assert {name: tensor.shape for name, tensor in output.items()} == {n: t.shape for n, t in expected.items()}
    assert all(bool(tensor.isfinite().all()) for tensor in output.values())
    for parameter in block.parameters():
        assert parameter.dtype == torch.float32


def test_weights_of_any_floating_point_type_give_that_type(case: Case) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        block = case.build().to(dtype)
        output = block({key: value.to(dtype) for key, value in case.sample(3, 2).items()})
        assert {tensor.dtype for tensor in output.values()} == {dtype}


ARRANGES = {  # the values themselves, in the type that they have
    perception.ConcatenationBlock,
    perception.FlattenBlock,
    perception.MultiIndexSlicingBlock,
    perception.RepeatToMatchBlock,
    perception.SlicingBlock,
    perception.UnsqueezeBlock,
}
CUSTOM = {perception.FunctionalBlock, perception.TorchModelBlock}  # users' functions get what there is


def images(block: PerceptionBlock) -> set[str]:
    """Names of the inputs whose bytes are colours, which a convolution divides by 255."""
    has_convolution = any(isinstance(part, ConvolutionBlock) for part in block.modules())
    return set() if getattr(block, "scaling", None) is not None or not has_convolution else {"in", "image"}


@pytest.mark.parametrize("weights", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("of_values", [torch.int64, torch.uint8, torch.int8, torch.bool], ids=str)
def test_integers_and_flags_count_as_floats_of_the_same_values(
    case: Case, of_values: torch.dtype, weights: torch.dtype
) -> None:
    block, inputs = case.build().to(weights), case.sample(3, 2)
    if type(block) in CUSTOM:
        return
    generator = torch.Generator().manual_seed(2)
    floats = {}
    for name, tensor in inputs.items():
        if name not in case.draw:  # products and sums of such numbers are too large for bytes
            inputs[name] = torch.randint(100, tensor.shape, generator=generator).to(of_values)
        elif case.draw[name] is levels:
            inputs[name] = tensor.to(of_values)
        floats[name] = inputs[name].to(weights)
        if of_values is torch.uint8 and name in images(block):
            floats[name] /= 255
    output, expected = block(inputs), block(floats)
    if type(block) in ARRANGES:
        assert {tensor.dtype for tensor in output.values()} == {of_values}
        output = {name: tensor.to(weights) for name, tensor in output.items()}
    assert {tensor.dtype for tensor in output.values()} == {weights}
    assert_same(output, expected, tolerance=0)
