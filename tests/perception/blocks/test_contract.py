"""What every block does, whatever else it does. A new block gets an entry in the table below and is tested by it."""

from __future__ import annotations

import copy
import doctest
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from maze_pl import perception
from maze_pl.bundle.onnx_graphs import to_onnx
from maze_pl.perception import PerceptionBlock
from tests.devices import DEVICES

Shape = tuple[int, ...]
Draw = Callable[[Shape, Generator], Tensor]


def numbers(shape: Shape, generator: Generator) -> Tensor:
    """What goes in if the table says nothing else."""
    return torch.randn(shape, generator=generator)


def mask(shape: Shape, generator: Generator) -> Tensor:
    """About half of them True, the last one always; so that something exists in each row."""
    drawn = torch.rand(shape, generator=generator) < 0.5
    drawn[..., -1] = True
    return drawn


def neighbours(shape: Shape, generator: Generator) -> Tensor:
    """An adjacency with about half of the edges."""
    return torch.rand(shape, generator=generator).round()


def edges(shape: Shape, generator: Generator) -> Tensor:
    """Edges between four nodes, and some padding."""
    drawn = torch.randint(4, shape, generator=generator)
    return torch.where(torch.rand(shape[:-1], generator=generator).unsqueeze(-1) < 0.2, -1, drawn)


def slots(shape: Shape, generator: Generator) -> Tensor:
    """Numbers of five slots, and -1 for none."""
    return torch.randint(-1, 5, shape, generator=generator)


def levels(shape: Shape, generator: Generator) -> Tensor:
    """Whole numbers, of which the largest is beyond the levels."""
    return torch.randint(4, shape, generator=generator)


def with_random_weights(kind: Callable[..., PerceptionBlock]) -> Callable[..., PerceptionBlock]:
    """A block of which some weights would start at 0, and keep gradients from others."""

    def build(*arguments: Any, **options: Any) -> PerceptionBlock:
        block = kind(*arguments, **options)
        for parameter in block.parameters():
            nn.init.normal_(parameter, std=0.3)
        return block

    return build


@dataclass(frozen=True)
class Case:
    """A block and what goes into it.

    Attributes:
        kind: Class of the block, or a function with the same arguments.
        inputs: Name -> shape of what goes in.
        options: Further arguments.
        outputs: Names of what comes out.
        draw: Name -> how its numbers are drawn, where they are not normally distributed.
        shape_is_fixed: Shapes with more dimensions do not count as leading ones, and why.
    """

    kind: Callable[..., PerceptionBlock]
    inputs: Mapping[str, Shape]
    options: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("out",)
    draw: Mapping[str, Draw] = field(default_factory=dict)
    shape_is_fixed: str = ""

    def build(self, seed: int = 0) -> PerceptionBlock:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.kind([*self.inputs], [*self.outputs], [*self.inputs.values()], **self.options).eval()

    def sample(self, *leading: int, seed: int = 1) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return {
            name: self.draw.get(name, numbers)((*leading, *shape), generator) for name, shape in self.inputs.items()
        }


