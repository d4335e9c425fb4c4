from __future__ import annotations

import pytest
import torch
from torch import nn

from maze_pl.perception import (
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
)

SHAPES = {"image": (2, 3, 3), "vector": (4,), "number": ()}


def observation(*leading):
    return {
        "image": torch.randn(*leading, 2, 3, 3),
        "vector": torch.randn(*leading, 4),
        "number": torch.randint(5, leading),
    }


@pytest.mark.parametrize("leading", [(), (5,), (3, 2)])
def test_outputs_have_the_shapes_of_the_heads(leading):
    policy = FlattenConcatPolicyNet(SHAPES, {"a": (3,), "b": (2,)}, nn.ReLU, [8])
    value = FlattenConcatStateValueNet(SHAPES, nn.ReLU, [8, 8])
    logits = policy(observation(*leading))
    assert {head: tensor.shape for head, tensor in logits.items()} == {"a": (*leading, 3), "b": (*leading, 2)}
    assert value(observation(*leading))["value"].shape == (*leading, 1)


def test_leading_dimensions_are_independent():
    network = FlattenConcatPolicyNet(SHAPES, {"a": (3,)}, nn.Tanh, [8])
    batch = observation(3, 2)
    single = network({name: tensor[1, 0] for name, tensor in batch.items()})["a"]
    torch.testing.assert_close(network(batch)["a"][1, 0], single)


def test_the_result_is_that_of_dense_layers_on_the_concatenation():
    network = FlattenConcatPolicyNet(SHAPES, {"a": (3,)}, "torch.nn.Tanh", [8])
    batch = observation(6)
    flat = torch.cat([batch["image"].flatten(1), batch["vector"], batch["number"].float().unsqueeze(1)], dim=1)
    hidden, head = network.body[0], network.heads[0]
    expected = torch.tanh(flat @ hidden.weight.T + hidden.bias) @ head.weight.T + head.bias
    torch.testing.assert_close(network(batch)["a"], expected)


def test_a_single_vector_is_used_as_it_is():
    network = FlattenConcatStateValueNet({"observation": (4,)}, nn.Identity, [])
    batch = torch.randn(5, 4)
    head = network.heads[0]
    torch.testing.assert_close(network({"observation": batch})["value"], batch @ head.weight.T)


def test_single_integer_and_boolean_observations_are_converted():
    network = FlattenConcatStateValueNet({"bits": (4,)}, nn.Tanh, [3])
    assert network({"bits": torch.ones(2, 4, dtype=torch.int8)})["value"].shape == (2, 1)
    assert network({"bits": torch.ones(2, 4, dtype=torch.bool)})["value"].shape == (2, 1)


def test_initial_weights_are_normc():
    policy = FlattenConcatPolicyNet({"observation": (4,)}, {"action": (2,)}, nn.Tanh, [16])
    value = FlattenConcatStateValueNet({"observation": (4,)}, nn.Tanh, [16])
    torch.testing.assert_close(policy.body[0].weight.norm(dim=1), torch.ones(16))
    torch.testing.assert_close(policy.heads[0].weight.norm(dim=1), torch.full((2,), 0.01))
    torch.testing.assert_close(value.heads[0].weight.norm(dim=1), torch.ones(1))


def test_heads_may_have_any_name():
    network = FlattenConcatPolicyNet({"observation": (4,)}, {"type": (2,), "a.b": (1,)}, nn.Tanh, [4])
    assert set(network({"observation": torch.zeros(1, 4)})) == {"type", "a.b"}


@pytest.mark.parametrize(
    "make",
    [
        lambda options: FlattenConcatPolicyNet({"x": (4,)}, {"y": (3,)}, nn.ReLU, [8], **options),
        lambda options: FlattenConcatStateValueNet({"x": (4,)}, nn.ReLU, [8], **options),
        lambda options: FlattenConcatStateActionValueNet(
            {"x": (2,)}, {"a": (2,)}, {"y": (1,)}, nn.ReLU, [8], **options
        ),
    ],
)
def test_layers_are_normalised_before_their_activation(make):
    network = make({"normalization": "layer"})
    batch = {"x": torch.randn(5, 4)}
    if isinstance(network, FlattenConcatStateActionValueNet):
        batch = {"x": batch["x"][:, :2], "a": batch["x"][:, 2:]}
    hidden, head = network.body[0], network.heads[0]
    linear = torch.cat(list(batch.values()), -1) @ hidden.weight.T + hidden.bias
    centred = linear - linear.mean(-1, keepdim=True)
    normalised = centred / (linear.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    activation = network.body[2]
    expected = activation(normalised) @ head.weight.T + head.bias
    torch.testing.assert_close(next(iter(network(batch).values())), expected)
    assert len(make({}).body) == 2


def test_an_unknown_normalisation_is_refused():
    with pytest.raises(ValueError, match="normalization"):
        FlattenConcatPolicyNet(SHAPES, {"a": (3,)}, nn.ReLU, [8], "layers")


@pytest.mark.parametrize("non_lin", ["torch.nn.Tanhh", "Tanh", "torch.tanh", "no.such.Module", nn.Parameter])
def test_unknown_activations_are_refused(non_lin):
    with pytest.raises(ValueError, match=r"cannot import|is not a subclass"):
        FlattenConcatStateValueNet({"observation": (4,)}, non_lin, [4])


@pytest.mark.parametrize("hidden_units", [5, None, ["a"], [2.5], [0], "ab"])
@pytest.mark.parametrize("kind", [FlattenConcatPolicyNet, FlattenConcatStateValueNet])
def test_widths_that_are_no_list_of_numbers_are_refused(kind, hidden_units):
    shapes = [SHAPES, {"a": (3,)}][: 2 if kind is FlattenConcatPolicyNet else 1]
    with pytest.raises(ValueError, match=r"hidden_units=.*expected a list of whole numbers above 0"):
        kind(*shapes, hidden_units=hidden_units)
    with pytest.raises(ValueError, match="non_lin: 5 is not a subclass of Module"):
        kind(*shapes, non_lin=5)
