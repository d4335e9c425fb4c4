"""Sum tree: sampling in proportion to numbers that change."""

import numpy as np

from maze_pl.core.policy import Array


class SumTree:
    """Numbers in the leaves of a binary tree in which each node is the sum of its children.

    Sampling a leaf in proportion to its number and changing a number take about log2(capacity)
    operations.

    Args:
        capacity: Number of leaves, which begin as 0.

    Example:
        >>> tree = SumTree(4)
        >>> tree.update(np.array([0, 1, 3]), np.array([1.0, 3.0, 2.0]))
        >>> tree.total, tree.find(np.array([0.5, 1.0, 3.9, 4.0])).tolist()
        (6.0, [0, 1, 1, 3])
    """

    def __init__(self, capacity: int) -> None:
        self._depth = (capacity - 1).bit_length()
        self._nodes = np.zeros(2 << self._depth)
        self.leaves = self._nodes[1 << self._depth :]

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._nodes[1])

    def update(self, places: Array, numbers: Array) -> None:
        """Replace numbers; if a leaf is given twice, its last number counts.

        Args:
            places: [n] indices of leaves.
            numbers: [n] their new numbers.
        """
        self.leaves[places] = numbers
        nodes = places + (1 << self._depth)
        for _ in range(self._depth):
            nodes = nodes >> 1
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, sums: Array) -> Array:
        """Find, for each sum, the first leaf at which the cumulative sum of the numbers exceeds it.

        Args:
            sums: [...] numbers of at least 0 and below `total`.
        """
        nodes = np.ones(sums.shape, np.int64)
        for _ in range(self._depth):
            nodes *= 2
            left = self._nodes[nodes]
            # rounding never leads to an empty subtree
            goes_right = (sums >= left) & (self._nodes[nodes + 1] > 0)
            sums = np.where(goes_right, sums - left, sums)
            nodes += goes_right
        return nodes - (1 << self._depth)
