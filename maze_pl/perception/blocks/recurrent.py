"""Recurrence: over the acts of an episode, by a block that remembers, and within an observation, such as a stack."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn

from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.blocks.shape_normalization import ShapeNormalizationBlock
from maze_pl.perception.module_class import ModuleClass

_CELLS: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentBlock(PerceptionBlock):
    """LSTM or GRU layers whose state is carried from act to act: [..., n] to [..., hidden_size].

    The state is among what goes in and what comes out, as `<out_key>.hidden` and for an LSTM `<out_key>.cell`. With
    inputs [B, n] and a state [B, ...] this is one act of B actors; with inputs [L, B, n] and a state [B, ...] it is L
    acts of each, one after the other, from the state before the first to the one after the last. Without a state in
    the input it is zero, and all leading dimensions are actors that act once.

    `LSTMBlock` instead reads the times of a single observation, such as a stack, and carries nothing.

    Args:
        in_keys: Name of what goes in.
        out_keys: Name of what comes out.
        in_shapes: Its shape (n,).
        hidden_size: Width of the state and of what comes out.
        num_layers: Number of layers.
        cell: "lstm" or "gru".

    Attributes:
        state_shapes: Name -> shape of each part of the state, (num_layers, hidden_size).

    Raises:
        ValueError: What goes in is no vector, or the cell is unknown.

    Example:
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
        self.require(len(self.out_keys) == len(self.in_shapes) == len(self.in_shapes[0]) == 1, "one vector, one output")
        self.require(cell in _CELLS, f"cell 'lstm' or 'gru', not {cell!r}")
        self.net = _CELLS[cell](self.in_shapes[0][0], hidden_size, num_layers)
        parts = ("hidden", "cell") if cell == "lstm" else ("hidden",)
        self.state_shapes = {f"{self.out_keys[0]}.{part}": (num_layers, hidden_size) for part in parts}

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """[..., hidden_size], and the state after the last act."""
        dtype = next(self.parameters()).dtype
        inputs = block_input[self.in_keys[0]].to(dtype)
        given = [block_input[name].to(dtype) for name in self.state_shapes if name in block_input]
        leading = inputs.shape[:-1]
        actors = given[0].shape[:-2] if given else leading
        lengths = leading[: len(leading) - len(actors)] or (1,)
        sequences = inputs.reshape(*lengths, actors.numel(), inputs.shape[-1])  # [L, B, n]
        # [B, num_layers, hidden_size] -> [num_layers, B, hidden_size]
        before = [state.reshape(actors.numel(), *state.shape[-2:]).transpose(0, 1).contiguous() for state in given]
        output, after = self.net(sequences, (tuple(before) if len(before) == 2 else before[0]) if given else None)
        states = after if isinstance(after, tuple) else (after,)
        named = zip(self.state_shapes.items(), states, strict=True)
        carried = {name: state.transpose(0, 1).reshape(*actors, *shape) for (name, shape), state in named}
        return {self.out_keys[0]: output.reshape(*leading, self.net.hidden_size), **carried}


class LSTMBlock(ShapeNormalizationBlock):
    """LSTM layers over the times of one observation, then a dense layer: [..., T, n] to [..., T, hidden_size].

        h_1, ..., h_T = LSTM(x_1, ..., x_T),   y_t = non_lin(W h_t + b)

    The state starts as zero with each observation and is not kept. The dense layer is the same for all times.

    Args:
        in_keys: Name of the sequences.
        out_keys: Name of what comes out.
        in_shapes: Their shape (T, n), or (..., T, n).
        hidden_size: Width of the state, of each direction, and of what comes out.
        num_layers: Number of LSTM layers.
        bidirectional: Whether there are further layers that read from the last time to the first.
        non_lin: Activation, a class or its path.

    Example:
        >>> LSTMBlock("stack", "latent", [4, 16], hidden_size=32).out_shapes()
        [(4, 32)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        non_lin: ModuleClass = nn.ReLU,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims=3, out_num_dims=3)
        self.require_single(2)
        n_times, n_features = self.in_shapes[0][-2:]
        self.require(n_times > 0, "at least one time")
        self.lstm = nn.LSTM(n_features, hidden_size, num_layers, batch_first=True, bidirectional=bidirectional)
        self.dense = dense_layers([(1 + bidirectional) * hidden_size, hidden_size], non_lin)

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """[B, T, hidden_size] from [B, T, n]."""
        return {self.out_keys[0]: self.dense(self.lstm(block_input[self.in_keys[0]])[0])}
