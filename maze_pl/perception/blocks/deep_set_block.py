"""Block that embeds a set of items as one vector."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.item_sets import ItemSetBlock
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import Keys, Shapes
from maze_pl.perception.blocks.pooling import PoolingFunction


class DeepSetBlock(ItemSetBlock):
    """Embeds each item of a set, then pools: items (N, F) and their context to (hidden_units[-1],).

        y = pool_i h_{L, i},   h_{1, i} = f(A_1 x_i + C c + b_1),
        h_{l + 1, i} = f(A_l h_{l, i} + B_l mean_j h_{l, j} + b_l)

    Zaheer et al. 2017, arXiv:1703.06114. The output does not depend on slots, on padding, or on the
    number of slots; it is 0 for an empty set. For critics and networks that act on a whole set;
    `PointerBlock` chooses one item.

    Args:
        in_keys: Name of the items, and names of further inputs in any order. Inputs that no option
            below names form the context.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs, first of the items, (N, F).
        mask_key: Input (N,) that is 0 where the slot holds no item; such slots have no effect.
            Without it, all slots hold items.
        chosen_keys: Inputs () or (k,), indices of items that were chosen before, whose numbers are
            appended to the output, after the pooled embedding, and are part of the context. A
            number that is not the index of a slot, such as -1, stands for no item.
        compare_keys: Inputs (m,), whose differences from all numbers of each item are encoded, too;
            they need `levels`. They are part of the context.
        hidden_units: Width of each layer of the embedding; at least one layer.
        non_lin: Activation f, a class or its path.
        levels: Numbers of items and of `compare_keys` are whole numbers from 0, and one-hot
            encoded; those of at least `levels` count as the largest. None uses numbers as they are.
        any_order: Whether items with the same numbers in another order are the same, such as
            rectangles that may be rotated; the same holds for `compare_keys`.
        skip_zeros: Whether items whose numbers are all 0 do not exist.
        skip_masked: Whether masked slots are not even computed on the CPU, which is faster if there are
            many, but makes shapes depend on values, so that updates cannot be traced there.
        pooling_func: "mean", "sum" or "max". With "sum", the output also depends on the number of items.

    Raises:
        ValueError: Shapes do not fit the roles of the inputs, or an option names no input.

    Example:
        >>> import torch
        >>> block = DeepSetBlock(["jobs", "waits"], "vector", [[5, 3], [5]], mask_key="waits")
        >>> block.out_shapes()
        [(64,)]
        >>> block({"jobs": torch.randn(9, 3), "waits": torch.zeros(9)})["vector"].any()
        tensor(False)
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        mask_key: str | None = None,
        chosen_keys: Sequence[str] = (),
        compare_keys: Sequence[str] = (),
        hidden_units: Layers = (64, 64),
        non_lin: ModuleClass = nn.ReLU,
        levels: int | None = None,
        any_order: bool = False,
        skip_zeros: bool = False,
        skip_masked: bool = True,
        pooling_func: PoolingFunction = "mean",
    ) -> None:
        super().__init__(
            in_keys,
            out_keys,
            in_shapes,
            out_num_dims=2,
            mask_key=mask_key,
            chosen_keys=chosen_keys,
            compare_keys=compare_keys,
            hidden_units=hidden_units,
            non_lin=non_lin,
            levels=levels,
            any_order=any_order,
            skip_zeros=skip_zeros,
            skip_masked=skip_masked,
        )
        known = ("mean", "sum", "max")
        self.require(pooling_func in known, f"pooling_func {', '.join(known)}, not {pooling_func!r}")
        self.pooling_func = pooling_func

    def normalized_forward(self, block_input: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [B, width]."""
        encoded = self.encode(block_input)
        pool = getattr(encoded.sets, self.pooling_func)
        vector = pool(encoded.embeddings)
        if encoded.chosen is not None:
            vector = torch.cat([vector, encoded.chosen], -1)
        return {self.out_keys[0]: vector}
