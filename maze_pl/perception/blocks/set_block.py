"""Block for sets of vectors without an order."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes
from maze_pl.perception.blocks.scaling import Bound, Scaling


class SetBlock(PerceptionBlock):
    """Embeds each row of a matrix by shared layers, then pools: [..., P, D] to [..., 2 n].

        y = (mean_p h(x_p), max_p h(x_p)),   h: dense layers with n = hidden_units[-1] outputs

    The order of the rows does not matter. Zaheer et al. 2017, arXiv:1703.06114, with the maximum
    besides the mean.

    Args:
        in_keys: Name of the matrix.
        out_keys: Name of the output.
        in_shapes: Shape of the matrix (P, D), or (..., P, D).
        hidden_units: Width of each shared layer.
        non_lin: Activation, a class or its path.
        low: Lowest value, if numbers are to be scaled to 0..1; one for all columns, or a list with
            one each. Integers are used as they are without it.
        high: Highest value, likewise.

    Example:
        >>> SetBlock("pieces", "vector", [20, 3], hidden_units=[32]).out_shapes()
        [(64,)]
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        hidden_units: Layers,
        non_lin: ModuleClass = nn.ReLU,
        low: Bound | None = None,
        high: Bound | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(2)
        self.require_lists(hidden_units=hidden_units)
        self.require((low is None) == (high is None), f"both low and high or neither, not {low=} and {high=}")
        size = self.in_shapes[0][-1]
        self.scaling = None if low is None or high is None else Scaling(self, size, low, high)
        self.net = dense_layers([size, *hidden_units], self.module_class(non_lin=non_lin))

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the pooled embedding [..., 2 n]."""
        rows = block_input[self.in_keys[0]]
        rows = self.as_floats(rows) if self.scaling is None else self.scaling(rows)
        embedded = self.net(rows)
        return {self.out_keys[0]: torch.cat([embedded.mean(-2), embedded.amax(-2)], -1)}
