"""Graphs of blocks: the numbers of the same network by hand, state that passes through, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from maze_pl.agents.numpy_inference import NumpyNetwork
from maze_pl.perception import (
    ConcatenationBlock,
    DenseBlock,
    FlattenBlock,
    InferenceBlock,
    LinearOutputBlock,
    PerceptionBlock,
    RecurrentBlock,
)


def blocks() -> dict[str, PerceptionBlock]:
    """Two observations, joined, to two outputs; not in the order in which they can run."""
    return {
        "values": LinearOutputBlock("joined", "values", [8], output_units=1),
        "joined": ConcatenationBlock(["image_latent", "vector_latent"], "joined", [[5], [3]]),
        "image latent": DenseBlock("flat", "image_latent", [12], hidden_units=[6, 5], non_lin="torch.nn.Tanh"),
        "a.flat": FlattenBlock("image", "flat", [3, 2, 2], num_flatten_dims=3),
        "vector_latent": DenseBlock("vector", "vector_latent", [4], hidden_units=[3]),
        "action": LinearOutputBlock("joined", "action", [8], output_units=2),
    }


def graph() -> InferenceBlock:
    torch.manual_seed(0)
    return InferenceBlock(["image", "vector"], ["action", "values"], [[3, 2, 2], [4]], blocks())


def observation(*leading: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "image": torch.randn(*leading, 3, 2, 2, generator=generator),
        "vector": torch.randn(*leading, 4, generator=generator),
    }


def by_hand(net: InferenceBlock, given: dict[str, Tensor]) -> dict[str, Tensor]:
    weights = {name: [*block.parameters()] for name, block in net.perception_blocks.items()}

    def dense(name: str, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        for weight, bias in zip(weights[name][::2], weights[name][1::2], strict=True):
            x = activation(x @ weight.T + bias)
        return x

    image = dense("image latent", given["image"].flatten(-3), torch.tanh)
    joined = torch.cat([image, dense("vector_latent", given["vector"], torch.relu)], -1)
    return {name: dense(name, joined, lambda x: x) for name in ("action", "values")}


@pytest.mark.parametrize("leading", [(), (5,), (7, 3)])
def test_a_graph_gives_the_numbers_of_the_same_network_by_hand(leading: tuple[int, ...]) -> None:
    net, given = graph(), observation(*leading)
    output = net(given)
    assert {name: tuple(tensor.shape) for name, tensor in output.items()} == {
        "action": (*leading, 2),
        "values": (*leading, 1),
    }
    torch.testing.assert_close(output, by_hand(net, given))


def test_blocks_run_when_what_they_read_is_there_whatever_their_order() -> None:
    net = graph()
    assert net.block_names == ["a.flat", "vector_latent", "image latent", "joined", "values", "action"]
    assert list(net.perception_blocks) == net.block_names
    written: set[str] = {"image", "vector"}
    for block in net.perception_blocks.values():
        assert written >= set(block.in_keys)
        written |= set(block.out_keys)


def test_shapes_of_outputs_are_known_before_any_data_is_seen() -> None:
    assert graph().out_shapes() == [(2,), (1,)]


def test_tensors_within_a_graph_can_be_outputs_and_observations_may_be_more_than_are_read() -> None:
    net = InferenceBlock(["image", "vector"], "joined", [[3, 2, 2], [4]], blocks())
    given = observation(2) | {"mask": torch.zeros(2, 9)}
    assert list(net(given)) == ["joined"]
    assert set(given) == {"image", "vector", "mask"}, "what is given is not changed"


def test_the_gradient_reaches_all_weights() -> None:
    net = graph()
    sum(tensor.sum() for tensor in net(observation(6)).values()).backward()
    assert all(bool(parameter.grad.any()) for parameter in net.parameters())


def test_graphs_can_be_parts_of_graphs() -> None:
    inner, given = graph(), observation(4)
    outer = InferenceBlock(["image", "vector"], "values", [[3, 2, 2], [4]], {"all": inner})
    assert torch.equal(outer(given)["values"], inner(given)["values"])


def test_a_state_is_read_from_the_input_and_given_with_the_output() -> None:
    torch.manual_seed(0)
    memory = RecurrentBlock("vector", "memory", [4], hidden_size=3, cell="gru")
    action = LinearOutputBlock("memory", "action", [3], output_units=2)
    net = InferenceBlock("vector", "action", [4], {"memory": memory, "action": action})
    assert net.state_shapes == {"memory.hidden": (1, 3)}
    acts = torch.randn(5, 2, 4)  # of two actors
    state, stepped = {"memory.hidden": torch.zeros(2, 1, 3)}, []
    for act in acts:
        output = net({"vector": act, **state})
        assert list(output) == ["action", "memory.hidden"]
        state = {"memory.hidden": output["memory.hidden"]}
        stepped.append(output["action"])
    whole = net({"vector": acts, "memory.hidden": torch.zeros(2, 1, 3)})
    torch.testing.assert_close(whole["action"], torch.stack(stepped))
    torch.testing.assert_close(whole["memory.hidden"], state["memory.hidden"])
    assert not torch.equal(net({"vector": acts[1]})["action"], stepped[1])


def test_a_graph_of_plain_blocks_is_evaluated_in_numpy() -> None:
    net = graph().eval()
    arrays = {name: tensor.numpy() for name, tensor in observation(3).items()}
    output = NumpyNetwork(net).logits(arrays)
    assert output is not None, "it is not recognised as a plain network"
    for name, tensor in net(observation(3)).items():
        np.testing.assert_allclose(output[name], tensor.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kinds", [("int64", "int8"), ("float32", "uint8"), ("uint8", "float64")])
def test_integers_among_what_blocks_join_are_numbers_in_numpy_too(kinds: tuple[str, str]) -> None:
    blocks = {
        "left": DenseBlock("left", "latent", [3], hidden_units=[5, 4]),
        "joined": ConcatenationBlock(["latent", "right"], "joined", [[4], [2]]),
        "raw": ConcatenationBlock(["left", "right"], "raw", [[3], [2]]),
        "action": LinearOutputBlock("joined", "action", [6], output_units=3),
        "value": LinearOutputBlock("raw", "value", [5], output_units=1),
    }
    net = InferenceBlock(["left", "right"], ["action", "value"], [[3], [2]], blocks).eval()
    arrays = {
        name: np.arange(-2 * n, 5 * n).reshape(7, n).astype(kinds[n == 2]) for name, n in (("left", 3), ("right", 2))
    }
    output = NumpyNetwork(net).logits(arrays)
    assert output is not None, "it is not recognised as a plain network"
    given = {name: torch.from_numpy(array).float() for name, array in arrays.items()}
    for name, tensor in net(given).items():
        np.testing.assert_allclose(output[name], tensor.detach().numpy(), rtol=1e-4, atol=1e-5)


A, B = (
    DenseBlock("x", "y", [4], hidden_units=[3]),
    DenseBlock("y", "z", [3], hidden_units=[2]),
)
REMEMBERS = {"r": RecurrentBlock("x", "y", [4], 3), "z": DenseBlock("y", "z", [3], hidden_units=[2])}


@pytest.mark.parametrize(
    ("perception_blocks", "message"),
    [
        ({"a": A, "b": A}, r"the key 'y' is written by the blocks \['a', 'b'\]; each key is written once"),
        (
            {"a": DenseBlock("y", "x", [3], hidden_units=[4])},
            r"'x' is written by the blocks \['a'\] and it is an input",
        ),
        ({"a": B}, r"block 'a' \(DenseBlock\) reads \['y'\], which is neither .*; there are the keys \['x', 'z'\]"),
        (
            {"a": B, "b": DenseBlock("z", "y", [2], hidden_units=[3])},
            r"in a cycle: 'a' reads \['y'\] and writes \['z'\]; 'b' reads \['z'\] and writes \['y'\]",
        ),
        (
            {"a": A, "b": DenseBlock("y", "z", [5], hidden_units=[2])},
            r"block 'b' \(DenseBlock\) expects 'y' of shape \(5,\), but it has shape \(3,\)",
        ),
        (
            {"a": RecurrentBlock("x", "y", [4], 3), "b": InferenceBlock("x", "z", [4], REMEMBERS)},
            r"the key 'y\.hidden' is written by the blocks \['a', 'b'\]; each key is written once",
        ),
        ({"a": A}, r"outputs \['z'\] are written by no block; there are the keys \['x', 'y'\]"),
    ],
)
def test_graphs_that_cannot_run_are_refused_with_blocks_and_keys(perception_blocks: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        InferenceBlock("x", "z", [4], perception_blocks)
    assert len(str(raised.value).splitlines()) == 1


def test_the_input_of_a_graph_must_have_the_shape_that_its_blocks_expect() -> None:
    with pytest.raises(ValueError, match=r"block 'a' \(DenseBlock\) expects 'x' of shape \(4,\), but it has shape \(6"):
        InferenceBlock("x", "y", [6], {"a": A})


def test_what_is_no_block_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"block 'x' is a Linear, not a PerceptionBlock; see TorchModelBlock"):
        InferenceBlock("observation", "x", [4], {"x": nn.Linear(4, 4)})  # type: ignore[dict-item]
