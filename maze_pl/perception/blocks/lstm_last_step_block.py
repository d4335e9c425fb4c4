"""Block with an LSTM that returns its last time step."""

from functools import partial

from torch import nn

from maze_pl.perception.blocks.composed import JointBlock
from maze_pl.perception.blocks.layer_options import ModuleClass, Normalization
from maze_pl.perception.blocks.lstm_block import LSTMBlock
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.slicing_block import SlicingBlock


class LSTMLastStepBlock(JointBlock):
    """`LSTMBlock`, then `SlicingBlock` for the last time step: [..., T, n] to [..., hidden_size].

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
        >>> LSTMLastStepBlock("stack", "latent", [4, 16], hidden_size=32).out_shapes()
        [(32,)]
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
        lstm = partial(
            LSTMBlock,
            hidden_size=hidden_size,
            num_layers=num_layers,
            bidirectional=bidirectional,
            non_lin=non_lin,
            normalization=normalization,
            dropout=dropout,
        )
        last = partial(SlicingBlock, slice_dim=-2, slice_idx=-1)
        super().__init__(in_keys, out_keys, in_shapes, [lstm, last])