class TwoLayers(nn.Module):
    """Plain PyTorch that knows dicts and one batch dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(6, 5)

    def forward(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"out": self.second(torch.cat([self.first(tensors["a"]).tanh(), tensors["b"]], 1))}


def torch_model(in_keys: list[str], out_keys: list[str], in_shapes: list[Shape]) -> perception.TorchModelBlock:
    return perception.TorchModelBlock(in_keys, out_keys, in_shapes, in_num_dims=2, out_num_dims=[2], net=TwoLayers())


def two_modalities(in_keys: list[str], out_keys: list[str], in_shapes: list[Shape]) -> perception.InferenceBlock:
    """An image and a vector to two action heads."""
    shapes = dict(zip(in_keys, in_shapes, strict=True))
    image = perception.VGGConvolutionDenseBlock(
        "image", "seen", shapes["image"], hidden_channels=[2], hidden_units=[3], non_lin=nn.Tanh
    )
    vector = perception.DenseBlock("vector", "felt", shapes["vector"], hidden_units=[4], non_lin=nn.Tanh)
    both = perception.ConcatenationBlock(["seen", "felt"], "latent", [*image.out_shapes(), *vector.out_shapes()])
    heads = {key: perception.LinearOutputBlock("latent", key, both.out_shapes(), 2) for key in out_keys}
    blocks = {"image": image, "vector": vector, "both": both, **heads}
    return perception.InferenceBlock(in_keys, out_keys, in_shapes, blocks)


def by_name(x: Tensor, y: Tensor) -> Tensor:
    return x.tanh() * y


IMAGE = {"in": (2, 8, 6)}
CASES = {
    # ---- dense, convolution, lstm, joint, torch_model
    "dense": Case(perception.DenseBlock, {"in": (5,)}, {"hidden_units": [4, 3], "non_lin": "torch.nn.Tanh"}),
    "dense_batch_norm": Case(
        perception.DenseBlock,
        {"in": (5,)},
        {"hidden_units": [4, 3], "non_lin": nn.Tanh, "normalization": "batch", "dropout": 0.1},
    ),
    "dense_layer_norm": Case(
        perception.DenseBlock, {"in": (5,)}, {"hidden_units": [4, 3], "non_lin": nn.Tanh, "normalization": "layer"}
    ),
    "linear_output": Case(perception.LinearOutputBlock, {"in": (5,)}, {"output_units": 2}),
    "vgg": Case(perception.VGGConvolutionBlock, IMAGE, {"hidden_channels": [3, 2], "non_lin": nn.Tanh}),
    "strided": Case(
        perception.StridedConvolutionBlock,
        IMAGE,
        {
            "hidden_channels": [3, 2],
            "hidden_kernels": [[3, 2], 2],
            "hidden_strides": [2, 1],
            "hidden_padding": [[1, 0], 1],
            "non_lin": nn.Tanh,
        },
    ),
    "vgg_layer_norm": Case(
        perception.VGGConvolutionBlock,
        IMAGE,
        {"hidden_channels": [3, 2], "non_lin": nn.Tanh, "normalization": "layer", "dropout": 0.1},
    ),
    "strided_sequence": Case(
        perception.StridedConvolutionBlock,
        {"in": (2, 9)},
        {
            "hidden_channels": [3, 2],
            "hidden_kernels": [3, 2],
            "hidden_padding": [1, [1]],
            "hidden_dilations": [2, 1],
            "padding_mode": "circular",
            "convolution_dimension": 1,
            "non_lin": nn.Tanh,
            "normalization": "batch",
            "dropout": 0.1,
        },
    ),
    "strided_volume": Case(
        perception.StridedConvolutionBlock,
        {"in": (2, 3, 4, 5)},
        {
            "hidden_channels": [3],
            "hidden_kernels": [2],
            "hidden_padding": [[1, 0, 1]],
            "hidden_dilations": [[1, 2, 2]],
            "padding_mode": "replicate",
            "convolution_dimension": 3,
            "non_lin": nn.Tanh,
            "normalization": "layer",
        },
    ),
    "lstm": Case(perception.LSTMBlock, {"in": (4, 3)}, {"hidden_size": 3, "non_lin": nn.Tanh}),
    "lstm_bidirectional": Case(
        perception.LSTMBlock,
        {"in": (4, 3)},
        {"hidden_size": 2, "num_layers": 2, "bidirectional": True, "non_lin": nn.Tanh},
    ),
    "flatten_dense": Case(
        perception.FlattenDenseBlock,
        {"in": (3, 2)},
        {"num_flatten_dims": 2, "hidden_units": [4], "non_lin": nn.Tanh},
    ),
    "vgg_dense": Case(
        perception.VGGConvolutionDenseBlock, IMAGE, {"hidden_channels": [3], "hidden_units": [4], "non_lin": nn.Tanh}
    ),
    "vgg_gap": Case(perception.VGGConvolutionGAPBlock, IMAGE, {"hidden_channels": [3], "non_lin": nn.Tanh}),
    "strided_dense": Case(
        perception.StridedConvolutionDenseBlock,
        IMAGE,
        {"hidden_channels": [3], "hidden_kernels": [3], "hidden_strides": [2], "hidden_units": [4], "non_lin": nn.Tanh},
    ),
    "lstm_last_step": Case(perception.LSTMLastStepBlock, {"in": (4, 3)}, {"hidden_size": 3, "non_lin": nn.Tanh}),
    "strided_sequence_dense": Case(
        perception.StridedConvolutionDenseBlock,
        {"in": (2, 9)},
        {
            "hidden_channels": [3],
            "hidden_kernels": [3],
            "hidden_padding": [2],
            "hidden_units": [4],
            "non_lin": nn.Tanh,
            "convolution_dimension": 1,
            "padding_mode": "reflect",
            "normalization": "layer",
            "dropout": 0.1,
        },
    ),
    "lstm_last_step_batch_norm": Case(
        perception.LSTMLastStepBlock,
        {"in": (4, 3)},
        {"hidden_size": 3, "num_layers": 2, "non_lin": nn.Tanh, "normalization": "batch", "dropout": 0.1},
    ),
    "torch_model": Case(torch_model, {"a": (3,), "b": (2,)}),
    "inference": Case(two_modalities, {"image": (2, 4, 4), "vector": (3,)}, outputs=("move", "use")),
    # ---- sets of items
    "pointer": Case(
        with_random_weights(perception.PointerBlock),
        {"items": (5, 3), "mask": (5,), "latent": (4,), "chosen": ()},
        {
            "mask_key": "mask",
            "chosen_keys": ["chosen"],
            "hidden_units": [4, 6],
            "non_lin": nn.Tanh,
            "score": "dot",
            "n_glimpses": 2,
            "n_heads": 3,
            "clip": 2.0,
        },
        draw={"mask": mask, "chosen": slots},
    ),
    "pointer_whole_numbers": Case(
        with_random_weights(perception.PointerBlock),
        {"items": (5, 2), "mask": (5,), "order": (3,), "chosen": (2,)},
        {
            "mask_key": "mask",
            "chosen_keys": ["chosen"],
            "compare_keys": ["order"],
            "hidden_units": [4],
            "levels": 3,
            "any_order": True,
            "skip_zeros": True,
            "skip_masked": False,
        },
        draw={"mask": mask, "chosen": slots, "items": levels, "order": levels},
    ),
    "deep_set": Case(
        with_random_weights(perception.DeepSetBlock),
        {"items": (5, 3), "chosen": (), "mask": (5,)},
        {"mask_key": "mask", "chosen_keys": ["chosen"], "hidden_units": [4, 6], "pooling_func": "max"},
        draw={"mask": mask, "chosen": slots},
    ),
    "levels": Case(
        perception.LevelsBlock,
        {"in": (2,), "other": (3,)},
        {"levels": 3, "compare_keys": ["other"]},
        draw={"in": levels, "other": levels},
    ),
    # ---- general
    "action_masking": Case(perception.ActionMaskingBlock, {"logits": (5,), "mask": (5,)}, draw={"mask": mask}),
    "concatenation": Case(perception.ConcatenationBlock, {"a": (2, 3), "b": (2, 4)}, {"concat_dim": -1}),
    "correlation": Case(perception.CorrelationBlock, {"a": (2, 3), "b": (2, 3)}, {"reduce": True}),
    "correlation_of_all": Case(perception.CorrelationBlock, {"a": (3,), "b": (4, 3)}, {"reduce": False}),
    "flatten": Case(perception.FlattenBlock, {"in": (4, 2, 3)}, {"num_flatten_dims": 2}),
    "functional": Case(perception.FunctionalBlock, {"in": (4, 2)}, {"func": "torch.tanh"}),
    "functional_of_two": Case(perception.FunctionalBlock, {"y": (2,), "x": (2,)}, {"func": by_name}),
    "global_average_pooling": Case(perception.GlobalAveragePoolingBlock, IMAGE),
    "masked_global_pooling": Case(
        perception.MaskedGlobalPoolingBlock,
        {"set": (4, 3), "mask": (4,)},
        {"pooling_func": "max", "pooling_dim": -2},
        draw={"mask": mask},
    ),
    "masked_global_pooling_of_two": Case(
        perception.MaskedGlobalPoolingBlock,
        {"set": (4, 3, 2), "mask": (4, 3)},
        {"pooling_func": "mean", "pooling_dim": (-3, -2)},
        draw={"mask": mask},
    ),
    "multi_index_slicing": Case(
        perception.MultiIndexSlicingBlock, {"in": (4, 2)}, {"select_dim": -2, "select_idxs": [3, 0]}
    ),
    "one_hot": Case(
        perception.OneHotBlock,
        {"in": (2,)},
        {"n_categories": [3, 2], "unit_variance": True},
        draw={"in": lambda shape, generator: torch.randint(3, shape, generator=generator)},
        shape_is_fixed="each number has categories of its own",
    ),
    "repeat_to_match": Case(perception.RepeatToMatchBlock, {"game": (1, 3), "units": (4, 2)}, {"repeat_at_idx": -2}),
    "unsqueeze": Case(perception.UnsqueezeBlock, {"in": (4, 2)}, {"unsqueeze_dim": -2}),
    "slicing": Case(perception.SlicingBlock, {"in": (4, 2)}, {"slice_dim": -2, "slice_idx": -1}),
    # ---- attention, graph, point net
    "multi_head_attention": Case(
        perception.MultiHeadAttentionBlock,
        {"query": (3, 4), "key": (5, 2), "value": (5, 6), "mask": (3, 5)},
        {"num_heads": 2},
        draw={"mask": mask},
    ),
    "multi_head_self_attention": Case(
        perception.MultiHeadAttentionBlock,
        {"set": (5, 4), "mask": (5,)},
        {"num_heads": 2, "use_key_padding_mask": True},
        draw={"mask": mask},
    ),
    "multi_head_attention_weights": Case(
        perception.MultiHeadAttentionBlock,
        {"query": (3, 4), "key": (5, 2), "value": (5, 6), "mask": (3, 5)},
        {
            "num_heads": 2,
            "add_bias_kv": True,
            "add_zero_attn": True,
            "add_input_to_output": True,
            "bias": False,
            "dropout": 0.1,
        },
        outputs=("out", "weights"),
        draw={"mask": mask},
    ),
    "self_attention_seq_weights": Case(
        perception.SelfAttentionSeqBlock,
        {"set": (5, 4), "mask": (5,)},
        {"embed_dim": 4, "num_heads": 2, "bias": False, "add_input_to_output": False, "dropout": 0.1},
        outputs=("out", "weights"),
        draw={"mask": mask},
    ),
    "self_attention_conv_weights": Case(
        with_random_weights(perception.SelfAttentionConvBlock),
        {"in": (2, 3, 4), "mask": (3, 4)},
        {"embed_dim": 4, "num_heads": 2, "bias": False},
        outputs=("out", "weights"),
        draw={"mask": mask},
    ),
    "self_attention_seq": Case(
        perception.SelfAttentionSeqBlock, {"set": (5, 4), "mask": (5,)}, {"embed_dim": 2}, draw={"mask": mask}
    ),
    "self_attention_conv": Case(with_random_weights(perception.SelfAttentionConvBlock), IMAGE, {"embed_dim": 3}),
    "self_attention_conv_mask": Case(
        with_random_weights(perception.SelfAttentionConvBlock),
        {"in": (2, 3, 4), "mask": (3, 4)},
        {"embed_dim": 3},
        draw={"mask": mask},
    ),
    "graph_conv": Case(
        perception.GraphConvBlock,
        {"nodes": (4, 3), "adjacency": (4, 4), "mask": (4,)},
        {"hidden_features": [3, 2], "non_lin": nn.Tanh},
        draw={"adjacency": neighbours, "mask": mask},
    ),
    "graph_conv_edges": Case(
        perception.GraphConvBlock,
        {"nodes": (4, 3), "edges": (6, 2)},
        {"hidden_features": [3, 2], "non_lin": nn.Tanh, "edge_list": True},
        draw={"edges": edges},
    ),
    "graph_conv_options": Case(
        perception.GraphConvBlock,
        {"nodes": (4, 3), "adjacency": (4, 4), "mask": (4,)},
        {
            "hidden_features": [3, 2],
            "non_lin": nn.Tanh,
            "node_self_importance": 0.5,
            "trainable_node_self_importance": True,
            "normalization": "batch",
            "dropout": 0.1,
        },
        draw={"adjacency": neighbours, "mask": mask},
    ),
    "graph_conv_as_given": Case(
        perception.GraphConvBlock,
        {"nodes": (4, 3), "adjacency": (4, 4)},
        {"hidden_features": [3, 2], "non_lin": nn.Tanh, "preprocess_adj": False, "bias": False},
        draw={"adjacency": neighbours},
    ),
    "graph_attention_options": Case(
        perception.GraphAttentionBlock,
        {"nodes": (4, 3), "adjacency": (4, 4), "mask": (4,)},
        {
            "hidden_features": [3, 2],
            "n_heads": 2,
            "attention_alpha": 0.1,
            "avg_last_head_attentions": False,
            "attention_dropout": 0.1,
            "bias": True,
            "normalization": "layer",
        },
        draw={"adjacency": neighbours, "mask": mask},
    ),
    "graph_attention": Case(
        perception.GraphAttentionBlock,
        {"nodes": (4, 3), "adjacency": (4, 4), "mask": (4,)},
        {"hidden_features": [3, 2], "n_heads": 2},
        draw={"adjacency": neighbours, "mask": mask},
    ),
    "graph_attention_edges": Case(
        perception.GraphAttentionBlock,
        {"nodes": (4, 3), "edges": (6, 2)},
        {"hidden_features": [3], "n_heads": 2, "edge_list": True},
        draw={"edges": edges},
    ),
    "point_net": Case(
        with_random_weights(perception.PointNetFeatureBlock),
        {"points": (5, 3), "mask": (5,)},
        {"embedding_dim": 8, "non_lin": nn.Tanh},
        draw={"mask": mask},
    ),
    "point_net_options": Case(
        with_random_weights(perception.PointNetFeatureBlock),
        {"points": (5, 3), "mask": (5,)},
        {
            "embedding_dim": 8,
            "non_lin": nn.Tanh,
            "pooling_func_name": "mean",
            "use_feature_transform": True,
            "normalization": "batch",
        },
        draw={"mask": mask},
    ),
    # ---- image, scaling, set
    "image": Case(
        perception.ImageBlock,
        {"in": (8, 6, 2)},
        {
            "channels": "last",
            "hidden_channels": [3, 2],
            "hidden_kernels": [[3, 2], 2],
            "hidden_strides": [2, 1],
            "hidden_padding": [[1, 0], 1],
            "hidden_units": [4],
            "non_lin": nn.Tanh,
        },
    ),
    "image_stack": Case(
        perception.ImageBlock,
        {"in": (3, 8, 6, 2)},
        {
            "channels": "last",
            "hidden_channels": [3],
            "hidden_kernels": [3],
            "hidden_units": [4],
            "non_lin": nn.Tanh,
            "stacked": True,
        },
    ),
    "image_of_numbers": Case(
        partial(perception.ImageBlock, low=-1, high=3),
        {"in": (8, 6)},
        {"channels": "none", "hidden_channels": [3], "hidden_kernels": [3], "hidden_units": [4], "non_lin": nn.Tanh},
    ),
    "scaling": Case(
        partial(perception.ScalingBlock, low=[-1, 0], high=[2, 0]),
        {"in": (2,)},
        shape_is_fixed="each number has bounds of its own",
    ),
    "set": Case(perception.SetBlock, {"in": (5, 3)}, {"hidden_units": [4], "non_lin": nn.Tanh}),
    "set_of_numbers": Case(
        partial(perception.SetBlock, low=-2, high=[1, 2, 3]), {"in": (5, 3)}, {"hidden_units": [4], "non_lin": nn.Tanh}
    ),
    # ---- recurrent
    "recurrent_lstm": Case(
        perception.RecurrentBlock, {"in": (3,)}, {"hidden_size": 2, "num_layers": 2}, shape_is_fixed="acts are vectors"
    ),
    "transformer_memory": Case(
        with_random_weights(perception.TransformerMemoryBlock),
        {"in": (3,)},
        {"hidden_size": 4, "memory_length": 2, "num_layers": 2, "num_heads": 2},
        shape_is_fixed="acts are vectors",
    ),
    "recurrent_gru": Case(
        perception.RecurrentBlock, {"in": (3,)}, {"hidden_size": 2, "cell": "gru"}, shape_is_fixed="acts are vectors"
    ),
}


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


def assert_same(given: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float = 1e-5) -> None:
    assert set(given) == set(expected)
    for name, tensor in given.items():
        torch.testing.assert_close(tensor.cpu(), expected[name].cpu(), rtol=tolerance, atol=tolerance)


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
def test_names_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"DenseBlock: in_keys=.*expected a name or a list of names"):
        perception.DenseBlock(wrong, "out", [4], [3])
    with pytest.raises(ValueError, match=r"Block: out_keys=.*expected a name or a list of names"):
        perception.MultiHeadAttentionBlock("in", wrong, [5, 4], 2)
    for several in (perception.MultiHeadAttentionBlock, perception.SelfAttentionSeqBlock):
        with pytest.raises(ValueError, match=r"Block: in_keys=.*expected a name or a list of names"):
            several(wrong, "out", [5, 4], 2)


@pytest.mark.parametrize("wrong", [5, None, "abc", [None], ["a"], [2.5], [-1], [True], {}, [[[3]]], [[2], 3]])
def test_shapes_that_are_none_are_refused(wrong: Any) -> None:
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


def test_what_goes_in_is_not_changed(case: Case) -> None:
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


def test_mixed_precision_gives_finite_numbers(case: Case, device: str) -> None:
    block, inputs = case.build().to(device).train(), to(case.sample(3, 2), device)
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
        assert_same(exported(sample(batch_size)), block(sample(batch_size)))


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
        inputs = case.sample(batch_size, seed=batch_size)
        found = session.run(outputs, {key: tensor.numpy() for key, tensor in inputs.items()})
        with torch.inference_mode():
            expected = block(inputs)
        for key, array in zip(outputs, found, strict=True):
            torch.testing.assert_close(torch.from_numpy(array), expected[key], rtol=1e-5, atol=1e-5)
