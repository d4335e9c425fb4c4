"""Distribution of independent bits."""

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution, drawn


class BernoulliProbabilityDistribution(MaskableProbabilityDistribution):
    """Independent bits: logits [..., n] are log(p / (1 - p)).

    Actions are int8 [..., *shape], n = prod(shape). A masked bit is always 0, with log-probability 0 and entropy 0.
    """

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(number of bits,)."""
        return (math.prod(cls._require(action_space, spaces.MultiBinary).shape),)

    def log_probs_of_options(self) -> Tensor:
        """[..., 2n] log-probabilities bit by bit: first that the bit is 0, then that it is 1."""
        return functional.logsigmoid(torch.stack((-self._masked, self._masked), dim=-1)).flatten(-2)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] int8 bits."""
        probability = torch.sigmoid(self._masked)
        bits = drawn(torch.rand, probability, generator) < probability
        return self._shaped(bits.to(torch.int8))

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] int8 bits: 1 where 1 is more likely than 0."""
        return self._shaped((self._masked > 0).to(torch.int8))
