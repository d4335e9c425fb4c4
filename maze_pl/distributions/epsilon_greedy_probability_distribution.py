"""Distribution of a policy that acts greedily on action values, except for a share of random actions."""

import functools
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions.probability_distribution import (
    MaskableProbabilityDistribution,
    choice_sizes,
    masked_by_network,
    masked_logits,
    sample_index,
)


class EpsilonGreedyProbabilityDistribution(MaskableProbabilityDistribution):
    """The option of the largest value, or with probability epsilon any allowed option.

        p_i = epsilon / n + (1 - epsilon) * [i = argmax_j Q_j],   n the number of allowed options

    Logits [..., L] are action values: of the n options of a Discrete space, of the options of all
    choices of a MultiDiscrete space, sum(nvec), and of two options of each bit of a MultiBinary
    space, not set and set. The choices are independent: each of them explores with probability
    epsilon. Epsilon is the policy's `exploration`. Ties go to the first option. If a mask allows no
    option, all are allowed; a masked bit is always 0. Options that a block of the network masks,
    such as a `PointerBlock`, are not allowed either, unless the mask allows no others.

    Mnih et al. 2015, https://doi.org/10.1038/nature14236.

    Example:
        >>> distribution = EpsilonGreedyProbabilityDistribution(torch.tensor([1.0, 3.0, 2.0]), spaces.Discrete(3))
        >>> distribution.exploration = 0.3
        >>> distribution.probabilities()[0]
        tensor([0.1000, 0.8000, 0.1000])
    """

    has_exploration_scale: ClassVar[bool] = True

    def __init__(
        self,
        logits: Tensor,
        action_space: spaces.Space[Any],
        temperature: float = 1.0,
        mask: Tensor | None = None,
    ) -> None:
        if mask is not None and isinstance(action_space, spaces.MultiBinary):
            # [..., bits] -> [..., 2 * bits]: a bit may always be 0
            mask = torch.stack((torch.ones_like(mask), mask), dim=-1).flatten(-2)
        super().__init__(logits, action_space, temperature, mask)

    def _prepare(self) -> None:
        self._sizes = choice_sizes(self.action_space)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(number of options of all choices,); two for each bit."""
        sizes = choice_sizes(action_space)
        if not sizes:
            raise TypeError(f"{cls.__name__} needs a Discrete, MultiDiscrete or MultiBinary space, got {action_space}")
        if isinstance(action_space, spaces.MultiDiscrete) and np.any(action_space.start):
            remedy = "subtract the start in a wrapper"
            raise TypeError(f"MultiDiscrete with start={action_space.start} is not supported; {remedy}")
        return (sum(sizes),)

    # --------------------------------------------------------------------------------------- values

    def greedy_options(self) -> Tensor:
        """[..., number of choices] int64 best allowed options, as ordered by `chosen_options`."""
        first = 0
        best: list[Tensor] = []
        for values in self._by_choice(masked_logits(self.logits, self.mask)):
            index = values.argmax(dim=-1, keepdim=True)
            best.append(index + first if first else index)
            first += values.shape[-1]
        return best[0] if len(best) == 1 else torch.cat(best, dim=-1)

    def value_of(self, options: Tensor) -> Tensor:
        """[...] sum of the values of options [..., number of choices], as from `chosen_options`."""
        return self.logits.gather(-1, options).sum(dim=-1)

    def mean_value(self) -> Tensor:
        """[...] sum over the choices of the mean value of the allowed options."""
        means: list[Tensor] = []
        pairs = zip(self._by_choice(self.logits), self._by_choice(self._allowed), strict=True)
        for values, allowed in pairs:
            means.append(torch.where(allowed, values, 0.0).sum(dim=-1) / allowed.sum(dim=-1))
        return means[0] if len(means) == 1 else torch.stack(means).sum(dim=0)

    # ------------------------------------------------------------------------------------- sampling

    def log_probs_of_options(self) -> Tensor:
        """[..., L] log-probability of every option of all choices; minus infinity for impossible ones."""
        greedy = torch.zeros_like(self.logits).scatter_(-1, self.greedy_options(), 1.0)
        pairs = zip(self._by_choice(self._allowed.to(self.logits.dtype)), self._by_choice(greedy), strict=True)
        parts: list[Tensor] = []
        for allowed, best in pairs:
            share = allowed / allowed.sum(dim=-1, keepdim=True)
            probability = share * self.exploration + best * (1.0 - self.exploration)
            if self.temperature != 1.0:
                probability = probability.pow(1.0 / self.temperature)
                probability = probability / probability.sum(dim=-1, keepdim=True)
            parts.append(probability.log())
        return torch.cat(parts, dim=-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] the best options, or random ones."""
        parts = self._by_choice(self.log_probs_of_options())
        return self._action(torch.stack([sample_index(part, generator) for part in parts], dim=-1))

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the best options."""
        indices = [values.argmax(dim=-1) for values in self._by_choice(masked_logits(self.logits, self.mask))]
        return self._action(torch.stack(indices, dim=-1))

    # --------------------------------------------------------------------------------------- shapes

    @functools.cached_property
    def _allowed(self) -> Tensor:
        """[..., L] bool, the allowed options.

        If a network masks all options of a choice that its mask allows, these are allowed; if the
        mask allows none, all are.
        """
        allowed = ~masked_by_network(self.logits)
        if self.mask is not None:
            permitted = self.mask != 0
            allowed = self._completed(allowed & permitted, permitted)
        return self._completed(allowed, torch.ones_like(allowed))

    def _completed(self, allowed: Tensor, others: Tensor) -> Tensor:
        """[..., L] bool: the allowed options, or `others` in choices without any."""
        pairs = zip(self._by_choice(allowed), self._by_choice(others), strict=True)
        parts = [part | (other & ~part.any(dim=-1, keepdim=True)) for part, other in pairs]
        return torch.cat(parts, dim=-1)

    def _by_choice(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """Split the options [..., L] of all choices."""
        return (tensor,) if len(self._sizes) == 1 else torch.split(tensor, self._sizes, dim=-1)

    def _action(self, index: Tensor) -> Tensor:
        """[..., *shape] actions from the index [..., number of choices] of an option of each choice."""
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            return index.squeeze(-1) + int(space.start) if space.start else index.squeeze(-1)
        return self._shaped(index.to(torch.int8) if isinstance(space, spaces.MultiBinary) else index)
