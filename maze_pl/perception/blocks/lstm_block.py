"""Block with an LSTM over the time steps of an observation."""

from torch import Tensor, nn

from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.layer_options import ModuleClass, Normalization
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock


class LSTMBlock(ShapeNormalizationBlock):
    """LSTM over an observation's time steps, then a dense layer.

    Maps [..., T, n] to [..., T, hidden_size]:

        h_1, ..., h_T = LSTM(x_1, ..., x_T),   y_t = non_lin(W h_t + b)

    The state is zero at the start of each observation and is not kept. All time steps share the
    dense layer.

    Args:
        in_keys: Name of the sequences.
        out_keys: Name of the output.
        in_shapes: Shape of the sequences (T, n), or (..., T, n).
        hidden_size: Width of the state of each direction, and of the output.
        num_layers: Number of LSTM layers.
        bidirectional: Whether further layers process the sequence in reverse.
        non_lin: Activation, a class or its path.
        normalization: "batch" or "layer" normalises before the activation of the dense layer; None
            does not.
        dropout: Probability of setting an output of an LSTM layer or of the dense layer to 0 in
            training mode.

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
        normalization: Normalization | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes, in_num_dims=3, out_num_dims=3)
        self.require_single(2)
        self.require_numbers(hidden_size=hidden_size, num_layers=num_layers)
        self.require_flags(bidirectional=bidirectional)
        self.require_normalization(normalization)
        self.require_probability(dropout=dropout)
        self.lstm = nn.LSTM(
            self.in_shapes[0][-1],
            hidden_size,
            num_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,  # between layers only
        )
        widths = [(1 + bidirectional) * hidden_size, hidden_size]
        activation = self.module_class(non_lin=non_lin)
        self.dense = dense_layers(widths, activation, normalization, dropout)
        if dropout > 0.0:
            self.dense.insert(0, nn.Dropout(dropout))  # of the last LSTM layer

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [B, T, hidden_size] for sequences [B, T, n]."""
        sequences = self.as_floats(block_input[self.in_keys[0]])
        return {self.out_keys[0]: self.dense(self.lstm(sequences)[0])}
