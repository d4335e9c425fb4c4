"""Logits of which some are ruled out, for networks that mask by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from maze_pl.distributions.probability_distribution import masked_logits
from maze_pl.perception.blocks.perception_block import PerceptionBlock


class ActionMaskingBlock(PerceptionBlock):
    """Gives logits the most negative finite number of their type where a mask is 0, and leaves the others alone.

    Probabilities there are 0 and gradients too, nothing becomes NaN. Masks that an environment declares
    (`action_masks_dict`) are applied by the policy and need no block.

    Args:
        in_keys: Names of logits and mask, in this order.
        out_keys: Name of the masked logits.
        in_shapes: Shapes of logits and mask, which are equal.

    Raises:
        ValueError: There are not two inputs of one shape, or not one output.

    Example:
        >>> block = ActionMaskingBlock(["logits", "mask"], "masked", [[3], [3]])
        >>> block({"logits": torch.zeros(3), "mask": torch.tensor([1, 0, 1])})["masked"].softmax(-1)
        tensor([0.5000, 0.0000, 0.5000])
    """

    def __init__(
        self, in_keys: Sequence[str], out_keys: str | Sequence[str], in_shapes: Sequence[Sequence[int]]
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        if len(self.in_keys) != 2 or len(self.out_keys) != 1 or self.in_shapes[0] != self.in_shapes[1]:
            raise ValueError(
                f"ActionMaskingBlock takes logits and a mask of one shape and gives one output; got in_keys="
                f"{self.in_keys}, in_shapes={self.in_shapes}, out_keys={self.out_keys}"
            )

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The masked logits [..., L]."""
        logits, mask = (block_input[key] for key in self.in_keys)
        return {self.out_keys[0]: masked_logits(logits, mask)}
