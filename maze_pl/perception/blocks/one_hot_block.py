"""Block that encodes categories as one-hot vectors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import Keys, PerceptionBlock, Shapes, is_list


class OneHotBlock(PerceptionBlock):
    """One-hot encoding of categories: integers [..., *shape] to vectors [..., total].

    The vectors of several integers, as in a MultiDiscrete, are concatenated. An integer that is not
    a category becomes zeros.

    Args:
        in_keys: Name of the input, integers.
        out_keys: Name of the output.
        in_shapes: Shape of the input.
        n_categories: Number of categories; for several integers a list with one number each, row by
            row.
        start: The first category; one for all integers, or a list with one each.

    Example:
        >>> block = OneHotBlock("direction", "vector", [], n_categories=4)
        >>> block({"direction": torch.tensor(2)})["vector"]
        tensor([0., 0., 1., 0.])
    """

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        n_categories: int | Sequence[int],
        start: int | Sequence[int] = 0,
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
        self.one = nn.Buffer(torch.ones(()), persistent=False)  # has the type of the network

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return one-hot vectors [..., total number of categories]."""
        numbers = block_input[self.in_keys[0]]
        flat = numbers.flatten(-self._n_dims) if self._n_dims else numbers.unsqueeze(-1)
        chosen = flat.long().index_select(-1, self.source) == self.levels
        return {self.out_keys[0]: chosen.to(self.one.dtype)}
