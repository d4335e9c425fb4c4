"""Block that encodes whole numbers, and their differences from others, as one-hot vectors."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.levels import one_hot_levels, whole_numbers
from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes, is_list


class LevelsBlock(PerceptionBlock):
    """Whole numbers as one-hot vectors, together with their differences from other numbers.

    The output holds `levels` entries for each number of the input, and 2 * `levels` - 1 for each
    difference of one of its numbers from one of the numbers of `compare_keys`. One-hot vectors help
    if exact values matter, such as those of a length that remains after a cut.

    Args:
        in_keys: Name of the numbers (F,), then the names in `compare_keys`.
        out_keys: Name of the output.
        in_shapes: Shapes of the inputs, vectors.
        levels: Numbers are whole numbers from 0; those of at least `levels` count as the largest.
            Differences beyond the range of two levels become zeros or the largest.
        compare_keys: Further inputs (m,) whose differences from the numbers are encoded.

    Raises:
        ValueError: An input is not a vector, or the further inputs are not those of `compare_keys`.

    Example:
        >>> import torch
        >>> block = LevelsBlock(["side", "order"], "vector", [[1], [1]], levels=3, compare_keys=["order"])
        >>> block({"side": torch.tensor([2]), "order": torch.tensor([1])})["vector"]
        tensor([0., 0., 1., 0., 0., 0., 1., 0.])
    """

    takes_numbers = True

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        levels: int,
        compare_keys: Sequence[str] = (),
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_numbers(2, levels=levels)
        good = is_list(compare_keys) and list(compare_keys) == self.in_keys[1:]
        self.require(good, f"the further inputs to be those of compare_keys, not {compare_keys!r}")
        leading = {shape[:-1] for shape in self.in_shapes}
        good = len(leading) == 1 and all(self.in_shapes) and len(self.out_keys) == 1
        self.require(good, "vectors, and one output")
        self.levels = levels
        self.one = nn.Buffer(torch.ones(()), persistent=False)  # has the type of the network

    @classmethod
    def further_keys(cls, options: Mapping[str, Any]) -> list[str]:
        """See `PerceptionBlock.further_keys`."""
        names = options.get("compare_keys")
        return [name for name in names if isinstance(name, str)] if is_list(names) else []  # type: ignore[union-attr]

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return one-hot vectors [..., width]."""
        numbers = whole_numbers(block_input[self.in_keys[0]])
        highest = self.levels - 1
        encoded = [one_hot_levels(numbers, 0, highest, self.one.dtype)]
        for key in self.in_keys[1:]:
            others = whole_numbers(block_input[key])
            differences = (numbers.unsqueeze(-1) - others.unsqueeze(-2)).flatten(-2)
            encoded.append(one_hot_levels(differences, -highest, highest, self.one.dtype))
        return {self.out_keys[0]: torch.cat(encoded, -1)}
