"""The orders of many episodes in torch tensors."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from maze_pl.envs.cutting_2d.demand import DemandGenerator
from maze_pl.envs.cutting_2d.mixed_periodic_demand import MixedPeriodicDemand
from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.cutting_2d.static_demand import StaticDemand
from maze_pl.envs.cutting_2d.uniform_demand import UniformDemand
from maze_pl.envs.tensors.tensor_streams import uniform

_WEIGHT_UNITS: Final = 2**32
"""Units of a weight of 1, so that the sums of many weights are exact in float64, too."""


class TensorOrders:
    """Draws the orders of episodes, with the probabilities of the generator of single episodes.

    Args:
        demand: Generator of orders: `StaticDemand`, `MixedPeriodicDemand` or `UniformDemand`.
        raw_piece_size: Size of a raw piece.
        device: Device of the tensors.

    Attributes:
        length: Number of orders after which they repeat; 0 if they never do.

    Raises:
        TypeError: The generator has no form for tensors.
    """

    def __init__(self, demand: DemandGenerator, raw_piece_size: Piece, device: torch.device) -> None:
        self._demand = demand
        self._raw = torch.tensor(raw_piece_size, dtype=torch.float32, device=device)
        if isinstance(demand, StaticDemand):
            self.length = len(demand.pieces)
            self._fixed = torch.tensor(demand.pieces, dtype=torch.float32, device=device)
        elif isinstance(demand, MixedPeriodicDemand):
            demand.check(raw_piece_size)
            self.length = demand.m_demanded_pieces
        elif isinstance(demand, UniformDemand):
            self.length = 0
            self._largest = torch.tensor(demand.max_size, dtype=torch.float32, device=device)
        else:
            known = "StaticDemand, MixedPeriodicDemand and UniformDemand have"
            raise TypeError(f"{type(demand).__name__} has no form for tensors ({known} one); use the form for arrays")

    def period(self, seeds: Tensor) -> Tensor:
        """Return the orders that repeat in an episode.

        Args:
            seeds: [N] int64, seeds of the episodes.

        Returns:
            [N, length, 2] float32.
        """
        if isinstance(self._demand, StaticDemand):
            return self._fixed.expand(len(seeds), -1, -1)
        assert isinstance(self._demand, MixedPeriodicDemand)
        return self._mixed(self._demand, seeds)

    def independent(self, seeds: Tensor, index: Tensor) -> Tensor:
        """Return one of the orders of an episode that never repeat.

        Args:
            seeds: [N] int64, seeds of the episodes.
            index: [N] int64, number of the order in its episode.

        Returns:
            [N, 2] float32.
        """
        return (uniform(seeds, 2, first=2 * index) * self._largest).floor().float() + 1.0

    def _mixed(self, demand: MixedPeriodicDemand, seeds: Tensor) -> Tensor:
        """Cut raw pieces at random, straight across and at integer positions, then shuffle them.

        `MixedPeriodicDemand` draws a piece, a direction and a position below its extent, and draws
        again if the position is 0. The accepted draws have probability (extent - 1) / extent for a
        piece and direction, and are uniform in the position; here they are drawn at once.
        """
        n_envs, length = len(seeds), demand.m_demanded_pieces
        n_cuts = length - demand.n_raw_pieces
        uniform_numbers = uniform(seeds, 2 * n_cuts + 2 * length)
        numbers = uniform_numbers.float()
        places = torch.arange(length, device=seeds.device)
        pieces = (places < demand.n_raw_pieces)[:, None] * self._raw
        pieces = pieces.expand(n_envs, -1, -1)
        for number in range(n_cuts):
            weight = (pieces - 1.0).clamp(min=0.0) / pieces.clamp(min=1.0)  # 0 where there is no piece yet
            # Cumulative sums of integers are exact; those of floats are not reproducible on a GPU.
            units = (weight.double() * _WEIGHT_UNITS).long().flatten(1)
            bounds = units.cumsum(1)  # [N, 2 * length]
            threshold = uniform_numbers[:, 2 * number, None] * bounds[:, -1:]
            chosen = (bounds <= threshold).sum(1).clamp(max=2 * length - 1)
            index, axis = chosen // 2, chosen % 2
            piece = pieces[torch.arange(n_envs, device=seeds.device), index]  # [N, 2]
            extent = piece.gather(1, axis[:, None])
            cut = 1.0 + (numbers[:, 2 * number + 1, None] * (extent - 1.0)).floor().clamp(max=extent - 2.0)
            along = torch.arange(2, device=seeds.device) == axis[:, None]
            first, second = torch.where(along, cut, piece), torch.where(along, piece - cut, piece)
            is_first = (places == index[:, None])[..., None]
            is_second = (places == demand.n_raw_pieces + number)[None, :, None]
            pieces = torch.where(is_first, first[:, None], torch.where(is_second, second[:, None], pieces))
        order = numbers[:, 2 * n_cuts : 2 * n_cuts + length].argsort(dim=1, stable=True)
        pieces = pieces.gather(1, order[..., None].expand(-1, -1, 2))
        if not demand.rotate:
            return pieces
        is_turned = numbers[:, 2 * n_cuts + length :] < 0.5
        return torch.where(is_turned[..., None], pieces.flip(2), pieces)
