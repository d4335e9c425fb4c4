"""Several independent categorical distributions side by side, for MultiDiscrete heads."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.categorical import entropy_of, gather_last, kl_of, log_prob_and_entropy_of, sample_index
from maze_pl.distributions.probability_distribution import (
    ProbabilityDistribution,
    check_logits,
    masked_logits,
)


class MultiCategoricalProbabilityDistribution(ProbabilityDistribution):
    """Independent choices, the i-th among nvec[i] options: logits and masks are their concatenation [..., sum(nvec)].

    Actions are int64 [..., *nvec.shape]; a space of more than one dimension is read row by row.
    """

    supports_mask: ClassVar[bool] = True

    def __init__(
        self, logits: Tensor, action_space: spaces.Space[Any], temperature: float = 1.0, mask: Tensor | None = None
    ) -> None:
        super().__init__(logits, action_space, temperature, mask)
        sizes = _sizes(action_space)
        check_logits("MultiCategoricalProbabilityDistribution", logits, sum(sizes))
        scaled = self.logits if temperature == 1.0 else self.logits / temperature
        self._parts = torch.split(masked_logits(scaled, mask), sizes, dim=-1)
        self._shape = tuple(action_space.shape or ())
        self._normalised: list[Tensor] | None = None

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(sum(nvec),)."""
        return (sum(_sizes(action_space)),)

    @property
    def log_probs(self) -> list[Tensor]:
        """[..., nvec[i]] log-probability of every option of each choice, computed once."""
        if self._normalised is None:
            self._normalised = [functional.log_softmax(part, dim=-1) for part in self._parts]
        return self._normalised

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *nvec.shape] int64."""
        return self._stack([sample_index(part, generator) for part in self._parts])

    def deterministic_sample(self) -> Tensor:
        """[..., *nvec.shape] int64, the most likely option of each choice."""
        return self._stack([part.argmax(dim=-1) for part in self._parts])

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] sum of the log-probabilities of all choices in `action` [..., *nvec.shape]."""
        terms = [gather_last(*pair) for pair in zip(self.log_probs, self._columns(action), strict=True)]
        return torch.stack(terms).sum(dim=0)

    def entropy(self) -> Tensor:
        """[...] sum of the entropies of all choices in nats."""
        return torch.stack([entropy_of(part) for part in self.log_probs]).sum(dim=0)

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, whose gradients are computed together."""
        terms = [log_prob_and_entropy_of(*pair) for pair in zip(self._parts, self._columns(action), strict=True)]
        log_probs, entropies = zip(*terms, strict=True)
        return torch.stack(log_probs).sum(dim=0), torch.stack(entropies).sum(dim=0)

    def kl(self, other: Self) -> Tensor:
        """[...] KL(self || other) in nats, summed over the choices."""
        terms = [kl_of(ours, theirs) for ours, theirs in zip(self.log_probs, other.log_probs, strict=True)]
        return torch.stack(terms).sum(dim=0)

    def _columns(self, action: Tensor) -> tuple[Tensor, ...]:
        """[...] the options of each choice in `action` [..., *nvec.shape]."""
        leading = action.shape[: action.dim() - len(self._shape)]
        return action.reshape((*leading, len(self._parts))).unbind(dim=-1)

    def _stack(self, columns: list[Tensor]) -> Tensor:
        action = torch.stack(columns, dim=-1)  # [..., n_choices]
        return action if len(self._shape) == 1 else action.reshape((*action.shape[:-1], *self._shape))


def _sizes(space: spaces.Space[Any]) -> list[int]:
    if not isinstance(space, spaces.MultiDiscrete):
        raise TypeError(f"MultiCategoricalProbabilityDistribution needs a MultiDiscrete space, got {space}")
    if space.start.any():
        raise TypeError(f"MultiDiscrete with start={space.start} is not supported; subtract the start in a wrapper")
    sizes: list[int] = space.nvec.reshape(-1).tolist()
    return sizes
