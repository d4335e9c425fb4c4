"""Block of recurrent layers over the acts of an episode, whose state is kept from act to act."""

import math
from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes

_CELLS: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentBlock(PerceptionBlock):
    """LSTM or GRU layers with a state kept from act to act: [..., n] to [..., hidden_size].

    The state is both input and output, named `<out_key>.hidden` and, for an LSTM, `<out_key>.cell`.
    Inputs [B, n] with a state [B, ...] are one act of B actors. Inputs [L, B, n] with a state [B,
    ...] are L consecutive acts of each; the given state is the one before the first act, the
    returned state the one after the last. Without a state in the input, the state is zero, and all
    leading dimensions are actors that act once.

    `LSTMBlock` instead processes the time steps of a single observation, such as a stack, and keeps
    no state.

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,).
        hidden_size: Width of the state and of the output.
        num_layers: Number of layers.
        cell: "lstm" or "gru".

    Attributes:
        state_shapes: Name -> shape of each part of the state, (num_layers, hidden_size).

    Raises:
        ValueError: The input is not a vector, or the cell is unknown.

    Example:
        >>> import torch
        >>> block = RecurrentBlock("observation", "memory", [4], hidden_size=8, cell="gru")
        >>> block.state_shapes
        {'memory.hidden': (1, 8)}
        >>> step = block({"observation": torch.zeros(5, 4), "memory.hidden": torch.zeros(5, 1, 8)})
        >>> {name: tuple(tensor.shape) for name, tensor in step.items()}
        {'memory': (5, 8), 'memory.hidden': (5, 1, 8)}
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_size: int,
        num_layers: int = 1,
        cell: Literal["lstm", "gru"] = "lstm",
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require(
            len(self.out_keys) == len(self.in_shapes) == len(self.in_shapes[0]) == 1,
            "one vector, one output",
        )
        is_known = isinstance(cell, str) and cell in _CELLS
        self.require(is_known, f"cell 'lstm' or 'gru', not {cell!r}")
        self.require_numbers(hidden_size=hidden_size, num_layers=num_layers)
        self.net = _CELLS[cell](self.in_shapes[0][0], hidden_size, num_layers)
        parts = ("hidden", "cell") if cell == "lstm" else ("hidden",)
        shape = (num_layers, hidden_size)
        self.state_shapes = {f"{self.out_keys[0]}.{part}": shape for part in parts}

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [..., hidden_size] and the state after the last act."""
        dtype = next(self.parameters()).dtype
        inputs = block_input[self.in_keys[0]].to(dtype)
        states = [block_input[name].to(dtype) for name in self.state_shapes if name in block_input]
        leading = inputs.shape[:-1]
        actors = states[0].shape[:-2] if states else leading
        lengths = leading[: len(leading) - len(actors)] or (1,)
        # Size.numel() would fix the size of the batch in exported programs
        n_actors = math.prod(actors)
        sequences = inputs.reshape(*lengths, n_actors, inputs.shape[-1])  # [L, B, n]
        # [B, num_layers, hidden_size] -> [num_layers, B, hidden_size]
        before = []
        for state in states:
            by_actor = state.reshape(n_actors, *state.shape[-2:])
            before.append(by_actor.transpose(0, 1).contiguous())
        is_lstm = isinstance(self.net, nn.LSTM)
        if before:
            output, after = self.net(sequences, tuple(before) if is_lstm else before[0])
        else:
            output, after = self.net(sequences)
        outputs = {self.out_keys[0]: output.reshape(*leading, self.net.hidden_size)}
        new_states = after if is_lstm else (after,)
        for (name, shape), state in zip(self.state_shapes.items(), new_states, strict=True):
            outputs[name] = state.transpose(0, 1).reshape(*actors, *shape)
        return outputs
