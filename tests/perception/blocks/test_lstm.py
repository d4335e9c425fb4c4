"""The LSTM against a loop over times and gates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from maze_pl.perception import LSTMBlock


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def read(sequence: np.ndarray, weights: dict[str, np.ndarray], suffix: str) -> np.ndarray:
    """One layer in one direction: [T, n] to [T, hidden_size]."""
    size = weights[f"weight_hh_{suffix}"].shape[1]
    hidden, cell = np.zeros(size), np.zeros(size)
    given = []
    for x in sequence:
        gates = weights[f"weight_ih_{suffix}"] @ x + weights[f"bias_ih_{suffix}"]
        gates = gates + weights[f"weight_hh_{suffix}"] @ hidden + weights[f"bias_hh_{suffix}"]
        into, forget, candidate, out = gates.reshape(4, size)
        cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(candidate)
        hidden = sigmoid(out) * np.tanh(cell)
        given.append(hidden)
    return np.array(given)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_times_are_read_one_after_the_other(num_layers: int, bidirectional: bool) -> None:
    torch.manual_seed(0)
    block = LSTMBlock("in", "out", [5, 3], 4, num_layers, bidirectional, non_lin="torch.nn.ELU").double()
    weights = {name: value.detach().numpy() for name, value in block.lstm.named_parameters()}
    sequence = torch.randn(5, 3, dtype=torch.float64)
    expected = sequence.numpy()
    for layer in range(num_layers):
        both = [read(expected, weights, f"l{layer}")]
        if bidirectional:
            both.append(read(expected[::-1], weights, f"l{layer}_reverse")[::-1])
        expected = np.concatenate(both, -1)
    dense, activation = block.dense
    expected = expected @ dense.weight.detach().numpy().T + dense.bias.detach().numpy()
    expected = np.where(expected > 0, expected, np.exp(expected) - 1)
    assert isinstance(activation, nn.ELU) and expected.shape == (5, 4)
    np.testing.assert_allclose(block({"in": sequence})["out"].detach().numpy(), expected, rtol=0, atol=1e-12)


def test_one_step_by_hand() -> None:
    block = LSTMBlock("in", "out", [1, 1], hidden_size=1)
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    block.lstm.bias_ih_l0.data[2] = 100.0  # the candidate is 1; all gates are half open
    block.dense[0].weight.data[:] = 2.0
    expected = 2 * 0.5 * np.tanh(0.5)
    assert block({"in": torch.zeros(1, 1)})["out"].item() == pytest.approx(expected, rel=1e-6)


def test_what_came_later_changes_nothing_of_what_came_before() -> None:
    block, sequence = LSTMBlock("in", "out", [4, 2], hidden_size=3), torch.randn(4, 2)
    other = torch.cat([sequence[:2], torch.randn(2, 2)])
    first, second = block({"in": sequence})["out"], block({"in": other})["out"]
    assert torch.equal(first[:2], second[:2]) and not torch.equal(first[2:], second[2:])


def test_nothing_is_kept_between_observations() -> None:
    block, sequence = LSTMBlock("in", "out", [4, 2], hidden_size=3), torch.randn(4, 2)
    first = block({"in": sequence})["out"]
    block({"in": torch.randn(7, 4, 2)})
    assert torch.equal(block({"in": sequence})["out"], first)


def test_outputs_of_layers_are_normalised_and_dropped() -> None:
    torch.manual_seed(0)
    block = LSTMBlock("in", "out", [4, 3], 50, 2, normalization="layer", dropout=0.4, non_lin=nn.Softplus)
    drop, linear, norm, activation, last = block.dense
    assert (block.lstm.dropout, drop.p, last.p) == (0.4, 0.4, 0.4)
    sequences = torch.randn(6, 4, 3)
    evaluated = block.eval()({"in": sequences})["out"]
    torch.testing.assert_close(evaluated, activation(norm(linear(block.lstm(sequences)[0]))))
    trained = block.train()({"in": sequences})["out"]
    assert evaluated.min() > 0 and abs(float((trained == 0).float().mean()) - 0.4) < 0.05
    single = LSTMBlock("in", "out", [4, 3], 5, dropout=0.4)  # torch warns of dropout between layers if there is one
    assert (single.lstm.dropout, single.dense[0].p) == (0.0, 0.4)


def test_batch_normalisation_is_over_all_time_steps_of_a_batch() -> None:
    torch.manual_seed(0)
    block, reference = LSTMBlock("in", "out", [4, 3], 5, normalization="batch"), nn.BatchNorm1d(5)
    sequences = torch.randn(6, 4, 3)
    linear = block.dense[0]
    expected = reference(linear(block.lstm(sequences)[0]).flatten(0, 1)).relu().unflatten(0, (6, 4))
    torch.testing.assert_close(block({"in": sequences})["out"], expected)


def test_inputs_that_are_no_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match=r"LSTMBlock from 'in' \(3,\) to .*: expected shapes of \[2\] dimensions"):
        LSTMBlock("in", "out", [3], hidden_size=2)
    with pytest.raises(ValueError, match="expected one input with at least 2 dimensions and one output"):
        LSTMBlock(["in", "more"], "out", [[4, 3], [4, 3]], hidden_size=2)
