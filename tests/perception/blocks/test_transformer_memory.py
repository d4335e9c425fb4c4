"""Outputs and memory of the transformer block: by an independent slow reference, by stepping, and at its limits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from maze_pl.perception import TransformerMemoryBlock
from maze_pl.perception.blocks.transformer_memory_block import _count, _stored

GATES = pytest.mark.parametrize("gate", ["gru", "residual"])


def make(
    memory_length: int = 3, num_layers: int = 2, gate: Any = "gru", n: int = 3, seed: int = 0
) -> TransformerMemoryBlock:
    """A block in double precision, all of whose parameters are random."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        block = TransformerMemoryBlock(
            "in", "out", [n], 4, memory_length, num_layers, num_heads=2, feed_forward_size=5, gate=gate, gate_bias=0.7
        ).double()
        for parameter in block.parameters():
            torch.nn.init.normal_(parameter, std=0.6)
    return block


def zero_state(block: TransformerMemoryBlock, *leading: int) -> dict[str, Tensor]:
    return {name: torch.zeros(*leading, *shape).double() for name, shape in block.state_shapes.items()}


def by_the_papers(block: TransformerMemoryBlock, acts: Tensor) -> Tensor:
    """[L, n] outputs of the acts [L, n] of one episode, number by number, without a memory and without batches."""
    width, n_heads, window = 4, 2, block.memory_length
    weights = dict(block.named_parameters())
    xs = [weights["embedding.weight"] @ act + weights["embedding.bias"] for act in acts]

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean()
        return centred / (centred.square().mean() + 1e-5).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def gated(x: Tensor, y: Tensor, name: str) -> Tensor:
        if f"{name}.of_output.weight" not in weights:
            return x + y
        w_r, w_z, w_h = weights[f"{name}.of_output.weight"].split(width)
        b_r, b_z, b_h = weights[f"{name}.of_output.bias"].split(width)
        u_r, u_z = weights[f"{name}.of_input.weight"].split(width)
        reset = 1 / (1 + torch.exp(-(w_r @ y + b_r + u_r @ x)))
        update = 1 / (1 + torch.exp(-(w_z @ y + b_z + u_z @ x - 0.7)))
        candidate = torch.tanh(w_h @ y + b_h + weights[f"{name}.of_reset_input.weight"] @ (reset * x))
        return (1 - update) * x + update * candidate

    def wave(distance: int) -> Tensor:
        angles = [distance, distance / 100.0]
        numbers = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
        return torch.tensor(numbers, dtype=torch.float64)

    for index in range(len(block.layers)):
        layer = f"layers.{index}"
        normed = [norm(x, f"{layer}.attention_norm") for x in xs]
        following = []
        for t, x in enumerate(xs):
            mixed = []
            for head in range(n_heads):
                rows = slice(2 * head, 2 * head + 2)
                query = weights[f"{layer}.query.weight"][rows] @ normed[t]
                scores, values = [], []
                for s in range(max(0, t - window), t + 1):
                    key = weights[f"{layer}.key.weight"][rows] @ normed[s]
                    position = weights[f"{layer}.position.weight"][rows] @ wave(t - s).float().double()
                    of_content = (query + weights[f"{layer}.content_bias"][head]) @ key
                    of_position = (query + weights[f"{layer}.position_bias"][head]) @ position
                    scores.append((of_content + of_position) / math.sqrt(2))
                    values.append(weights[f"{layer}.value.weight"][rows] @ normed[s])
                mixed.append(torch.stack(scores).softmax(0) @ torch.stack(values))
            output = weights[f"{layer}.output.weight"] @ torch.cat(mixed) + weights[f"{layer}.output.bias"]
            x = gated(x, output.relu(), f"{layer}.attention_gate")
            hidden = weights[f"{layer}.feed_forward.0.weight"] @ norm(x, f"{layer}.feed_forward_norm")
            hidden = (hidden + weights[f"{layer}.feed_forward.0.bias"]).relu()
            output = weights[f"{layer}.feed_forward.2.weight"] @ hidden + weights[f"{layer}.feed_forward.2.bias"]
            following.append(gated(x, output.relu(), f"{layer}.feed_forward_gate"))
        xs = following
    return torch.stack(xs)


