"""The categorical distribution, for Discrete heads, and the functions that it shares with the multi-categorical."""

from typing import Any, Self

import torch
from gymnasium import spaces
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution, drawn


def sample_index(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """[...] indices drawn from softmax(logits) [..., n].

    An exponential race: i wins with the largest p_i / E_i, E_i standard exponential, which happens with probability
    p_i. Entries of probability 0 never win, because the uniform numbers are kept away from 0.
    """
    probability = functional.softmax(logits, dim=-1)
    minus_exponential = drawn(torch.rand, probability, generator).clamp_min_(torch.finfo(probability.dtype).tiny).log_()
    return (probability / minus_exponential).argmin(dim=-1)


def gather_last(values: Tensor, index: Tensor) -> Tensor:
    """[...] the entries of `values` [..., n] at `index` [...]."""
    return values.gather(-1, index.long().unsqueeze(-1)).squeeze(-1)


def entropy_of(log_probs: Tensor) -> Tensor:
    """-sum p log p over the last dimension of normalised `log_probs` [..., n]."""
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def kl_of(log_probs: Tensor, other: Tensor) -> Tensor:
    """sum p (log p - log q) over the last dimension of normalised `log_probs` and `other` [..., n]."""
    return (log_probs.exp() * (log_probs - other)).sum(dim=-1)


class _LogProbAndEntropy(torch.autograd.Function):
    """log p_i and H of softmax(logits) [..., n], with their gradients in closed form.

        d log p_i / d l_j = [i = j] - p_j,   dH / d l_j = -p_j * (log p_j + H)

    Going back through the definitions takes three times as many operations.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """[...] both, for `index` [..., 1]."""
        log_probs = functional.log_softmax(logits, dim=-1)
        probability = log_probs.exp()
        terms = probability * log_probs  # 0 where an option is masked
        entropy = -terms.sum(dim=-1)
        ctx.save_for_backward(index, probability, terms, entropy)
        return log_probs.gather(-1, index).squeeze(-1), entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_log_prob: Tensor, by_entropy: Tensor) -> tuple[Tensor, None]:
        """[..., n] the gradient by the logits."""
        index, probability, terms, entropy = ctx.saved_tensors
        by_log_prob = by_log_prob.unsqueeze(-1)
        weighted = by_entropy.unsqueeze(-1) * torch.addcmul(terms, probability, entropy.unsqueeze(-1))
        towards_others = torch.addcmul(weighted, probability, by_log_prob).neg()
        return towards_others.scatter_add(-1, index, by_log_prob), None


def log_prob_and_entropy_of(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """[...] log-probability of `index` [...] under softmax(logits) [..., n], and the entropy of that in nats."""
    both: tuple[Tensor, Tensor] = _LogProbAndEntropy.apply(logits, index.long().unsqueeze(-1))  # type: ignore[no-untyped-call]
    return both


class CategoricalProbabilityDistribution(MaskableProbabilityDistribution):
    """One of n options: logits are unnormalised log-probabilities [..., n]. Actions are int64 from the space's start.

    Where a mask allows nothing at all, every option is equally likely.
    """

    def _prepare(self) -> None:
        super()._prepare()
        self._start = int(self._require(self.action_space, spaces.Discrete).start)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(n,)."""
        return (int(cls._require(action_space, spaces.Discrete).n),)

    @property
    def log_probs(self) -> Tensor:
        """[..., n] log-probability of every option."""
        return functional.log_softmax(self._masked, dim=-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[...] int64 options."""
        index = sample_index(self._masked, generator)
        return index + self._start if self._start else index

    def deterministic_sample(self) -> Tensor:
        """[...] int64, the most likely option."""
        return self._masked.argmax(dim=-1) + self._start

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability of the options `action` [...], which count from the space's start."""
        return gather_last(self.log_probs, action - self._start if self._start else action)

    def entropy(self) -> Tensor:
        """[...] entropy in nats."""
        return entropy_of(self.log_probs)

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, whose gradients are computed together."""
        return log_prob_and_entropy_of(self._masked, action - self._start if self._start else action)

    def kl(self, other: Self) -> Tensor:
        """[...] KL(self || other) in nats."""
        return kl_of(self.log_probs, other.log_probs)
