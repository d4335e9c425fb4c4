"""What every distribution over an action head offers, and the random numbers that all of them draw from.

Distributions are short-lived: one is made for each forward pass. They hold tensors only, make no `torch.distributions`
objects and validate shapes, not values, because they sit in the innermost loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from gymnasium import spaces
from torch import Tensor


class ProbabilityDistribution(ABC):
    """A batch of distributions over the actions of one head, given by the outputs of a network.

    A subclass becomes available for a head by its class path in `distribution_mapper_config`.

    Args:
        logits: [..., L] network outputs, L as `required_logits_shape` says; any number of leading dimensions. Half
            precision is computed in float32.
        action_space: The space of the head.
        temperature: Above 1 flattens the distribution, below 1 sharpens it: p becomes proportional to p ** (1 / T).
        mask: [..., L] nonzero where an entry is allowed, None to allow all.

    Raises:
        ValueError: Shapes do not fit, the temperature is not positive, or the distribution cannot be masked.
    """

    supports_mask: ClassVar[bool] = False

    def __init__(
        self, logits: Tensor, action_space: spaces.Space[Any], temperature: float = 1.0, mask: Tensor | None = None
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature={temperature} must be positive; use deterministic actions for the limit 0")
        if mask is not None:
            if not self.supports_mask:
                raise ValueError(f"{type(self).__name__} cannot be masked; only discrete and binary heads can")
            if mask.shape[-1:] != logits.shape[-1:]:
                raise ValueError(f"mask of shape {tuple(mask.shape)} does not fit logits of {tuple(logits.shape)}")
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        self.logits = logits
        self.action_space = action_space
        self.temperature = temperature

    @classmethod
    @abstractmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """Shape of the logits for one action, without batch dimensions.

        Raises:
            TypeError: This distribution does not fit the space.
        """

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw one action for each batch entry.

        Args:
            generator: Source of randomness, on any device; the global one of the logits' device if None.

        Returns:
            [..., *action_space.shape]
        """

    @abstractmethod
    def deterministic_sample(self) -> Tensor:
        """The mode, [..., *action_space.shape]."""

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability (density for continuous heads) of `action` [..., *action_space.shape], as [...]."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats, [...]."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, [...]."""

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, sharing what both need."""
        return self.log_prob(action), self.entropy()


def check_logits(distribution: str, logits: Tensor, size: int) -> None:
    """Refuse logits whose last dimension is not the required one.

    Raises:
        ValueError: Naming both sizes.
    """
    if logits.dim() == 0 or logits.shape[-1] != size:
        raise ValueError(f"{distribution} needs logits of shape [..., {size}] for its space, got {tuple(logits.shape)}")


def masked_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """`logits` [..., L] with the smallest finite number where `mask` [..., L] is zero, so that nothing becomes NaN."""
    if mask is None:
        return logits
    return torch.where(mask != 0, logits, torch.finfo(logits.dtype).min)


def uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Numbers in [0, 1) with shape, dtype and device of `like`, drawn on the generator's device."""
    if generator is None:
        return torch.rand(like.shape, dtype=like.dtype, device=like.device)
    numbers = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=generator.device)
    return numbers.to(like.device)


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers with shape, dtype and device of `like`, drawn on the generator's device."""
    if generator is None:
        return torch.randn(like.shape, dtype=like.dtype, device=like.device)
    numbers = torch.randn(like.shape, generator=generator, dtype=like.dtype, device=generator.device)
    return numbers.to(like.device)