@GATES
@pytest.mark.parametrize("memory_length", [1, 3, 20])
def test_an_episode_gives_the_numbers_of_the_papers(memory_length: int, gate: str) -> None:
    block = make(memory_length, gate=gate)
    acts = torch.randn(2, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sequence = block({"in": acts.transpose(0, 1), **zero_state(block, 2)})["out"]
    for actor in range(2):
        torch.testing.assert_close(sequence[:, actor], by_the_papers(block, acts[actor]))


@GATES
@pytest.mark.parametrize("leading", [(), (4,), (2, 3)])
def test_a_sequence_is_its_acts_one_after_the_other(gate: str, leading: tuple[int, ...]) -> None:
    block = make(gate=gate)
    inputs = torch.randn(8, *leading, 3, dtype=torch.float64)
    state = zero_state(block, *leading)
    for start in (0, 2, 5):  # from states in which nothing, a part and all of the memory is filled
        steps, outputs = state, []
        for act in inputs:
            one = block({"in": act, **steps})
            steps = {name: one[name] for name in block.state_shapes}
            outputs.append(one["out"])
        sequence = block({"in": inputs, **state})
        torch.testing.assert_close(sequence, {"out": torch.stack(outputs), **steps})
        state = block({"in": inputs[:start] if start else inputs[:1], **state})
        state.pop("out")
    assert sequence["out"].shape == (8, *leading, 4)


def test_without_a_state_everything_acts_once_from_nothing() -> None:
    block = make()
    inputs = torch.randn(4, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(block({"in": inputs}), block({"in": inputs, **zero_state(block, 4, 2)}))


def test_an_output_depends_on_as_many_acts_as_the_layers_can_reach_and_no_others() -> None:
    block = make(memory_length=3, num_layers=2)
    inputs = torch.randn(10, 2, 3, dtype=torch.float64, requires_grad=True)
    block({"in": inputs, **zero_state(block, 2)})["out"][-1, 0].sum().backward()
    assert inputs.grad is not None
    reached = inputs.grad[:, 0].abs().amax(-1) > 0
    assert reached.tolist() == [False] * 3 + [True] * 7
    assert not inputs.grad[:, 1].any(), "actors have nothing to do with each other"


def test_places_of_the_memory_that_are_not_filled_have_no_effect() -> None:
    block = make(memory_length=3)
    state = zero_state(block, 2)
    state["out.length"][:] = torch.tensor([[1.0], [3.0]])
    acts = torch.randn(2, 2, 3, dtype=torch.float64)
    expected = block({"in": acts, **state})["out"]
    state["out.memory"][:, :, :2] = 1e3 * torch.randn(2, 2, 2, 4).double()  # the last place is the latest act
    found = block({"in": acts, **state})["out"]
    torch.testing.assert_close(found[:, 0], expected[:, 0])
    assert not torch.allclose(found[:, 1], expected[:, 1])
    assert block({"in": acts, **state})["out.length"].tolist() == [[3.0], [3.0]]


def test_a_high_bias_keeps_the_gate_closed() -> None:
    acts = torch.randn(5, 2, 3)
    for bias, is_closed in ((60.0, True), (0.0, False)):
        block = TransformerMemoryBlock("in", "out", [3], 4, 2, gate_bias=bias)
        output = block({"in": acts, "out.memory": torch.zeros(2, 1, 2, 4), "out.length": torch.zeros(2, 1)})["out"]
        assert torch.allclose(output, block.embedding(acts), atol=1e-6) == is_closed


def test_states_of_another_type_are_converted() -> None:
    block = make()
    state = {name: tensor.float() for name, tensor in zero_state(block, 2).items()}
    assert block({"in": torch.zeros(2, 3), **state})["out"].dtype == torch.float64


def test_short_types_of_weights_count_as_many_acts_as_the_memory_holds() -> None:
    dtype, memory_length = torch.bfloat16, 600
    block = TransformerMemoryBlock("in", "out", [1], 2, memory_length, num_heads=1, feed_forward_size=1).to(dtype)
    allowed: list[Tensor] = []
    block.layers[0].register_forward_pre_hook(lambda layer, inputs: allowed.append(inputs[1]))
    step = memory_length // 7
    state: dict[str, Tensor] = {}
    for name, shape in block.state_shapes.items():
        state[name] = torch.zeros(1, *shape, dtype=dtype)
    with torch.no_grad():
        for n_before in range(0, memory_length + 2 * step, step):
            output = block({"in": torch.zeros(step, 1, 1), **state})
            state = {name: output[name] for name in block.state_shapes}
            assert state["out.length"].dtype == dtype, "the state is kept in the type of the weights"
            expected = [min(n_before + n, memory_length) + 1 for n in range(step)]
            assert allowed.pop().sum(-1).tolist() == [expected]


def test_all_lengths_are_kept_by_short_types() -> None:
    for dtype, memory_length in ((torch.bfloat16, 3000), (torch.float16, 4000), (torch.float32, 5000)):
        lengths = torch.arange(memory_length + 1.0)
        stored = _stored(lengths, memory_length, dtype)
        assert torch.equal(_count(stored, memory_length), lengths)
        exact = {torch.bfloat16: 256, torch.float16: 2048, torch.float32: 5000}[dtype]
        assert torch.equal(stored[: exact + 1].float(), lengths[: exact + 1]), "as states have always been"


def test_invalid_shapes_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"TransformerMemoryBlock from 'in' \(2, 3\) .* expected one vector"):
        TransformerMemoryBlock("in", "out", [[2, 3]], 4, 2)
    with pytest.raises(ValueError, match="expected gate 'gru' or 'residual', not 'lstm'"):
        TransformerMemoryBlock("in", "out", [3], 4, 2, gate="lstm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected num_heads=4 to divide hidden_size=6"):
        TransformerMemoryBlock("in", "out", [3], 6, 2)
    with pytest.raises(ValueError, match="expected memory_length to be a whole number of at least 1, not 0"):
        TransformerMemoryBlock("in", "out", [3], 4, 0)
