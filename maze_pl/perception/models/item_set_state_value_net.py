"""Value network over the kinds of items in a set."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.layer_options import Layers
from maze_pl.perception.blocks.weight_init import make_module_init_normc
from maze_pl.perception.models.built_in import ItemSetNet, Shapes, check_widths, count_kinds


class ItemSetStateValueNet(ItemSetNet):
    """Dense value network whose inputs are the number of items of each kind, and the context.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions. Observations without one entry
            per item are the context.
        items_key: Observation [n, size] with one item per slot, all zeros in empty slots.
        levels: Numbers are whole and below this, so that there are levels**size kinds; larger
            numbers in the context count as the largest.
        any_order: Whether items with the same numbers in another order are of the same kind, such
            as rectangles that may be rotated.
        hidden_units: Width of each hidden layer.

    Raises:
        ValueError: No observation [n, size] has that name.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        items_key: str,
        levels: int,
        any_order: bool = False,
        hidden_units: Layers = (128, 64),
    ) -> None:
        super().__init__(obs_shapes, items_key, levels)
        check_widths(hidden_units)
        self.any_order = any_order
        sizes = [levels**self.item_size + self.context_size, *hidden_units]
        self.layers = dense_layers(sizes, nn.ReLU).apply(make_module_init_normc(1.0))
        self.value = nn.Linear(sizes[-1], 1).apply(make_module_init_normc(0.1))

    def forward(self, in_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map observations [..., *shape] to the output "value" [..., 1]."""
        items, context = self._split(in_dict)
        counts = count_kinds(items, self.levels, self.any_order).to(items.dtype)
        value = self.value(self.layers(torch.cat([counts / 3, context], -1)))
        return {"value": value.view(*in_dict[self.items_key].shape[:-2], 1)}
