"""Units of recorded numbers: networks learn slowly, or nothing, from values far from 0 or with a large spread."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.agents.network_io import NetworkInput
from maze_pl.estimation.weighted_episodes import Array

_LEAST_SPREAD = 1e-9
"""Spread, relative to the mean, of numbers that are all equal but for the rounding of their mean."""
_ROUNDING = 2.0
"""Spread, in rounding steps of their type at the mean, of floats that are all equal but for rounding."""


@dataclass(frozen=True)
class Units:
    """Mean and standard deviation of each component of recorded numbers.

    Attributes:
        centre: [*shape] float64 means.
        spread: [*shape] float64 standard deviations, 0 where all numbers are equal.
    """

    centre: Array
    spread: Array

    @classmethod
    def of(cls, values: Array) -> "Units":
        """Return the units of numbers [n, *shape].

        Example:
            >>> units = Units.of(np.array([[1000.0, 7.0], [3000.0, 7.0]]))
            >>> units.centre.tolist(), units.spread.tolist()
            ([2000.0, 7.0], [1000.0, 0.0])
        """
        centre = values.mean(0, dtype=np.float64)
        spread = values.std(0, dtype=np.float64)
        least = _LEAST_SPREAD
        if values.dtype.kind == "f":
            least = max(least, _ROUNDING * float(np.finfo(values.dtype).eps))
        return cls(centre, np.where(spread > least * np.abs(centre), spread, 0.0))

    @property
    def scale(self) -> Array:
        """[*shape] divisors: the spread, or 1 where it is 0."""
        return np.where(self.spread > 0.0, self.spread, 1.0)

    def standardised(self, values: Array) -> Array:
        """[..., *shape] float32 (x - centre) / scale of numbers [..., *shape].

        Computed in float64, as float32 rounds times since 1970 to multiples of 128 seconds.
        """
        standardised: Array = ((values - self.centre) / self.scale).astype(np.float32)
        return standardised


class InRecordedUnits(nn.Module):
    """A policy network that gets standardised observations and computes Gaussians in standardised actions.

        mean = centre + scale * m,    log std = log(scale) + s,    of its outputs m and s

    What is returned are distributions of the actions as they are, so that densities and bounds
    need no correction. Both are computed in float64, as in `Units.standardised`.

    Args:
        network: The network.
        observations: Observation -> its units; others are passed on as they are.
        actions: Head with a Gaussian distribution -> the units of its components [n].

    Attributes:
        input_dtype: Type that policies pass observations in.
    """

    input_dtype = torch.float64

    def __init__(self, network: nn.Module, observations: Mapping[str, Units], actions: Mapping[str, Units]) -> None:
        super().__init__()
        self.network = network
        self._network_input = NetworkInput(network)
        self._observations = {name: _tensors(units) for name, units in observations.items()}
        self._actions = {head: _tensors(units) for head, units in actions.items()}

    def forward(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the logits [..., L] by head of observations [..., *shape]."""
        inputs = dict(observation)
        for name, (centre, scale) in self._observations.items():
            inputs[name] = (observation[name].double() - centre) / scale
        logits = dict(self.network(self._network_input(inputs)))
        for head, (centre, scale) in self._actions.items():
            mean, log_std = logits[head].chunk(2, -1)
            logits[head] = torch.cat([centre + scale * mean, log_std + scale.log()], -1)
        return logits


def _tensors(units: Units) -> tuple[Tensor, Tensor]:
    """Centre and scale [*shape] as float64."""
    return torch.from_numpy(units.centre), torch.from_numpy(units.scale)
