"""Distribution of several independent choices."""

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.probability_distribution import (
    MaskableProbabilityDistribution,
    choice_sizes,
    log_prob_and_entropy_of,
    sample_index,
)


class MultiCategoricalProbabilityDistribution(MaskableProbabilityDistribution):
    """Independent choices, the i-th among nvec[i] options.

    Logits and masks are the concatenation of those of the choices, [..., sum(nvec)].
    Actions are int64 [..., *nvec.shape]; a space of more than one dimension is read row by row.
    """

    def _prepare(self) -> None:
        super()._prepare()
        self._parts = torch.split(self._masked, self._sizes(self.action_space), dim=-1)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(sum(nvec),)."""
        return (sum(cls._sizes(action_space)),)

    def log_probs_of_options(self) -> Tensor:
        """[..., sum(nvec)] log-probability of every option of all choices."""
        return torch.cat([functional.log_softmax(part, dim=-1) for part in self._parts], dim=-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *nvec.shape] int64."""
        indices = [sample_index(part, generator) for part in self._parts]
        return self._shaped(torch.stack(indices, dim=-1))

    def deterministic_sample(self) -> Tensor:
        """[..., *nvec.shape] int64, the most likely option of each choice."""
        return self._shaped(torch.stack([part.argmax(dim=-1) for part in self._parts], dim=-1))

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, whose gradients are computed together."""
        log_probs: list[Tensor] = []
        entropies: list[Tensor] = []
        for part, index in zip(self._parts, self._flat(action).unbind(-1), strict=True):
            log_prob, entropy = log_prob_and_entropy_of(part, index)
            log_probs.append(log_prob)
            entropies.append(entropy)
        return torch.stack(log_probs).sum(dim=0), torch.stack(entropies).sum(dim=0)

    @classmethod
    def _sizes(cls, action_space: spaces.Space[Any]) -> list[int]:
        space = cls._require(action_space, spaces.MultiDiscrete)
        if space.start.any():
            remedy = "subtract the start in a wrapper"
            raise TypeError(f"MultiDiscrete with start={space.start} is not supported; {remedy}")
        return choice_sizes(space)
