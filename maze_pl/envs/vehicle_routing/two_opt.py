"""Routes that become shorter by reversing parts of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array

_LEAST_GAIN = 1e-9
"""Smallest improvement that is accepted, relative to the length of the path."""


def two_opt(distances: Array, path: Sequence[int]) -> list[int]:
    """Reverse parts of a path as long as this makes it shorter; the best reversal comes first.

        gain(i, j) = d(a, b) + d(e, f) - d(a, e) - d(b, f),   a, b and e, f consecutive nodes

    The first and the last node keep their places. Croes 1958 (Operations Research 6(6), pp.
    791-812).

    Args:
        distances: [nodes, nodes], symmetric.
        path: Nodes in order; a route begins and ends with the depot, 0.

    Example:
        >>> corners = np.array([0, 1, 1 + 1j, 1j])
        >>> two_opt(abs(corners[:, np.newaxis] - corners), [0, 2, 1, 3, 0])
        [0, 1, 2, 3, 0]
    """
    nodes = np.array(path)
    if len(nodes) < 4:  # depot and two customers at most: there is nothing to reverse
        return [int(node) for node in nodes]
    least = _LEAST_GAIN * float(distances[nodes[:-1], nodes[1:]].sum())
    while True:
        gains = _gains(distances, nodes)
        best = int(gains.argmax())
        i, j = divmod(best, gains.shape[1])  # i < j, as gains are symmetric and the first of the largest is taken
        if gains[i, j] <= least:
            return [int(node) for node in nodes]
        nodes[i + 1 : j + 1] = nodes[i + 1 : j + 1][::-1].copy()


def _gains(distances: Array, nodes: Array) -> Array:
    """Gain of reversing what lies between edges i and j, [edges, edges]; 0 for i = j."""
    start = nodes[:-1]
    end = nodes[1:]
    lengths = distances[start, end]
    joined = distances[start[:, np.newaxis], start] + distances[end[:, np.newaxis], end]
    gains = np.asarray(lengths[:, np.newaxis] + lengths - joined)
    np.fill_diagonal(gains, 0.0)
    return gains
