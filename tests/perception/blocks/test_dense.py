"""Dense layers, by hand."""

from __future__ import annotations

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


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"DenseBlock from 'in' \(2,\).*hidden_units to be a list"):
        DenseBlock("in", "out", [2], hidden_units=[])
    with pytest.raises(ValueError, match=r"cannot import 'torch\.nn\.Unknown'"):
        DenseBlock("in", "out", [2], hidden_units=[3], non_lin="torch.nn.Unknown")
