"""What a recurrent block computes and carries, by hand and by stepping."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from maze_pl.perception import RecurrentBlock

CELLS = pytest.mark.parametrize("cell", ["lstm", "gru"])


def of_ones(cell: str) -> RecurrentBlock:
    """One number in, one unit, all weights 1 and all biases 0."""
    block = RecurrentBlock("in", "out", [1], hidden_size=1, cell=cell)
    for name, parameter in block.named_parameters():
        torch.nn.init.constant_(parameter, float("weight" in name))
    return block


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_an_lstm_gives_the_numbers_of_its_equations() -> None:
    block = of_ones("lstm")
    output = block(
        {"in": torch.tensor([[2.0]]), "out.hidden": torch.tensor([[[0.5]]]), "out.cell": torch.tensor([[[-1.0]]])}
    )
    gate = sigmoid(2.5)
    cell = gate * -1.0 + gate * math.tanh(2.5)
    assert output["out.cell"].item() == pytest.approx(cell, rel=1e-5)
    assert output["out"].item() == output["out.hidden"].item() == pytest.approx(gate * math.tanh(cell), rel=1e-5)


def test_a_gru_gives_the_numbers_of_its_equations() -> None:
    output = of_ones("gru")({"in": torch.tensor([[2.0]]), "out.hidden": torch.tensor([[[0.5]]])})
    gate = sigmoid(2.5)
    expected = (1 - gate) * math.tanh(2.0 + gate * 0.5) + gate * 0.5
    assert output.keys() == {"out", "out.hidden"}
    assert output["out"].item() == output["out.hidden"].item() == pytest.approx(expected, rel=1e-5)


def zero_state(block: RecurrentBlock, *leading: int) -> dict[str, Tensor]:
    return {name: torch.zeros(*leading, *shape) for name, shape in block.state_shapes.items()}


@CELLS
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("leading", [(), (4,), (2, 3)])
def test_a_sequence_is_its_acts_one_after_the_other(cell: str, n_layers: int, leading: tuple[int, ...]) -> None:
    block = RecurrentBlock("in", "out", [3], hidden_size=5, num_layers=n_layers, cell=cell)
    inputs = torch.randn(7, *leading, 3)
    first = {name: torch.randn_like(tensor) for name, tensor in zero_state(block, *leading).items()}
    sequence, state, outputs = block({"in": inputs, **first}), first, []
    for one in inputs:
        act = block({"in": one, **state})
        state = {name: act[name] for name in block.state_shapes}
        outputs.append(act["out"])
    torch.testing.assert_close(sequence, {"out": torch.stack(outputs), **state})
    assert sequence["out"].shape == (7, *leading, 5)


@CELLS
def test_without_a_state_everything_acts_once_from_zero(cell: str) -> None:
    block = RecurrentBlock("in", "out", [3], hidden_size=5, cell=cell)
    inputs = torch.randn(4, 2, 3)
    torch.testing.assert_close(block({"in": inputs}), block({"in": inputs, **zero_state(block, 4, 2)}))


@CELLS
def test_gradients_flow_back_to_the_first_act_and_the_state_before_it(cell: str) -> None:
    block = RecurrentBlock("in", "out", [3], hidden_size=5, cell=cell)
    inputs = torch.randn(6, 2, 3, requires_grad=True)
    state = {name: tensor.requires_grad_() for name, tensor in zero_state(block, 2).items()}
    block({"in": inputs, **state})["out"][-1, 0].sum().backward()
    for gradient in (inputs.grad[:, 0], *(tensor.grad[0] for tensor in state.values())):
        assert (gradient.flatten(1).abs().max(-1).values > 0).all()
    assert not inputs.grad[:, 1].any(), "actors have nothing to do with each other"


def test_states_of_another_type_are_converted() -> None:
    block = RecurrentBlock("in", "out", [3], hidden_size=5).double()
    assert block({"in": torch.zeros(2, 3), **zero_state(block, 2)})["out"].dtype == torch.float64


def test_invalid_shapes_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"RecurrentBlock from 'in' \(2, 3\) to \['out'\]: expected one vector"):
        RecurrentBlock("in", "out", [[2, 3]], hidden_size=5)
    with pytest.raises(ValueError, match="expected cell 'lstm' or 'gru', not 'rnn'"):
        RecurrentBlock("in", "out", [3], hidden_size=5, cell="rnn")  # type: ignore[arg-type]
