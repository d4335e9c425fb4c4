"""Block with one linear layer, for logits and values."""

from torch import nn

from maze_pl.perception.blocks.dense import NetBlock
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class LinearOutputBlock(NetBlock):
    """One linear layer without activation, for logits and values: [..., n] to [..., output_units].

    Args:
        in_keys: Name of the input.
        out_keys: Name of the output.
        in_shapes: Shape of the input (n,), or (..., n).
        output_units: Number of outputs.

    Example:
        >>> LinearOutputBlock("latent", "value", [16], output_units=1).out_shapes()
        [(1,)]
    """

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes, output_units: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(1)
        self.require_numbers(output_units=output_units)
        self.net = nn.Linear(self.in_shapes[0][-1], output_units)
