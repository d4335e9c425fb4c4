"""Block that encodes categories as one-hot vectors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes, is_list


class OneHotBlock(PerceptionBlock):
    """One-hot encoding of categories: integers [..., *shape] to vectors [..., total].

    The vectors of several integers, as in a MultiDiscrete, are concatenated. An integer that is not
    a category becomes zeros.

    One of n entries is not zero, so that the input of the next layer becomes small if n is large,
    and categories are hard to tell apart at first. `unit_variance` corrects this: the entry is
    sqrt(n) then, which gives all entries a mean square of 1 if categories are equally frequent.

    Args:
        in_keys: Name of the input, integers.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        n_categories: Number of categories; for several integers a list with one number each, row by
            row.
        start: The first category; one for all integers, or a list with one each.
        unit_variance: Whether the entry of the category is sqrt(n) instead of 1.

    Example:
        >>> block = OneHotBlock("direction", "vector", [], n_categories=4)
        >>> block({"direction": torch.tensor(2)})["vector"]
        tensor([0., 0., 1., 0.])
    """

    takes_numbers: ClassVar[bool] = True

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        n_categories: int | Sequence[int],
        start: int | Sequence[int] = 0,
        unit_variance: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.require_single(0)
        self._n_dims = len(self.in_shapes[0])
        n_numbers = math.prod(self.in_shapes[0])
        counts: list[Any] = [*n_categories] if is_list(n_categories) else [n_categories]  # type: ignore[misc]
        starts: list[Any] = [*start] if is_list(start) else [start] * len(counts)  # type: ignore[misc]
        self.require_lists(n_categories=counts)
        self.require_lists(None, start=starts)
        one_each = len(counts) == len(starts) == n_numbers
        self.require(
            one_each,
            f"n_categories and start for each of {n_numbers} numbers, not {counts} and {starts}",
        )
        levels = [torch.arange(first, first + n) for first, n in zip(starts, counts, strict=True)]
        self.levels = nn.Buffer(torch.cat(levels), persistent=False)
        source = torch.arange(n_numbers).repeat_interleave(torch.tensor(counts))
        self.source = nn.Buffer(source, persistent=False)
        self.require_flags(unit_variance=unit_variance)
        self.unit_variance = unit_variance
        self.one = nn.Buffer(torch.ones(()), persistent=False)  # has the type of the network
        if unit_variance:
            sizes = torch.tensor(counts, dtype=self.one.dtype).repeat_interleave(torch.tensor(counts))
            self.entry = nn.Buffer(sizes.sqrt(), persistent=False)

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return one-hot vectors [..., total number of categories]."""
        numbers = block_input[self.in_keys[0]]
        flat = numbers.flatten(-self._n_dims) if self._n_dims else numbers.unsqueeze(-1)
        chosen = flat.long().index_select(-1, self.source) == self.levels
        vectors = chosen.to(self.one.dtype)
        return {self.out_keys[0]: vectors * self.entry if self.unit_variance else vectors}
