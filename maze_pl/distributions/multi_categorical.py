"""Several independent categorical distributions side by side, for MultiDiscrete heads."""

from typing import Any, Self

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.categorical import entropy_of, gather_last, kl_of, log_prob_and_entropy_of, sample_index
from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution


class MultiCategoricalProbabilityDistribution(MaskableProbabilityDistribution):
    """Independent choices, the i-th among nvec[i] options: logits and masks are their concatenation [..., sum(nvec)].

    Actions are int64 [..., *nvec.shape]; a space of more than one dimension is read row by row.
    """

    def _prepare(self) -> None:
        super()._prepare()
        self._parts = torch.split(self._masked, self._sizes(self.action_space), dim=-1)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(sum(nvec),)."""
        return (sum(cls._sizes(action_space)),)

    @property
    def log_probs(self) -> list[Tensor]:
        """[..., nvec[i]] log-probability of every option of each choice."""
        return [functional.log_softmax(part, dim=-1) for part in self._parts]

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *nvec.shape] int64."""
        return self._shaped(torch.stack([sample_index(part, generator) for part in self._parts], dim=-1))

    def deterministic_sample(self) -> Tensor:
        """[..., *nvec.shape] int64, the most likely option of each choice."""
        return self._shaped(torch.stack([part.argmax(dim=-1) for part in self._parts], dim=-1))

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] sum of the log-probabilities of all choices in `action` [..., *nvec.shape]."""
        terms = [gather_last(*pair) for pair in zip(self.log_probs, self._flat(action).unbind(-1), strict=True)]
        return torch.stack(terms).sum(dim=0)

    def entropy(self) -> Tensor:
        """[...] sum of the entropies of all choices in nats."""
        return torch.stack([entropy_of(part) for part in self.log_probs]).sum(dim=0)

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, whose gradients are computed together."""
        columns = self._flat(action).unbind(-1)
        terms = [log_prob_and_entropy_of(*pair) for pair in zip(self._parts, columns, strict=True)]
        log_probs, entropies = zip(*terms, strict=True)
        return torch.stack(log_probs).sum(dim=0), torch.stack(entropies).sum(dim=0)

    def kl(self, other: Self) -> Tensor:
        """[...] KL(self || other) in nats, summed over the choices."""
        terms = [kl_of(ours, theirs) for ours, theirs in zip(self.log_probs, other.log_probs, strict=True)]
        return torch.stack(terms).sum(dim=0)

    @classmethod
    def _sizes(cls, action_space: spaces.Space[Any]) -> list[int]:
        space = cls._require(action_space, spaces.MultiDiscrete)
        if space.start.any():
            raise TypeError(f"MultiDiscrete with start={space.start} is not supported; subtract the start in a wrapper")
        return [int(size) for size in space.nvec.flat]
