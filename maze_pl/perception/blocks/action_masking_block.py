"""Block that masks logits."""

from maze_pl.distributions.probability_distribution import masked_logits
from maze_pl.perception.blocks.one_output_block import OneOutputBlock
from maze_pl.perception.blocks.perception_block import Keys, Shapes


class ActionMaskingBlock(OneOutputBlock):
    """Sets logits to the most negative finite number of their type where a mask is 0.

    Masked entries have probability 0 and gradient 0, and no NaN arises. Masks that an environment
    declares (`action_masks_dict`) are applied by the policy and need no block.

    Args:
        in_keys: Names of logits and mask, in this order.
        out_keys: Name of the masked logits.
        in_shapes: Shapes of logits and mask, which are equal.

    Example:
        >>> import torch
        >>> block = ActionMaskingBlock(["logits", "mask"], "masked", [[3], [3]])
        >>> block({"logits": torch.zeros(3), "mask": torch.tensor([1, 0, 1])})["masked"].softmax(-1)
        tensor([0.5000, 0.0000, 0.5000])
    """

    n_computed = 1

    def __init__(self, in_keys: Keys, out_keys: Keys, in_shapes: Shapes) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        two = len(self.in_keys) == 2 and len(self.out_keys) == 1
        self.require(
            two and self.in_shapes[0] == self.in_shapes[1],
            "logits and a mask of one shape, and one output",
        )
        self.func = masked_logits
