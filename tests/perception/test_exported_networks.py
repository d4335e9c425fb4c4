"""Built-in networks and templates as programs of torch and ONNX, for batches of other sizes than the traced one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maze_pl.perception import (
    ConcatModelBuilder,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ItemSetPolicyNet,
    ItemSetStateValueNet,
    RecurrentBlock,
    StridedConvolutionDenseBlock,
    TransformerMemoryBlock,
)

SET = {"items": (5, 2), "order": (2,), "mask": (5,)}
VECTORS = {"position": (4,), "map": (2, 3)}


def template(
    obs_shapes: dict[str, tuple[int, ...]], action_logits_shapes: dict[str, tuple[int, ...]], recurrence: Any
) -> nn.Module:
    """A network that carries a state."""
    feature = {"block_type": DenseBlock, "block_params": {"hidden_units": [8]}}
    builder = ConcatModelBuilder({"feature": feature, "recurrence": recurrence}, {"position": "feature"})
    return builder.policy_network({"position": obs_shapes["position"]}, action_logits_shapes)


def with_options(obs_shapes: dict[str, tuple[int, ...]], action_logits_shapes: dict[str, tuple[int, ...]]) -> nn.Module:
    """A network with normalisation, dropout, attention of several heads and convolutions in one dimension."""
    dense = {"hidden_units": [8, 4], "non_lin": [nn.ReLU, nn.Tanh], "normalization": "batch", "dropout": 0.5}
    convolution = {
        "hidden_channels": [3],
        "hidden_kernels": [2],
        "hidden_padding": [1],
        "hidden_dilations": [2],
        "padding_mode": "circular",
        "convolution_dimension": 1,
        "hidden_units": [4],
        "normalization": "layer",
    }
    config = {
        "feature": {"block_type": DenseBlock, "block_params": dense},
        "sequence": {"block_type": StridedConvolutionDenseBlock, "block_params": convolution},
    }
    builder = ConcatModelBuilder(config, {"position": "feature", "map": "sequence"})
    network = builder.policy_network(obs_shapes, action_logits_shapes)
    network.train()(sample(network, obs_shapes, 20))  # so that the statistics are not those of the start
    return network


LSTM = {"block_type": RecurrentBlock, "block_params": {"hidden_size": 4}}
TRANSFORMER = {
    "block_type": TransformerMemoryBlock,
    "block_params": {"hidden_size": 4, "memory_length": 3, "num_layers": 2},
}
NETWORKS: dict[str, tuple[Callable[[], nn.Module], dict[str, tuple[int, ...]]]] = {
    "flatten_concat_policy": (lambda: FlattenConcatPolicyNet(VECTORS, {"action": (3,)}), VECTORS),
    "flatten_concat_value": (lambda: FlattenConcatStateValueNet(VECTORS), VECTORS),
    "item_set_policy": (lambda: ItemSetPolicyNet(SET, {"action": (5,)}, "items", "mask", 4), SET),
    "item_set_value": (lambda: ItemSetStateValueNet(SET, "items", 4), SET),
    "template_with_options": (lambda: with_options(VECTORS, {"action": (3,)}), VECTORS),
    "recurrent_template": (lambda: template(VECTORS, {"action": (3,)}, LSTM), {"position": (4,)}),
    "transformer_template": (lambda: template(VECTORS, {"action": (3,)}, TRANSFORMER), {"position": (4,)}),
}


def sample(network: nn.Module, shapes: dict[str, tuple[int, ...]], batch_size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(batch_size)
    shapes = shapes | getattr(network, "state_shapes", {})
    return {
        name: torch.randint(0, 3, (batch_size, *shape), generator=generator).float() for name, shape in shapes.items()
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_exported_for_batches_of_any_size(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    make, shapes = NETWORKS[name]
    network = make().eval()
    traced = sample(network, shapes, 3)
    sizes: dict[str, Any] = {key: {0: torch.export.Dim("batch")} for key in traced}
    program = torch.export.export(network, (traced,), dynamic_shapes=(sizes,), strict=False)
    model = torch.onnx.export(program, dynamo=True, verbose=False).model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for batch_size in (1, 2, 6):
        inputs = sample(network, shapes, batch_size)
        expected = network(inputs)
        by_torch = program.module()(inputs)
        named = dict(zip((node.name for node in session.get_inputs()), inputs.values(), strict=True))
        arrays = session.run(None, {key: tensor.numpy() for key, tensor in named.items()})
        for (key, tensor), array in zip(expected.items(), arrays, strict=True):
            torch.testing.assert_close(by_torch[key], tensor)
            torch.testing.assert_close(torch.from_numpy(array), tensor, rtol=1e-5, atol=1e-5)
