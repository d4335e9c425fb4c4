"""Dense layers, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from maze_pl.perception import DenseBlock, LinearOutputBlock


def set_weights(layer: nn.Module, weight: list[list[float]], bias: list[float]) -> None:
    layer.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})


def test_layers_are_linear_maps_each_with_its_activation() -> None:
    block = DenseBlock("in", "out", [2], hidden_units=[2, 1])
    first, _, second, _ = block.net
    set_weights(first, [[1.0, 2.0], [-1.0, 1.0]], [0.5, 0.0])
    set_weights(second, [[2.0, -1.0]], [1.0])
    # [1, -1]: first layer -0.5 and -2, both 0 after ReLU; [3, 1]: 5.5 and 0 (from -2); [-1, 3]: 5.5 and 4
    output = block({"in": torch.tensor([[1.0, -1.0], [3.0, 1.0], [-1.0, 3.0]])})["out"]
    assert output.tolist() == [[1.0], [12.0], [8.0]]
    assert output.grad_fn is not None


def test_the_activation_comes_after_the_last_layer_too() -> None:
    block = DenseBlock("in", "out", [1], hidden_units=[1])
    set_weights(block.net[0], [[1.0]], [0.0])
    assert block({"in": torch.tensor([[-2.0], [2.0]])})["out"].tolist() == [[0.0], [2.0]]


def test_the_linear_output_has_no_activation() -> None:
    block = LinearOutputBlock("in", "out", [2], output_units=1)
    set_weights(block.net, [[1.0, -3.0]], [0.25])
    assert block({"in": torch.tensor([[1.0, 1.0], [4.0, 1.0]])})["out"].tolist() == [[-1.75], [1.25]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int64])
@pytest.mark.parametrize("weights", [torch.float32, torch.float64])
def test_flags_and_integers_count_as_numbers(dtype: torch.dtype, weights: torch.dtype) -> None:
    given = torch.tensor([[0, 1, 1], [1, 0, 0]])
    for block in (DenseBlock("in", "out", [3], hidden_units=[2]), LinearOutputBlock("in", "out", [3], output_units=2)):
        expected = block.to(weights)({"in": given.to(weights)})["out"]
        assert torch.equal(block({"in": given.to(dtype)})["out"], expected)


@pytest.mark.parametrize("non_lin", [nn.SELU, "torch.nn.SELU"])
def test_an_activation_is_a_class_or_its_path(non_lin: type[nn.Module] | str) -> None:
    block = DenseBlock("in", "out", [2], hidden_units=[3, 3], non_lin=non_lin)
    assert [type(layer) for layer in block.net] == [nn.Linear, nn.SELU] * 2
    assert len({id(layer) for layer in block.net}) == 4


def test_each_layer_has_an_activation_of_its_own() -> None:
    block = DenseBlock("in", "out", [2], hidden_units=[3, 2], non_lin=[nn.Tanh, "torch.nn.Identity"])
    first, _, second, _ = block.net
    x = torch.randn(4, 2)
    torch.testing.assert_close(block({"in": x})["out"], second(first(x).tanh()))
    with pytest.raises(ValueError, match=r"non_lin to be one class, or a list of 2, one for each layer; not \[<class"):
        DenseBlock("in", "out", [2], hidden_units=[3, 2], non_lin=[nn.Tanh])


def test_layer_normalisation_by_hand() -> None:
    block = DenseBlock("in", "out", [1], hidden_units=[2], non_lin=nn.Identity, normalization="layer")
    set_weights(block.net[0], [[1.0], [-1.0]], [1.0, 1.0])
    set_weights(block.net[1], [2.0, 1.0], [0.0, 3.0])  # type: ignore[arg-type]
    # outputs 4 and -2 have mean 1 and standard deviation 3, so that they become 1 and -1
    for x in (torch.tensor([3.0]), torch.full((2, 5, 1), 3.0)):
        expected = torch.tensor([2.0, 2.0]).expand(*x.shape[:-1], 2)
        torch.testing.assert_close(block({"in": x})["out"], expected, rtol=0, atol=1e-4)


def test_batch_normalisation_is_before_the_activation_over_all_leading_dimensions() -> None:
    torch.manual_seed(0)
    block = DenseBlock("in", "out", [3], hidden_units=[4], non_lin=nn.ReLU, normalization="batch")
    linear, ours, _ = block.net
    reference = nn.BatchNorm1d(4)
    assert linear.bias is None
    for _ in range(3):
        x = torch.randn(5, 2, 3)  # torch's layer would take the second dimension for the features
        expected = reference(linear(x).flatten(0, 1)).relu().unflatten(0, (5, 2))
        torch.testing.assert_close(block({"in": x})["out"], expected)
    torch.testing.assert_close(ours.norm.running_mean, reference.running_mean)
    torch.testing.assert_close(ours.norm.running_var, reference.running_var)
    x = torch.randn(3)
    torch.testing.assert_close(block.eval()({"in": x})["out"], reference.eval()(linear(x[None]))[0].relu())


def test_dropout_sets_outputs_to_zero_in_training_only() -> None:
    block = DenseBlock("in", "out", [1], hidden_units=[1000], non_lin=nn.Identity, dropout=0.25)
    set_weights(block.net[0], [[0.0]] * 1000, [3.0] * 1000)
    x = torch.zeros(50, 1)
    torch.manual_seed(0)
    first, second = block({"in": x})["out"], block({"in": x})["out"]
    assert first.unique().tolist() == [0.0, 4.0] and not torch.equal(first, second)
    assert abs(float((first == 0).float().mean()) - 0.25) < 0.01
    assert block.eval()({"in": x})["out"].unique().tolist() == [3.0]


@pytest.mark.parametrize("dropout", [1.0, -0.1, float("nan"), True, "0.1", None])
def test_a_dropout_that_is_no_probability_is_refused(dropout: Any) -> None:
    with pytest.raises(ValueError, match=r"DenseBlock from 'in' .*dropout from 0 to below 1, not"):
        DenseBlock("in", "out", [2], hidden_units=[3], dropout=dropout)


def test_another_normalisation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"DenseBlock from .*normalization 'batch', 'layer' or None, not 'instance'"):
        DenseBlock("in", "out", [2], hidden_units=[3], normalization="instance")  # type: ignore[arg-type]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"DenseBlock from 'in' \(2,\).*hidden_units to be a list"):
        DenseBlock("in", "out", [2], hidden_units=[])
    with pytest.raises(ValueError, match=r"cannot import 'torch\.nn\.Unknown'"):
        DenseBlock("in", "out", [2], hidden_units=[3], non_lin="torch.nn.Unknown")
